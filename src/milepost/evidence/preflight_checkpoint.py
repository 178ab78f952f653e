"""The checks of the pre-production list that ask about checkpoints and where they are kept."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

from milepost.checkpoint.room import FULL_FRACTION
from milepost.evidence.closeout import Item
from milepost.evidence.preflight_facts import Facts, Place, Rehearsed
from milepost.evidence.words import duration, plural, size
from milepost.model import WorkKind

MARGIN_BYTES = 64 << 20
"""Journals, attempts and results, whatever the work is."""
_SAVES = "milepost_checkpoint_"


def _contents(facts: Facts) -> Item:
    key, title = (
        "contents",
        "What a checkpoint holds is defined, and it appears whole or not at all",
    )
    kind = _kind(facts)
    if kind is WorkKind.BATCH:
        return Item(key, title, None, "finished tasks are the checkpoints: rows of the journal")
    if kind is WorkKind.STAGES:
        assert facts.spec is not None
        outputs = plural(sum(len(s.outputs) for s in facts.spec.work.stages), "output")
        text = (
            f"{plural(len(facts.spec.work.stages), 'seam')}, {outputs} verified before they count"
        )
        return Item(key, title, True, text)
    if kind is None:
        return _unknown(key, title)
    made = [r for r in facts.rehearsed if r.newest is not None]
    if not made:
        text = "the smoke test left no generation that could be read"
        return Item(key, title, False, text, f"milepost smoke {facts.run}")
    bad = [damage for r in made for damage in r.damages]
    if bad:
        return Item(key, title, False, bad[0], f"milepost ckpt verify {made[0].folder}")
    missing = [text for r in made for text in _missing(facts, r)]
    if missing:
        fix = "mend checkpoint.contents, or let the application write it"
        return Item(key, title, False, missing[0], fix)
    return _well_defined(facts, made[0], key, title)


def _missing(facts: Facts, one: Rehearsed) -> Iterator[str]:
    """Declared contents that the generation of the smoke test does not hold."""
    assert facts.spec is not None and one.newest is not None
    held = {proof.path for proof in one.newest.files}
    for declared in facts.spec.checkpoint.contents:
        ranks = sorted(one.newest.ranks) or [0]
        for name in dict.fromkeys(declared.replace("{rank}", str(rank)) for rank in ranks):
            if name not in held:
                yield f"{one.newest.name} has no {name}, which checkpoint.contents names"


def _well_defined(facts: Facts, one: Rehearsed, key: str, title: str) -> Item:
    newest = one.newest
    assert newest is not None and facts.spec is not None
    files = ", ".join(proof.path for proof in newest.files[:4])
    if newest.kind == "files" and not facts.spec.checkpoint.contents:
        text = f"nobody says which files belong to it; {newest.name} holds {files}"
        return Item(key, title, False, text, "name them in checkpoint.contents")
    rng = "with its generator's state" if newest.rng is not None else "no generator's state named"
    return Item(key, title, True, f"{newest.name}: {files}, every byte as in its manifest; {rng}")


def _interval(facts: Facts) -> Item:
    key, title = "interval", "The interval is chosen from a measured checkpoint"
    if _kind(facts) is not WorkKind.RESUMABLE:
        return Item(key, title, None, "nothing is saved inside a task or stage")
    plan, t_ckpt = facts.plan or {}, _measured(facts, "t_ckpt_s")
    if t_ckpt is None:
        text = "the smoke test measured no checkpoint"
        return Item(key, title, False, text, f"milepost smoke {facts.run}")
    interval_s = plan.get("interval_s")
    if interval_s is None:
        return Item(key, title, False, "no plan chose one", f"milepost plan {facts.run}")
    durable_s = _measured(facts, "durable_s")
    text = f"{duration(interval_s)}, {plan.get('interval_source')}; a checkpoint blocks "
    text += f"{duration(t_ckpt['median'])} (p95 {duration(t_ckpt['p95'])}, n={t_ckpt['n']})"
    if durable_s is not None and durable_s > interval_s:
        text += f" and is durable after {duration(durable_s)}, later than the next is due"
        return Item(key, title, False, text, "set checkpoint.interval_seconds to auto")
    return Item(key, title, True, text)


def _rotation(facts: Facts) -> Item:
    key, title = "rotation", "More than one generation is kept"
    if _kind(facts) is not WorkKind.RESUMABLE or facts.spec is None:
        return Item(key, title, None, "there are no generations")
    ckpt = facts.spec.checkpoint
    gold = f", every {ckpt.gold_every}th besides" if ckpt.gold_every else ""
    text = f"the {ckpt.rotation} newest verified ones{gold}"
    if ckpt.rotation < 2:
        text = f"only the newest one{gold}: if it is damaged there is nothing to go back to"
        return Item(key, title, False, text, "set checkpoint.rotation to 2 or more")
    return Item(key, title, True, text)


def _upload(facts: Facts) -> Item:
    key, title = "upload", "Checkpoints reach a place that outlives the node"
    if _kind(facts) is not WorkKind.RESUMABLE or facts.spec is None:
        return Item(key, title, None, "there are no checkpoints to send")
    uploader, places = facts.spec.checkpoint.uploader, _places(facts)
    scratch = places.get("scratch")
    if not uploader.enable:
        if scratch is not None and scratch.is_shared:
            text = "off; scratch lies on the file system of the workflow's folder"
            return Item(key, title, True, text)
        text = "off, and scratch is another file system: a node that dies takes them along"
        return Item(key, title, False, text, "set checkpoint.uploader.enable to true")
    target = places.get(uploader.to)
    if target is None:
        fix = f"name a path or URL in tiers.{uploader.to}"
        return Item(key, title, False, f"there is no {uploader.to} tier", fix)
    if target.problem is not None:
        text = f"{uploader.to} {target.place}: {target.problem}"
        return Item(key, title, False, text, f"mend tiers.{uploader.to} or its rights")
    if facts.rehearsed and not all(r.uploaded for r in facts.rehearsed if r.newest):
        text = "nothing of the smoke test's slice was uploaded"
        return Item(key, title, False, text, f"milepost smoke {facts.run}")
    cap = uploader.max_bandwidth_mb_s
    rate = "no limit" if cap is None else f"at most {cap:g} MB/s"
    return Item(key, title, True, f"to {uploader.to}, {target.place}, {rate}; the slice's arrived")


def space(facts: Facts) -> Item:
    """Is there room in every tier for what is kept there, and for the results?"""
    key, title = "space", "There is room for the checkpoints that are kept"
    if facts.spec is None:
        return _unknown(key, title)
    bad = next(
        (p for p in facts.places if p.problem is not None and p.name in ("work", "scratch")), None
    )
    if bad is not None:
        return Item(key, title, False, f"{bad.name}: {bad.problem}", f"see tiers.{bad.name}")
    told = []
    for place in facts.places:
        needed, left = needed_bytes(facts, place), _usable(place)
        if left is not None and needed > left:
            text = (
                f"{place.name} {place.place}: {size(needed)} are needed, {size(left)} may be used"
            )
            if place.name != "work":
                text += f" ({_how(facts, place)})"
            fix = f"free space or name another place in tiers.{place.name}; a smaller "
            fix += "checkpoint.rotation needs less"
            return Item(key, title, False, text, fix)
        room = "n/a" if left is None else f"of {size(left)}"
        when = ", known only in the job" if place.is_known_later else ""
        told.append(f"{place.name} {size(needed)} {room}{when}")
    return Item(key, title, True, "; ".join(told))


def needed_bytes(facts: Facts, place: Place) -> int:
    """Bytes that this place has to take: kept generations and one being written, for each shard
    that uses it at a time (all of them on a shared file system)."""
    if place.name == "work" or facts.spec is None:
        return MARGIN_BYTES
    ckpt_bytes = _measured(facts, "ckpt_bytes") or 0
    return int(ckpt_bytes) * _kept(facts) * _shards_at(facts, place)


def no_room(facts: Facts) -> str | None:
    """Why not even one shard could keep its checkpoints: what `submit` refuses; None: it could."""
    rotation = 0 if facts.spec is None else facts.spec.checkpoint.rotation
    one = int(_measured(facts, "ckpt_bytes") or 0) * (rotation + 1)
    for place in facts.places:
        needed = {"work": MARGIN_BYTES, "scratch": one}.get(place.name, 0)
        if place.free_bytes is not None and place.free_bytes < needed:
            return (
                f"{place.name} {place.place}: {size(place.free_bytes)} are free and "
                f"at least {size(needed)} are needed"
            )
    return None


def _kept(facts: Facts) -> int:
    assert facts.spec is not None
    ckpt, plan = facts.spec.checkpoint, facts.plan or {}
    shard_s, interval_s = plan.get("shard_s"), plan.get("interval_s")
    gold = 0
    if ckpt.gold_every and shard_s and interval_s:
        gold = math.floor(shard_s / interval_s / ckpt.gold_every)
    return ckpt.rotation + 1 + gold


def _shards_at(facts: Facts, place: Place) -> int:
    is_of_one_node = place.name == "scratch" and not place.is_shared
    return 1 if is_of_one_node else int((facts.plan or {}).get("shard_count") or 1)


def _how(facts: Facts, place: Place) -> str:
    one = size(int(_measured(facts, "ckpt_bytes") or 0))
    return f"{plural(_shards_at(facts, place), 'shard')} x {_kept(facts)} x {one}"


def _usable(place: Place) -> int | None:
    """What may be used before a nearly full disk is drained."""
    if place.free_bytes is None or place.name == "work" or place.total_bytes is None:
        return place.free_bytes
    return max(0, place.free_bytes - int((1 - FULL_FRACTION) * place.total_bytes))


def _coordination(facts: Facts) -> Item:
    key, title = "coordination", "Ranks agree on each checkpoint, as many as will run"
    if _kind(facts) is not WorkKind.RESUMABLE:
        return Item(key, title, None, "one process at a time writes a shard's journal")
    made = [r.newest for r in facts.rehearsed if r.newest is not None]
    if not made:
        text = "the smoke test left no generation that could be read"
        return Item(key, title, False, text, f"milepost smoke {facts.run}")
    cuts = {(len(m.ranks), m.decomposition_version) for m in made}
    if len(cuts) > 1:
        text = f"the slice's shards were cut differently: {sorted(cuts)} (ranks, version)"
        return Item(key, title, False, text, "give all shards the same number of ranks")
    ((ranks, version),) = cuts
    if made[0].kind == "files":
        return Item(key, title, True, "the application writes its own files")
    if sorted(made[0].ranks) != list(range(ranks)):
        text = f"{made[0].name} holds the ranks {sorted(made[0].ranks)}"
        return Item(key, title, False, text, f"milepost smoke {facts.run}")
    who = "one process" if ranks == 1 else f"{ranks} ranks, a file each"
    return Item(
        key, title, True, f"{who}, decomposition version {version}, in every shard of the slice"
    )


def _watched(facts: Facts) -> Item:
    key, title = "metrics", "Metrics are written, and alert rules look at them"
    if _kind(facts) is not WorkKind.RESUMABLE:
        return Item(key, title, None, "the journal is the metric: milepost status")
    silent = [r.folder for r in facts.rehearsed if not any(m.startswith(_SAVES) for m in r.metrics)]
    if silent or not facts.rehearsed:
        text = "the smoke test's slice wrote no metrics of its checkpoints"
        return Item(key, title, False, text, "save through Checkpointer.from_env(); smoke it again")
    if facts.alerts.unknown:
        text = f"alert rules ask for metrics that nobody writes: {', '.join(facts.alerts.unknown)}"
        return Item(key, title, False, text, "mend workflow/policies/alerts.yaml")
    count = len(set.intersection(*(set(r.metrics) for r in facts.rehearsed)))
    where = f"work/{facts.run}/metrics/<shard>.prom"
    text = (
        f"{plural(count, 'metric')} in {where}, {plural(facts.alerts.count, 'rule')} in alerts.yaml"
    )
    return Item(key, title, True, text)


def _retention(facts: Facts) -> Item:
    key, title = "retention", "What is kept goes one day"
    if _kind(facts) is not WorkKind.RESUMABLE or facts.spec is None:
        return Item(key, title, None, "only results are kept")
    ckpt = facts.spec.checkpoint
    if ckpt.gold_every and ckpt.ttl_days is None:
        text = f"every {ckpt.gold_every}th generation is kept for ever"
        return Item(key, title, False, text, "set checkpoint.retention.ttl_days")
    days = "" if ckpt.ttl_days is None else f" for {ckpt.ttl_days:g} days"
    gold = f"every {ckpt.gold_every}th{days}; " if ckpt.gold_every else ""
    return Item(key, title, True, f"{gold}the {ckpt.rotation} newest until the run is cleaned up")


def _kind(facts: Facts) -> WorkKind | None:
    return None if facts.spec is None else facts.spec.work.kind


def _places(facts: Facts) -> dict[str, Place]:
    return {place.name: place for place in facts.places}


def _measured(facts: Facts, name: str) -> Any:
    return ((facts.smoke or {}).get("measured") or {}).get(name)


def _unknown(key: str, title: str) -> Item:
    return Item(key, title, None, "there is no contract")


CHECKPOINT_QUESTIONS: tuple[Callable[[Facts], Item], ...] = (
    _contents,
    _interval,
    _rotation,
    _upload,
    space,
    _coordination,
    _watched,
    _retention,
)
