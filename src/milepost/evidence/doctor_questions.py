"""The doctor's questions: one for each ailment, each a pure function of the case."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

from milepost.checkpoint.room import FULL_FRACTION
from milepost.evidence.doctor import Answer, Diagnosis, first_lines, said
from milepost.evidence.doctor_checkpoints import corrupt, high_loss, slow_write
from milepost.evidence.doctor_facts import CaseFile, Disk, Patient
from milepost.evidence.words import plural
from milepost.model import WorkKind

_ATTEMPTS = 3
_BAD_ENDS = ("failed", "error")
_FULL = ("no_space_left", "quota_exceeded")


def ranks_apart(case: CaseFile) -> Answer:
    """Is a checkpoint given up because a rank died, was late, or was never there?"""
    name = "ranks_apart"
    found = tuple(d for patient in _open(case) for d in _ranks(patient))
    counts = {len(g.manifest.ranks) for p in case.patients for g in p.generations() if g.manifest}
    if not counts:
        return Answer(name, "no generation is there to count the ranks of", found)
    ranks = "one process" if counts == {1} else f"{', '.join(map(str, sorted(counts)))} ranks"
    return Answer(name, f"{ranks} in all manifests, and the ends of the logs", found)


def _ranks(patient: Patient) -> Iterator[Diagnosis]:
    lines = _last_said(patient, "ranks_apart")
    meetings = tuple(m for place in patient.places for m in place.meetings)
    met = tuple(f"{meeting} was not left in good order" for meeting in meetings)
    fields = {"folder": patient.folder}
    if lines:
        evidence = (*first_lines(lines), *met)
        yield Diagnosis("ranks_apart", "missing_rank", patient.name, evidence, fields)
    elif meetings and not any(a.running for a in patient.shard.attempts):
        yield Diagnosis("ranks_apart", "unfinished_meeting", patient.name, met, fields)
    cuts = {
        g.name: (len(g.manifest.ranks), g.manifest.decomposition_version)
        for g in patient.generations()
        if g.manifest is not None
    }
    if len(set(cuts.values())) > 1 and _ended_badly(patient):
        told = [f"{n}: {ranks} ranks, version {version}" for n, (ranks, version) in cuts.items()]
        yield Diagnosis("ranks_apart", "other_cut", patient.name, tuple(told[:4]), fields)


def resume_fails(case: CaseFile) -> Answer:
    """Does a restart come to nothing, again and again or at once?"""
    name = "resume_fails"
    found = tuple(d for patient in _open(case) if (d := _restart(case, patient)) is not None)
    again = sum(len(p.shard.attempts) > 1 for p in case.patients)
    restored = sum(a.restored is not None for p in case.patients for a in p.shard.attempts)
    looked = f"{plural(again, 'shard')} started more than once, {plural(restored, 'restore')}"
    return Answer(name, looked, found)


def _restart(case: CaseFile, patient: Patient) -> Diagnosis | None:
    lines = _last_said(patient, "resume_fails")
    held = [g for place in patient.places[:1] for g in place.generations]
    fields = {"folder": patient.folder}
    illegal = [(n, line) for n, line in lines if "may not be restored here" in line]
    if illegal:
        evidence = first_lines(illegal)
        return Diagnosis("resume_fails", "not_legal", patient.name, evidence, fields)
    locked = [g for g in held if g.is_quarantined]
    told = tuple(f"{g.name}: in quarantine after {g.restores} restores" for g in locked)
    named = fields | ({"generation": locked[0].name} if locked else {})
    vain = () if lines else _in_vain(case, patient)
    if vain:
        return Diagnosis("resume_fails", "ends_badly", patient.name, (*vain, *told), named)
    if lines or (told and all(g.is_quarantined or g.damages for g in held)):
        evidence = (*first_lines(lines), *told)
        return Diagnosis("resume_fails", "nothing_usable", patient.name, evidence, named)
    return None  # damage alone is said under corrupt checkpoints


def _in_vain(case: CaseFile, patient: Patient) -> tuple[str, ...]:
    """The last two attempts or more, if they ended badly and nothing durable came of them."""
    shard = patient.shard
    if case.run.spec is None or case.run.spec.work.kind is not WorkKind.RESUMABLE:
        return ()
    made = {c.generation.rpartition("-a")[2] for c in shard.checkpoints}
    vain = list(
        itertools.takewhile(
            lambda a: a.stop in _BAD_ENDS and str(a.number) not in made and not a.running,
            reversed(shard.attempts),
        )
    )
    if len(vain) < 2 or not made:
        return ()
    return tuple(
        f"attempt {one.number}: exit {one.exit_code}, "
        f"{(one.finding or {}).get('subclass', 'no class')}, no new generation"
        for one in reversed(vain[:_ATTEMPTS])
    )


def scratch_full(case: CaseFile) -> Answer:
    """Is a disk full, or was it when an attempt ended?"""
    name = "scratch_full"
    full = [d for d in case.disks if (d.used_fraction or 0.0) >= FULL_FRACTION]
    found = [Diagnosis(name, "full_now", None, (_disk(d),), {"folder": d.place}) for d in full]
    if not full:
        found += [d for patient in _open(case) if (d := _was_full(patient)) is not None]
    looked = "; ".join(_disk(d) for d in case.disks if d.problem is None)
    unseen = [f"{d.name} {d.problem}" for d in case.disks if d.problem is not None]
    return Answer(name, "; ".join([looked, *unseen]), tuple(found))


def _was_full(patient: Patient) -> Diagnosis | None:
    last = patient.shard.attempts[-1] if patient.shard.attempts else None
    lines = first_lines(_last_said(patient, "scratch_full"))
    subclass = (last.finding or {}).get("subclass") if last is not None else None
    if last is not None and subclass in _FULL:
        lines = (f"attempt {last.number} ended with storage/{subclass}", *lines)
    if not lines:
        return None
    return Diagnosis("scratch_full", "was_full", patient.name, lines, {"folder": patient.folder})


def _disk(disk: Disk) -> str:
    used = disk.used_fraction
    return f"{disk.name} {disk.place}: {'n/a' if used is None else f'{used:.0%}'} used"


def other_results(case: CaseFile) -> Answer:
    """Did resumed work come to another result, in the smoke test or against the reference?"""
    name = "other_results"
    control = (case.run.smoke or {}).get("control") or {}
    found = []
    if control.get("equal") is False:
        found.append(_differs(case, control))
    off = [c for c in case.controls if c.agrees is False]
    for one in off:
        told = one.problem or f"{one.value:.6g}, reference {one.reference:.6g}"
        far = "" if one.sigmas is None else f", {one.sigmas:.1f} sigma away"
        found.append(Diagnosis(name, "off_reference", one.shard, (f"{told}{far}",)))
    if not control and not case.controls:
        return Answer(name, "neither a smoke test nor a control metric is there to compare")
    metric = control.get("metric", "the control metric")
    compared = sum(c.agrees is not None for c in case.controls)
    looked = f"{metric} of the smoke test, and of {plural(compared, 'finished shard')}"
    return Answer(name, looked, tuple(found))


def _differs(case: CaseFile, control: dict[str, object]) -> Diagnosis:
    evidence = [
        f"{control.get('metric')}: undisturbed {control.get('undisturbed')!r}, "
        f"killed and resumed {control.get('resumed')!r}"
    ]
    arrays = [m for m in case.rehearsed if m.kind == "arrays"]
    without = [m.name for m in arrays if m.rng is None]
    if without:
        evidence.append(f"{without[0]} of the smoke test holds no generator's state")
    cause = "generator_not_saved" if without else "state_not_saved"
    return Diagnosis("other_results", cause, None, tuple(evidence))


def _open(case: CaseFile) -> Iterator[Patient]:
    """Shards that are not done: what once ailed a finished one is over."""
    return (p for p in case.patients if p.shard.done < len(p.shard.tasks))


def _last_said(patient: Patient, ailment: str) -> list[tuple[int, str]]:
    """What the last attempt said of it."""
    last = patient.shard.attempts[-1].number if patient.shard.attempts else None
    return [(number, line) for number, line in said(patient, ailment) if number == last]


def _ended_badly(patient: Patient) -> bool:
    return bool(patient.shard.attempts) and patient.shard.attempts[-1].stop in _BAD_ENDS


QUESTIONS: tuple[Callable[[CaseFile], Answer], ...] = (
    corrupt,
    slow_write,
    high_loss,
    ranks_apart,
    resume_fails,
    scratch_full,
    other_results,
)
