"""What crosses module borders: enums and frozen dataclasses, no behaviour beyond conversion."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class WorkKind(StrEnum):
    """How a shard does its work."""

    BATCH = "batch"
    RESUMABLE = "resumable"
    STAGES = "stages"


class FailureClass(StrEnum):
    """The first question about a failure: whose fault is it?"""

    SCHEDULER = "scheduler"
    RUNTIME = "runtime"
    DATA = "data"
    STORAGE = "storage"
    NONE = "none"


class Action(StrEnum):
    """What to do about a failure; the same words as in workflow/policies/failures.yaml."""

    NONE = "none"
    WAIT = "wait"
    RETRY_SAME = "retry_same"
    RETRY_MORE_MEMORY = "retry_more_memory"
    LONGER_WALLTIME = "longer_walltime"
    RESUME_FROM_CHECKPOINT = "resume_from_checkpoint"
    FIX_NO_RETRY = "fix_no_retry"


class Verdict(StrEnum):
    """What follows from the three witnesses about one shard."""

    DONE = "DONE"
    PENDING = "PENDING"
    RUNNING = "RUNNING"
    INTERRUPTED = "INTERRUPTED"
    FAILED = "FAILED"
    SUSPECT = "SUSPECT"
    UNKNOWN = "UNKNOWN"


@dataclass(frozen=True, slots=True)
class Finding:
    """A failure class with the lines that prove it.

    `confidence` is between 0 and 1; `evidence` holds lines of the log or facts such as
    `exit code 137`.
    """

    failure_class: FailureClass
    subclass: str
    action: Action
    evidence: tuple[str, ...] = ()
    confidence: float = 0.0

    def as_json(self) -> dict[str, Any]:
        return {
            "class": str(self.failure_class),
            "subclass": self.subclass,
            "action": str(self.action),
            "evidence": list(self.evidence),
            "confidence": round(self.confidence, 3),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Finding:
        return cls(
            FailureClass(value["class"]),
            value["subclass"],
            Action(value["action"]),
            tuple(value["evidence"]),
            value["confidence"],
        )


@dataclass(frozen=True, slots=True)
class Task:
    """The smallest idempotent unit: a row of the task table.

    `key` is the hash of `params`; `line` is the line of the table (1 is the header).
    """

    key: str
    params: Mapping[str, str]
    line: int


@dataclass(frozen=True, slots=True)
class Shard:
    """What Snakemake schedules as one job: `tasks` in the order in which they are run.

    `profile` and `mode` say where the plan placed it; None: nowhere in particular.
    """

    name: str
    tasks: tuple[Task, ...]
    profile: str | None = None
    mode: str | None = None


@dataclass(frozen=True, slots=True)
class FileProof:
    """A file's size and algorithm-tagged digest, such as `blake3:1f3a…` or `sha256:…`."""

    path: str
    size_bytes: int
    digest: str

    def as_json(self) -> dict[str, Any]:
        return {"path": self.path, "bytes": self.size_bytes, "digest": self.digest}


@dataclass(frozen=True, slots=True)
class ArtifactCheck:
    """An expected artifact: a path below the task's output folder and how it is verified."""

    path: str
    check: str
    options: Mapping[str, Any] = field(default_factory=dict)
