"""The questions of a closeout: pure functions of the facts.

A false item names the next action, which is to reconcile or to run the named shards again, never
a fresh launch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from milepost.evidence.account import failures
from milepost.evidence.closeout import Facts, Item
from milepost.evidence.control import Control, summary
from milepost.evidence.planned import planned_observed, price
from milepost.evidence.reconcile import ShardVerdict, count, not_done
from milepost.evidence.states import Scheduler
from milepost.evidence.types import ShardEvidence
from milepost.evidence.words import plural
from milepost.model import WorkKind

NAMED = 3


def items(facts: Facts) -> tuple[Item, ...]:
    """Every item, in the order in which a person wants to read them."""
    return tuple(question(facts) for question in _QUESTIONS)


def _contract(facts: Facts) -> Item:
    key, title = "contract_unchanged", "The contract is the one that was frozen"
    contract = facts.run.contract
    again = f"milepost contract {facts.run.paths.run}"
    if contract is None:
        return Item(key, title, False, "there is no contract", again)
    if facts.changed_inputs:
        return Item(
            key,
            title,
            False,
            f"{plural(len(facts.changed_inputs), 'input')} not as frozen: {_some(facts.changed_inputs)}",
            "bring the named files back as they were, or name the change a new run; then reconcile",
        )
    submission = facts.run.submission
    if submission is not None and submission.get("contract_digest") != contract["digest"]:
        what = f"shards were submitted under another contract, {_short(str(submission.get('contract_digest')))}"
        return Item(key, title, False, what, "bring that contract's files back, then reconcile")
    text = (
        f"{_short(contract['digest'])}, {plural(len(contract['inputs']), 'input file')} as frozen"
    )
    if facts.amendments:
        text += f"; {plural(len(facts.amendments), 'accepted change')} that cannot alter results"
    return Item(key, title, True, text)


def _smoke(facts: Facts) -> Item:
    key, title = "smoke_passed", "The smoke test passed on this contract"
    smoke, contract = facts.run.smoke, facts.run.contract
    fix = f"snakemake -c2 results/{facts.run.paths.run}/smoke/smoke.json, then reconcile"
    if smoke is None:
        return Item(key, title, False, "there is no smoke test", fix)
    if contract is not None and smoke.get("contract_digest") != contract["digest"]:
        return Item(key, title, False, "the smoke test belongs to another contract", fix)
    if smoke.get("passed") is not True:
        return Item(key, title, False, f"it did not pass: {smoke.get('reason')}", fix)
    tasks = (smoke.get("slice") or {}).get("tasks")
    size = "slice of unknown size" if tasks is None else plural(tasks, "task")
    return Item(key, title, True, f"{size}; {smoke.get('reason')}")


def _shards(facts: Facts) -> Item:
    key, title = "shards_done", "Every shard has the verdict DONE"
    if not facts.verdicts:
        return _without_shards(facts, key, title)
    counts = ", ".join(f"{n} {word}" for word, n in count(facts.verdicts).items())
    open_ = not_done(facts.verdicts)
    if not open_:
        return Item(key, title, True, counts)
    names = _some([v.shard.name for v in open_])
    return Item(key, title, False, f"{counts}; not DONE: {names}", _next(open_[0], len(open_)))


def _without_shards(facts: Facts, key: str, title: str) -> Item:
    run = facts.run
    if run.spec is not None and run.spec.stop == "smoke-only":
        return Item(key, title, None, "the contract stops after the smoke test")
    return Item(
        key,
        title,
        False,
        "there is no shard table: nothing was submitted",
        f"milepost reconcile {run.paths.run}; when the gate is passed: milepost submit {run.paths.run}",
    )


def _next(first: ShardVerdict, open_count: int) -> str:
    more = f" (and {open_count - 1} more in reconcile.csv)" if open_count > 1 else ""
    return f"shard {first.shard.name}: {first.next_action}; {first.command}{more}"


def _artifacts(facts: Facts) -> Item:
    key, title = "artifacts_verified", "Every expected artifact verifies"
    run = facts.run
    if run.spec is not None and not run.spec.artifacts:
        return Item(key, title, None, "the contract expects no artifacts")
    if not run.shards:
        return Item(key, title, None, "nothing is done yet")
    bad = [p for shard in run.shards for p in shard.damaged]
    how = "sizes and digests" if run.deep else "sizes"
    if bad:
        named = _some([f"{p.artifact} {p.what}" for p in bad])
        fix = f"milepost reconcile {run.paths.run} --deep, then run the named shards again"
        return Item(key, title, False, f"{plural(len(bad), 'task')}: {named}", fix)
    done = sum(shard.done for shard in run.shards)
    text = f"{how} of {plural(done, 'done task')} are as recorded"
    rest = sum(len(shard.tasks) for shard in run.shards) - done
    if rest:
        fix = f"milepost reconcile {run.paths.run}, then run the named shards again"
        more = f"{plural(rest, 'task')} {'is' if rest == 1 else 'are'} not done"
        return Item(key, title, False, f"{text}; {more}", fix)
    return Item(key, title, True, text)


def _terminal(facts: Facts) -> Item:
    key, title = "tasks_terminal", "No task is without a final row in a journal"
    run = facts.run
    if not run.shards:
        return Item(key, title, None, "there is no shard table")
    missing = {s.name: len(s.missing) for s in run.shards if s.missing}
    if not missing:
        return Item(key, title, True, plural(sum(len(s.tasks) for s in run.shards), "task"))
    named = _some([f"{name} ({n})" for name, n in missing.items()])
    fix = f"milepost reconcile {run.paths.run}, then run the named shards again"
    return Item(
        key, title, False, f"{plural(sum(missing.values()), 'task')}, in shards {named}", fix
    )


def _classified(facts: Facts) -> Item:
    key, title = "failures_classified", "Every failure has a class"
    groups = failures(facts.run)
    if not groups:
        return Item(key, title, None, "nothing failed")
    text = ", ".join(f"{g['count']} {g['class']}/{g['subclass']}" for g in groups)
    unknown = [g for g in groups if g["class"] in ("unclassified", "none")]
    if not unknown:
        return Item(key, title, True, text)
    shard = unknown[0]["shards"][0]
    log = facts.run.paths.shard(shard).attempts
    return Item(
        key, title, False, text, f"read the logs in {log}, or: milepost classify {log}/*.log"
    )


def _control(facts: Facts) -> Item:
    key, title = "control_metric", "The control metric agrees with its reference"
    spec = None if facts.run.spec is None else facts.run.spec.control
    if spec is None:
        return Item(key, title, None, "the contract names none")
    if facts.run.spec is not None and facts.run.spec.work.kind is WorkKind.BATCH:
        return Item(key, title, None, f"{spec.metric} is compared in the smoke test of a batch run")
    bad = [c for c in facts.controls if c.agrees is False]
    if bad:
        named = _some([f"{c.shard}: {_apart(c)}" for c in bad])
        fix = "look at the named shards before using any result; then reconcile or run them again"
        return Item(key, title, False, f"{spec.metric}: {summary(facts.controls)}; {named}", fix)
    if not any(c.agrees for c in facts.controls):
        return Item(key, title, None, f"{spec.metric} has no reference to compare with")
    return Item(key, title, True, f"{spec.metric}: {summary(facts.controls)}")


def _apart(control: Control) -> str:
    if control.problem:
        return control.problem
    away = "" if control.sigmas is None else f", {control.sigmas:.1f} sigma away"
    return f"{control.value:.6g}, reference {control.reference:.6g}{away}"


def _durable(facts: Facts) -> Item:
    key, title = "checkpoint_durable", "The newest checkpoint is verified and outlives the node"
    kept = [s for s in facts.run.shards if s.checkpoints]
    if not kept:
        return Item(key, title, None, "no checkpoint was written")
    spec = facts.run.spec
    if spec is not None and not spec.checkpoint.uploader.enable:
        return Item(
            key, title, None, "the uploader is off: checkpoints are only in the scratch tier"
        )
    bad = [s for s in kept if not is_uploaded(s)]
    if bad:
        names = _some([s.name for s in bad])
        fix = f"milepost upload {facts.run.paths.run} {bad[0].name}"
        return Item(key, title, False, f"not verified in a durable tier: shards {names}", fix)
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
    key, title = "nothing_running", "Nothing is running, queued or leased any more"
    moving = (Scheduler.ALIVE, Scheduler.PENDING, Scheduler.NOT_HEARD)
    busy = [v for v in facts.verdicts if v.scheduler in moving]
    if not busy:
        return Item(key, title, True, "no lease is held")
    named = _some([f"{v.shard.name} ({v.scheduler.replace('_', ' ')})" for v in busy])
    return Item(key, title, False, f"shards {named}", f"milepost status {facts.run.paths.run}")


def _cost(facts: Facts) -> Item:
    key, title = "cost_accounted", "Core hours and cost are accounted for"
    account = facts.account
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
    folder = facts.run.paths.closeout
    return Item(
        "record_written", "The record is written", True, f"{folder}/record.json, public.json"
    )


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more


def _short(digest: str) -> str:
    algorithm, _, value = digest.partition(":")
    return f"{algorithm}:{value[:12]}"


_QUESTIONS: tuple[Callable[[Facts], Item], ...] = (
    _contract,
    _smoke,
    _shards,
    _artifacts,
    _terminal,
    _classified,
    _control,
    _durable,
    _quiet,
    _cost,
    _planned,
    _record,
)
