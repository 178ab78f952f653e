"""The questions of a closeout about what a run leaves behind: checkpoints, leases, scratch, accounts,
records. Pure functions of the facts.
"""

from __future__ import annotations

from collections.abc import Callable

from milepost.evidence.closeout import STILL, Facts, Item
from milepost.evidence.planned import planned_observed, price
from milepost.evidence.states import Scheduler
from milepost.evidence.types import ShardEvidence
from milepost.evidence.words import plural, size, some


def _durable(facts: Facts) -> Item:
    key, title = "checkpoint_durable", "The newest checkpoint is verified and outlives the node"
    kept = [s for s in facts.run.shards if s.checkpoints]
    if not kept:
        return Item(key, title, None, "no checkpoint was written")
    spec, name = facts.run.spec, facts.run.paths.run
    if spec is not None and not spec.checkpoint.uploader.enable:
        return Item(
            key, title, None, "the uploader is off: checkpoints are only in the scratch tier"
        )
    bad = [s for s in kept if not is_uploaded(s)]
    if bad:
        fix = f"milepost upload {name} {bad[0].name}, then milepost reconcile {name}"
        text = f"not verified in a durable tier: shards {some([s.name for s in bad])}"
        return Item(key, title, False, text, fix)
    tiers = sorted({str(s.upload["tier"]) for s in kept if s.upload})
    return Item(key, title, True, f"{plural(len(kept), 'shard')}, in the tier {', '.join(tiers)}")


def is_uploaded(shard: ShardEvidence) -> bool:
    """Does upload.json prove the newest generation that the journal knows, or a newer one?"""
    upload = shard.upload
    if upload is None or not upload.get("verified"):
        return False
    generation = upload.get("generation")
    return generation is not None and str(generation) >= shard.checkpoints[-1].generation


def _quiet(facts: Facts) -> Item:
    title = "Nothing is running, queued, held or leased any more"
    moving = (Scheduler.ALIVE, Scheduler.PENDING, Scheduler.NOT_HEARD)
    busy = [
        f"shard {v.shard.name} ({v.said or v.scheduler.replace('_', ' ')})"
        for v in facts.verdicts
        if v.scheduler in moving
    ]
    busy += [] if facts.left is None else facts.left.busy
    if not busy:
        return Item(STILL, title, True, "no lease is held, and no job of this run waits or runs")
    fix = f"wait for it, or end it; then milepost reconcile {facts.run.paths.run}"
    return Item(STILL, title, False, some(busy), fix)


def _scratch(facts: Facts) -> Item:
    key, title = "scratch_settled", "Scratch is clean, or kept on purpose"
    left, name = facts.left, facts.run.paths.run
    if left is None:
        return Item(key, title, None, "there is no contract that names the tiers")
    if any(v.scheduler in (Scheduler.ALIVE, Scheduler.PENDING) for v in facts.verdicts):
        return Item(key, title, None, "shards are still at work in it")
    if left.unwanted:
        fix = f"milepost reconcile {name}; {_broom(left.surplus, (*left.drafts, *left.private))}"
        return Item(key, title, False, f"nobody keeps {some(left.unwanted)}", fix)
    if left.generations:
        rotation = 3 if facts.run.spec is None else facts.run.spec.checkpoint.rotation
        what = f"{plural(left.generations, 'generation')} ({size(left.size_bytes)})"
        return Item(key, title, True, f"{what} kept by checkpoint.rotation {rotation}")
    if not left.is_visible and any(s.checkpoints for s in facts.run.shards):
        return Item(key, title, None, f"{left.scratch} is not to be seen from this machine")
    return Item(key, title, True, "nothing of the run is left there")


def _broom(surplus: tuple[str, ...], folders: tuple[str, ...]) -> str:
    """How what nobody keeps is removed."""
    steps = [f"milepost ckpt prune {surplus[0]}"] if surplus else []
    steps += [f"rm -r {folders[0]}"] if folders else []
    more = len(surplus) + len(folders) - len(steps)
    return "then " + ", ".join(steps) + (f", and so for {more} more" if more else "")


def _cost(facts: Facts) -> Item:
    key, title = "cost_accounted", "Core hours and cost are accounted for"
    account, name = facts.account, facts.run.paths.run
    untimed = [s.name for s in facts.run.shards if s.rows and not s.attempts]
    if untimed:
        what = f"work of which no attempt is recorded: shards {some(untimed)}"
        fix = f"bring their attempts/ back from a backup, then milepost reconcile {name}"
        return Item(key, title, False, what, fix)
    if account.allocated_core_s is None:
        return Item(key, title, None, "not measured")
    cpu = "n/a" if account.cpu_s is None else f"{account.cpu_s / 3600:.4g}"
    text = f"{account.allocated_core_s / 3600:.4g} core hours allocated, {cpu} CPU hours used"
    if account.blind_count:
        text += (
            f"; killed and counted up to the last sign: {plural(account.blind_count, 'attempt')}"
        )
    return Item(key, title, True, f"{text}; cost {price(facts.run, account)}")


def _planned(facts: Facts) -> Item:
    key, title = "planned_observed", "Planned and observed are compared"
    rows = planned_observed(facts.run, facts.account)
    both = [r for r in rows if r[1] != "n/a" and r[2] != "n/a"]
    if not both:
        return Item(key, title, None, "no plan, or nothing measured")
    return Item(key, title, True, "; ".join(f"{n}: {p} planned, {o} observed" for n, p, o in both))


def _record(facts: Facts) -> Item:
    key, title = "record_written", "The record is written"
    folder = facts.run.paths.closeout
    if facts.unwritable:
        fix = f"make room for it, then milepost reconcile {facts.run.paths.run}"
        return Item(key, title, False, some(facts.unwritable), fix)
    return Item(key, title, True, f"{folder}/record.json, public.json")


QUESTIONS: tuple[Callable[[Facts], Item], ...] = (
    _durable,
    _quiet,
    _scratch,
    _cost,
    _planned,
    _record,
)
