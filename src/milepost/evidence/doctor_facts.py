"""What the doctor looks at: checkpoints, logs, metrics and disks of a run. Reads only."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from milepost.checkpoint.audit import read_audit
from milepost.checkpoint.manifest import Manifest
from milepost.checkpoint.ranks_files import MEETING_PREFIX
from milepost.checkpoint.search import MAX_RESTORES
from milepost.checkpoint.store import CheckpointStore
from milepost.checkpoint.verify import verify_generation
from milepost.errors import DataError, MilepostError
from milepost.evidence.control import Control, controls
from milepost.evidence.gather import gather
from milepost.evidence.types import RunEvidence, ShardEvidence
from milepost.paths import RunPaths

TAIL_BYTES = 64 << 10
"""So much of the end of each log is read."""
_SAMPLE = re.compile(r"^(milepost_\w+)(?:\{[^}]*\})? (\S+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Generation:
    """A folder with the name of a generation; `manifest` is None when it cannot be believed."""

    name: str
    manifest: Manifest | None
    damages: tuple[str, ...]
    restores: int = 0

    @property
    def is_quarantined(self) -> bool:
        return self.restores >= MAX_RESTORES


@dataclass(frozen=True, slots=True)
class Checkpoints:
    """The generations in one place, newest first; `meetings` are of ranks that did not leave."""

    tier: str
    folder: str
    generations: tuple[Generation, ...]
    audit: tuple[str, ...] = ()
    meetings: tuple[str, ...] = ()
    read_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Patient:
    """One shard: what the evidence says, its checkpoints by tier, the ends of its last attempt's
    logs if it is not done, and the metrics of its last process."""

    shard: ShardEvidence
    places: tuple[Checkpoints, ...]
    logs: Mapping[int, str]
    metrics: Mapping[str, float]

    @property
    def name(self) -> str:
        return self.shard.name

    @property
    def folder(self) -> str:
        return self.places[0].folder if self.places else "FOLDER"

    def generations(self) -> Iterator[Generation]:
        for place in self.places:
            yield from place.generations


@dataclass(frozen=True, slots=True)
class Disk:
    """Room where something of the run is kept; `problem` when it cannot be looked at."""

    name: str
    place: str
    used_bytes: int | None = None
    total_bytes: int | None = None
    problem: str | None = None

    @property
    def used_fraction(self) -> float | None:
        if self.used_bytes is None or not self.total_bytes:
            return None
        return self.used_bytes / self.total_bytes


@dataclass(frozen=True, slots=True)
class CaseFile:
    """Everything about a run that a diagnosis may need."""

    run: RunEvidence
    patients: tuple[Patient, ...]
    disks: tuple[Disk, ...]
    controls: tuple[Control, ...]
    rehearsed: tuple[Manifest, ...]
    """Newest generations of the smoke test's slice."""
    deep: bool


def examine(paths: RunPaths, *, deep: bool = True) -> CaseFile:
    """Look at a run. `deep` reads and digests every byte of its checkpoints, else only sizes."""
    run = gather(paths)
    patients = tuple(_patient(paths, run, shard, deep) for shard in run.shards)
    return CaseFile(
        run=run,
        patients=patients,
        disks=tuple(_disks(paths, run)),
        controls=tuple(controls(run)),
        rehearsed=tuple(_rehearsed(paths, run)),
        deep=deep,
    )


def _patient(paths: RunPaths, run: RunEvidence, shard: ShardEvidence, deep: bool) -> Patient:
    places = (_checkpoints(tier, folder, deep) for tier, folder in _folders(run, shard))
    return Patient(
        shard,
        tuple(place for place in places if place is not None),
        _logs(paths.shard(shard.name).attempts, shard),
        _metrics(paths.metrics(shard.name)),
    )


