"""The doctor's questions about checkpoints: are they whole, quick, and often enough?"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterator
from typing import Any

from milepost.clock import epoch
from milepost.evidence.account import lost_s
from milepost.evidence.doctor import Answer, Diagnosis
from milepost.evidence.doctor_facts import CaseFile, Checkpoints, Patient
from milepost.evidence.types import CheckpointEvidence
from milepost.evidence.words import duration, plural

SLOWER = 4.0
"""A disk that takes so many times as long as in the smoke test is slow; disks vary by two."""
SLOW_S = 1.0
"""What takes less than this is never called slow."""
_RECENT = 5
_NAMED = 4


def corrupt(case: CaseFile) -> Answer:
    """Is every generation what its manifest says, byte for byte?"""
    name = "corrupt_checkpoint"
    places = [(p, place) for p in case.patients for place in p.places]
    found = tuple(d for patient, place in places for d in _damaged(patient, place))
    count = sum(len(place.generations) for _, place in places)
    if not count:
        return Answer(name, "no generation is there, in scratch or warm as seen from here", found)
    size = sum(place.read_bytes for _, place in places)
    how = f"{size / 1e6:,.4g} MB read and digested" if case.deep else "sizes only, without --deep"
    tiers = ", ".join(dict.fromkeys(place.tier for _, place in places))
    return Answer(name, f"{plural(count, 'generation')} in {tiers}: {how}", found)


def _damaged(patient: Patient, place: Checkpoints) -> Iterator[Diagnosis]:
    ailment = "corrupt_checkpoint"
    bad = [g for g in place.generations if g.damages]
    fields = {"folder": place.folder}
    if bad:
        told = [f"{place.tier}: {damage}" for g in bad for damage in g.damages]
        left = [g for g in patient.generations() if not g.damages]
        cause = "damaged" if left else "no_intact_one"
        evidence = (*told[:_NAMED], _left(patient, place))
        yield Diagnosis(ailment, cause, patient.name, evidence, fields)
    if place.audit:
        yield Diagnosis(ailment, "log_broken", patient.name, place.audit[:_NAMED], fields)


def _left(patient: Patient, place: Checkpoints) -> str:
    """What a restart would take, and how much older it is."""
    intact = [(p.tier, g) for p in patient.places for g in p.generations if not g.damages]
    if not intact:
        return "no intact generation is left in scratch or warm"
    tier, one = next((x for x in intact if x[0] == place.tier), intact[0])
    newest = place.generations[0]
    if one.manifest is None:
        return f"intact: {one.name} in {tier}"
    steps = f"step {one.manifest.step}"
    if newest.manifest is not None and newest.manifest.step > one.manifest.step:
        steps += f", {newest.manifest.step - one.manifest.step} steps before the newest"
    return f"newest intact one: {one.name} in {tier}, {steps}"


def slow_write(case: CaseFile) -> Answer:
    """Do checkpoints take longer than they did, than the interval, or than their tier lets through?"""
    name = "slow_write"
    known = [s for p in case.patients for s in _durable(p)]
    found = tuple(d for patient in case.patients for d in _slow(case, patient))
    if not known:
        return Answer(name, "no checkpoint of this run was timed", found)
    then = _measured(case, "durable_s")
    before = "" if then is None else f", {duration(then)} in the smoke test"
    looked = (
        f"{plural(len(known), 'checkpoint')}: durable after {duration(statistics.median(known))}"
    )
    return Answer(name, f"{looked} (median){before}; what waits for the tier", found)


def _slow(case: CaseFile, patient: Patient) -> Iterator[Diagnosis]:
    recent = list(_durable(patient))[-_RECENT:]
    fields = {"folder": patient.folder}
    if recent:
        median_s, then = statistics.median(recent), _measured(case, "durable_s")
        if then is not None and median_s > max(SLOW_S, SLOWER * then * _growth(case, patient)):
            told = (f"durable after {duration(median_s)}, {duration(then)} in the smoke test",)
            yield Diagnosis("slow_write", "slow_scratch", patient.name, told, fields)
    often = tuple(_too_often(case, patient, recent))
    if often:
        yield Diagnosis("slow_write", "too_often", patient.name, often, fields)
    behind = tuple(_behind(case, patient))
    if behind:
        yield Diagnosis("slow_write", "slow_tier", patient.name, behind, fields)


def _too_often(case: CaseFile, patient: Patient, recent: list[float]) -> Iterator[str]:
    interval_s = _interval(case)
    if recent and interval_s is not None and statistics.median(recent) > interval_s:
        took = duration(statistics.median(recent))
        yield f"durable after {took}, the next is due after {duration(interval_s)}"
    skipped = patient.metrics.get("milepost_checkpoint_saves_skipped_total", 0)
    commits = patient.metrics.get("milepost_checkpoint_commits_total", 0)
    if skipped > max(3, commits):
        yield f"{skipped:.0f} saves put off, {commits:.0f} made"


def _behind(case: CaseFile, patient: Patient) -> Iterator[str]:
    """Signs that the tier takes less than is saved."""
    get = patient.metrics.get
    sent = get("milepost_upload_sent_generations_total", 0)
    overtaken = get("milepost_upload_overtaken_generations_total", 0)
    waiting, age_s = (
        get("milepost_upload_queue_generations", 0),
        get("milepost_upload_queue_age_seconds", 0),
    )
    is_late = waiting > 0 and age_s > max(SLOW_S, 2 * (_interval(case) or 0.0))
    if overtaken > max(2, sent) or is_late:
        yield f"{sent:.0f} generations sent, {overtaken:.0f} overtaken by newer ones, {waiting:.0f} waiting"
        if is_late:
            yield f"the oldest had waited for {duration(age_s)}"
        yield from _limit(case)
    if get("milepost_upload_failures_total", 0) > 0:
        yield f"{get('milepost_upload_failures_total', 0):.0f} uploads failed after their retries"


def _limit(case: CaseFile) -> Iterator[str]:
    spec = case.run.spec
    cap = None if spec is None else spec.checkpoint.uploader.max_bandwidth_mb_s
    if cap is not None:
        yield f"checkpoint.uploader.max_bandwidth_mb_s is {cap:g}"


def high_loss(case: CaseFile) -> Answer:
    """Did an interruption cost much more than the interval allows?"""
    name, interval_s = "high_loss", _interval(case)
    losses = [(p, n, s) for p in case.patients for n, s in lost_s(p.shard).items()]
    found = tuple(
        _loss(case, patient, number, seconds)
        for patient, number, seconds in losses
        if _is_high(case, patient, seconds)
    )
    more = _more_failures(case, sum(s for _, _, s in losses))
    if not losses:
        return Answer(name, "no attempt had to do anything again", found)
    worst = duration(max(s for _, _, s in losses))
    bound = "n/a" if interval_s is None else duration(interval_s)
    looked = f"{plural(len(losses), 'interruption')}: {worst} lost at most, interval {bound}"
    return Answer(name, looked, (*found, *more))


def _is_high(case: CaseFile, patient: Patient, seconds: float) -> bool:
    """More than two intervals and the time until one is durable; nothing to say without one."""
    interval_s = _interval(case)
    if interval_s is None or not patient.shard.checkpoints:
        return False
    durable = list(_durable(patient))
    return seconds > 2 * interval_s + (max(durable) if durable else 0.0) + SLOW_S


def _loss(case: CaseFile, patient: Patient, number: int, seconds: float) -> Diagnosis:
    made = [c for c in patient.shard.checkpoints if c.generation.endswith(f"-a{number}")]
    told = [
        f"attempt {number} lost {duration(seconds)}, the interval is {duration(_interval(case))}"
    ]
    after = next((a for a in patient.shard.attempts if a.number == number + 1), None)
    taken = None if after is None else (after.restored or {}).get("generation")
    cause = "too_seldom"
    if not made:
        cause = "none_was_made"
        told.append("no generation of that attempt is in the journal")
    elif taken is not None and taken != made[-1].generation:
        cause = "older_one_taken"
        told.append(f"attempt {number + 1} restored {taken}, {made[-1].generation} was newer")
    else:
        gap = _longest_gap(made)
        told.append(f"longest time between two checkpoints: {duration(gap)}")
    fields = {"folder": patient.folder}
    return Diagnosis("high_loss", cause, patient.name, tuple(told), fields)


def _longest_gap(made: list[CheckpointEvidence]) -> float | None:
    times = [epoch(c.time) for c in made]
    return max((b - a for a, b in itertools.pairwise(times)), default=None)


def _more_failures(case: CaseFile, lost: float) -> tuple[Diagnosis, ...]:
    """Interruptions so often that the run loses a tenth, and three times what was planned."""
    attempts = [a for p in case.patients for a in p.shard.attempts]
    useful = sum(a.useful_s or 0.0 for a in attempts)
    overhead = ((case.run.plan or {}).get("overhead") or {}).get("fraction")
    if overhead is None or useful <= 0 or lost < 60.0 or lost < max(0.1, 3 * overhead) * useful:
        return ()
    planned = f"{100 * overhead:.3g} % of the useful time was planned for interruptions and saving"
    told = (f"{duration(lost)} lost of {duration(useful)} useful ({lost / useful:.0%})", planned)
    return (Diagnosis("high_loss", "more_failures", None, told),)


def _durable(patient: Patient) -> Iterator[float]:
    return (c.durable_s for c in patient.shard.checkpoints if c.durable_s is not None)


def _growth(case: CaseFile, patient: Patient) -> float:
    """How many times larger the checkpoints are than in the smoke test, at least 1."""
    then = _measured(case, "ckpt_bytes")
    sizes = [c.size_bytes for c in patient.shard.checkpoints if c.size_bytes]
    return max(1.0, statistics.median(sizes) / then) if then and sizes else 1.0


def _interval(case: CaseFile) -> float | None:
    spec = case.run.spec
    stated = None if spec is None else spec.checkpoint.interval_s
    value = stated or (case.run.plan or {}).get("interval_s")
    return None if value is None else float(value)


def _measured(case: CaseFile, name: str) -> Any:
    return ((case.run.smoke or {}).get("measured") or {}).get(name)
