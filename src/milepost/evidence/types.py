"""What was observed about a run: frozen facts, no judgement.

None means that something was not measured or is not there; it is never 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from milepost.paths import RunPaths
from milepost.placement import find_record

if TYPE_CHECKING:
    from milepost.config.spec import RunSpec
    from milepost.lease import Holder


@dataclass(frozen=True, slots=True)
class TaskProblem:
    """A task that is not done, and why: its last row says failed, or an artifact is not as recorded.

    `artifact` is None when the process itself failed; `finding` is the JSON of a Finding.
    """

    key: str
    what: str
    artifact: str | None = None
    finding: Mapping[str, Any] | None = None
    exit: int | None = None


@dataclass(frozen=True, slots=True)
class AttemptEvidence:
    """One attempt as its runner recorded it; `ended` is None when it never said good-bye.

    `done` counts the shard's tasks that were done when it ended. `running`: it holds the lease
    and cannot be told dead.
    """

    number: int
    started: str | None
    ended: str | None
    exit_code: int | None
    stop: str | None
    finding: Mapping[str, Any] | None
    useful_s: float | None
    checkpoint_s: float | None
    lost_s: float | None
    cpu_s: float | None
    max_rss_bytes: int | None
    slurm_job_id: str | None
    restored: Mapping[str, Any] | None
    done: int | None = None
    running: bool = False
    last_sign: str | None = None
    """Time of the attempt's last row in the journal: when it was last seen at work."""
    host: str | None = None


@dataclass(frozen=True, slots=True)
class CheckpointEvidence:
    """A committed generation: a row of the journal."""

    generation: str
    time: str
    step: int | None
    size_bytes: int | None
    blocked_s: float | None
    durable_s: float | None
    path: str | None


@dataclass(frozen=True, slots=True)
class QueueWait:
    """How long an execution of a Slurm job waited, in seconds since the epoch.

    Until `eligible_s` it was held, or waited for another job or for its begin time; from then on
    for priority and resources. None where the accounting does not say.
    """

    job_id: str
    submit_s: float
    eligible_s: float | None
    start_s: float

    @property
    def held_s(self) -> float | None:
        return None if self.eligible_s is None else max(0.0, self.eligible_s - self.submit_s)

    @property
    def pending_s(self) -> float | None:
        return None if self.eligible_s is None else max(0.0, self.start_s - self.eligible_s)


@dataclass(frozen=True, slots=True)
class ShardEvidence:
    """Everything on disk about one shard of the frozen table.

    `done` counts tasks whose artifacts are there as recorded; `missing` holds the keys of tasks
    without a terminal row; `strays` counts those of them that have artifacts all the same.
    `in_table` is False when the shard table is gone and the tasks are those of the journal.
    `elsewhere` names, for tasks that were done under another shard, that shard. `holder` is
    whoever has the lease. `notes` are facts a person must see, such as a torn row;
    `lost` names files that should be there and could not be read.
    """

    name: str
    tasks: tuple[str, ...]
    done: int
    failed: tuple[TaskProblem, ...] = ()
    damaged: tuple[TaskProblem, ...] = ()
    missing: tuple[str, ...] = ()
    elsewhere: Mapping[str, str] = field(default_factory=dict)
    strays: int = 0
    in_table: bool = True
    started: bool = False
    rows: int = 0
    damaged_rows: int = 0
    attempts: tuple[AttemptEvidence, ...] = ()
    checkpoints: tuple[CheckpointEvidence, ...] = ()
    task_s: float | None = None
    holder: Holder | None = None
    upload: Mapping[str, Any] | None = None
    marker: bool = False
    notes: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RunEvidence:
    """Everything on disk about a run; a part that is not there is None.

    `table` is the shard table that was read: the frozen one, or the published one without it.
    """

    paths: RunPaths
    spec: RunSpec | None
    contract: Mapping[str, Any] | None
    submission: Mapping[str, Any] | None
    smoke: Mapping[str, Any] | None
    plan: Mapping[str, Any] | None
    table: Path | None
    shards: tuple[ShardEvidence, ...]
    deep: bool = False
    notes: tuple[str, ...] = field(default=())
    older: tuple[ShardEvidence, ...] = ()
    """Shards that were cut before and are in the table no more: their attempts took time, too."""
    places: Mapping[str, tuple[str | None, str | None]] = field(default_factory=dict)
    """Profile and mode of each shard, where the plan has shards in several places."""

    @property
    def every_shard(self) -> tuple[ShardEvidence, ...]:
        """Those of the table, then those of an older cut."""
        return (*self.shards, *self.older)

    def placed(self, shard: str) -> Mapping[str, Any] | None:
        """What the plan, or else the submission, says about the place of a shard."""
        place = self.places.get(shard)
        if place is None:
            return None
        planned = find_record((self.plan or {}).get("placement"), place)
        return planned or find_record((self.submission or {}).get("placements"), place)