def _folders(run: RunEvidence, shard: ShardEvidence) -> Iterator[tuple[str, Path]]:
    """Where this shard's generations lie: as the contract says, else as the journal does."""
    if run.spec is None:
        return
    written = next((c.path for c in reversed(shard.checkpoints) if c.path), None)
    for tier, place in (("scratch", run.spec.tiers.scratch), ("warm", run.spec.tiers.warm)):
        if place is None or "://" in place:
            continue
        below = Path(os.path.expandvars(place), run.paths.run, shard.name, "ckpt")
        folder = run.paths.root / below
        is_elsewhere = tier == "scratch" and written is not None and not folder.is_dir()
        yield tier, Path(str(written)).parent if is_elsewhere else folder


def _checkpoints(tier: str, folder: Path, deep: bool) -> Checkpoints | None:
    if not folder.is_dir():
        return None
    store = CheckpointStore(folder)
    # what an upload cut short left in a tier has no OK and never existed
    names = store.names() if tier == "scratch" else store.generations()
    counts = store.restore_counts()
    known: set[str] = set()
    found = tuple(_generation(store, name, deep, counts.get(name, 0), known) for name in names)
    sizes = [g.manifest.size_bytes for g in found if g.manifest is not None]
    return Checkpoints(
        tier,
        str(folder),
        found,
        _audit(folder) if tier == "scratch" else (),
        tuple(sorted(p.name for p in folder.glob(f"{MEETING_PREFIX}*"))),
        sum(sizes) if deep else 0,
    )


def _generation(
    store: CheckpointStore, name: str, deep: bool, restores: int, known: set[str]
) -> Generation:
    """`known` are generations that were read to their end as bases of others, and are intact."""
    is_deep = deep and name not in known
    damages = verify_generation(store, name, deep=is_deep, trusted=frozenset(known))
    told = tuple(str(damage) for damage in damages)
    try:
        manifest = store.manifest(name)
    except MilepostError:
        return Generation(name, None, told, restores)
    if not damages:
        known |= {name, *manifest.bases}
    return Generation(name, manifest, told, restores)


def _audit(folder: Path) -> tuple[str, ...]:
    try:
        return read_audit(folder).problems
    except MilepostError as error:
        return (str(error),)


def _logs(folder: Path, shard: ShardEvidence) -> dict[int, str]:
    """The last attempt -> the end of what it said, in all its slots; nothing of a shard that is
    done."""
    if shard.done == len(shard.tasks) or not shard.attempts:
        return {}
    number = shard.attempts[-1].number
    files = [*folder.glob(f"{number}.log"), *sorted(folder.glob(f"{number}.*.log"))]
    return {number: "".join(_tail(path) for path in files)}


def _tail(path: Path) -> str:
    with path.open("rb") as stream:
        stream.seek(max(0, path.stat().st_size - TAIL_BYTES))
        return stream.read().decode("utf-8", "replace")


def _metrics(path: Path) -> dict[str, float]:
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    return {name: float(value) for name, value in _SAMPLE.findall(text)}


def _disks(paths: RunPaths, run: RunEvidence) -> Iterator[Disk]:
    yield _disk("work", paths.work)
    if run.spec is None:
        return
    for name, place in (("scratch", run.spec.tiers.scratch), ("warm", run.spec.tiers.warm)):
        expanded = None if place is None else os.path.expandvars(place)
        if expanded is None:
            continue
        if "://" in expanded or "$" in expanded:
            yield Disk(name, expanded, problem="cannot be looked at from here")
        else:
            yield _disk(name, paths.root / expanded)


def _disk(name: str, folder: Path) -> Disk:
    place = folder.absolute()
    while not place.exists():
        place = place.parent
    usage = shutil.disk_usage(place)
    return Disk(name, str(folder), usage.total - usage.free, usage.total)


def _rehearsed(paths: RunPaths, run: RunEvidence) -> Iterator[Manifest]:
    if run.contract is None:
        return
    root = paths.smoke_place(str(run.contract["digest"]))
    for folder in sorted(root.glob(f"undisturbed/scratch/{paths.run}/*/ckpt")):
        store = CheckpointStore(folder)
        for name in store.generations()[:1]:
            try:
                yield store.manifest(name)
            except DataError:
                continue
