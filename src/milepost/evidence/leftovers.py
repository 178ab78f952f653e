"""What a run leaves behind: checkpoints in scratch, private folders, leases and jobs outside its
shard table."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from milepost.checkpoint.manifest import is_name
from milepost.checkpoint.retention import Retention
from milepost.config.spec import CheckpointSpec
from milepost.errors import DataError
from milepost.evidence.types import RunEvidence
from milepost.lease import read_holder
from milepost.slurm.jobs import FolderJob

_DRAFT = re.compile(r"\.draft-.+")


@dataclass(frozen=True, slots=True)
class Leftovers:
    """`scratch` is the folder of the run in the scratch tier as it is configured.

    `is_visible` is False when that cannot be looked at from here: it lies on the nodes.
    `generations` are complete checkpoints, `size_bytes` is theirs. `surplus` are folders that
    hold more of them than the rotation keeps, `drafts` those of writers that died, `private`
    output folders of ended attempts at finished shards. `busy` says who still works, waits or
    holds a lease beside the shards of the table.
    """

    scratch: str
    is_visible: bool
    generations: int = 0
    size_bytes: int = 0
    surplus: tuple[str, ...] = ()
    drafts: tuple[str, ...] = ()
    private: tuple[str, ...] = ()
    busy: tuple[str, ...] = ()

    @property
    def unwanted(self) -> tuple[str, ...]:
        """Everything that nobody keeps on purpose."""
        return (*self.surplus, *self.drafts, *self.private)


def leftovers(run: RunEvidence, jobs: Mapping[str, FolderJob]) -> Leftovers | None:
    """Look at what is left; None when the contract that names the tiers is gone.

    `jobs` are those that wait or run, by shard.
    """
    if run.spec is None:
        return None
    tier = run.spec.tiers.scratch
    root = run.paths.root / os.path.expandvars(tier)
    folder = root / run.paths.run
    stores = sorted(folder.glob("*/ckpt")) if "$" not in tier else []
    kept = {store: _generations(store) for store in stores}
    rules = _rules(run.spec.checkpoint)
    finished = {shard.name for shard in run.shards if shard.marker}
    return Leftovers(
        scratch=f"{tier.rstrip('/')}/{run.paths.run}",
        is_visible="$" not in tier and root.is_dir(),
        generations=sum(map(len, kept.values())),
        size_bytes=sum(_size(store / name) for store, names in kept.items() for name in names),
        surplus=tuple(str(s) for s, n in kept.items() if _is_surplus(s, n, rules)),
        drafts=tuple(str(p) for s in stores for p in _entries(s) if _DRAFT.fullmatch(p.name)),
        private=tuple(_private(run, finished)),
        busy=tuple(_busy(run, {s.name for s in run.shards}, jobs)),
    )


def _rules(spec: CheckpointSpec) -> Retention:
    """Without the age: a run that is closed does not become open while its gold grows old."""
    return Retention(spec.rotation, spec.gold_every, None, spec.max_gap_s)


def _generations(store: Path) -> list[str]:
    return sorted(p.name for p in _entries(store) if is_name(p.name))


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []  # rotation removed it just now


def _is_surplus(store: Path, names: Collection[str], rules: Retention) -> bool:
    """Would pruning remove anything here? Only a folder that may hold too many is looked into."""
    if len(names) <= rules.rotation:
        return False
    from milepost.checkpoint.prune import survey
    from milepost.checkpoint.retention import plan_prune
    from milepost.checkpoint.store import CheckpointStore

    return bool(plan_prune(survey(CheckpointStore(store)), rules, 0.0))


def _size(folder: Path) -> int:
    total = 0
    for place, _, files in os.walk(folder):
        for name in files:
            try:
                total += os.stat(f"{place}/{name}").st_size
            except FileNotFoundError:
                continue  # rotation removed it just now
    return total


def _private(run: RunEvidence, finished: Collection[str]) -> Iterator[str]:
    """Folders with something in them, of shards whose artifacts are published and verified."""
    for name in sorted(finished):
        for folder in _entries(run.paths.shard(name).live / "out"):
            if folder.name.isdigit() and _entries(folder):
                yield str(folder)


def _busy(
    run: RunEvidence, in_table: Collection[str], jobs: Mapping[str, FolderJob]
) -> Iterable[str]:
    places = {p.name: p for p in _entries(run.paths.work / "shards") if p.name not in in_table}
    places["the submission"] = run.paths.work / "submit"
    for name, place in places.items():
        what = name if place.name == "submit" else f"shard {name}, not in the table,"
        try:
            holder = read_holder(place / "lease.json")
        except (DataError, ValueError) as error:
            yield f"{what} has a lease that cannot be read: {error}"
            continue
        if holder is not None and holder.is_alive() is not False:
            yield f"{what} is held by {holder.describe()}"
    for shard, job in jobs.items():
        if shard not in in_table:
            yield f"job {job.job_id} of shard {shard}, not in the table, is {job.state}"
