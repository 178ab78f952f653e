"""What a run is, as frozen dataclasses: the configuration after validation and defaults.

Sizes are bytes, times are seconds, paths are relative to the folder of the workflow, as written
by the user. `config/README.md` describes every key for people.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from milepost.model import ArtifactCheck, WorkKind


@dataclass(frozen=True, slots=True)
class Resources:
    cpus: int = 1
    mem_mb: int = 1000
    gpus: int = 0
    runtime_s: int = 3600


@dataclass(frozen=True, slots=True)
class StageSpec:
    """A seam-to-seam piece of a pipeline; `outputs` may hold fields of the member row."""

    name: str
    command: str
    outputs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ResultSpec:
    """Where a task's result (a flat JSON object) is read, and which column names the best row.

    `file` is relative to the task's output folder; `stdout` takes the last line of stdout.
    """

    file: str | None = None
    stdout: bool = False
    best: str | None = None
    best_is: Literal["max", "min"] = "max"


@dataclass(frozen=True, slots=True)
class WorkSpec:
    """The work. `table` is the CSV with one row a task (batch) or a shard (resumable, stages).

    Exactly one of `command`, `function` (package.module:name, batch only) and `stages` is set.
    `inputs` are files and globs whose digests the contract freezes besides the files that the
    command names.
    """

    kind: WorkKind
    table: str
    command: str | None = None
    function: str | None = None
    stages: tuple[StageSpec, ...] = ()
    adapter: str = "command"
    result: ResultSpec = field(default_factory=ResultSpec)
    inputs: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ControlSpec:
    """The control metric: `metric` is a key of the JSON file `file` among the artifacts.

    A resumed smoke slice must give the value of an undisturbed one within `rtol` and `atol`
    (0: equal bits). `reference` and `error` are further keys of that file: the finished run must
    lie within `sigmas` times the error of the reference.
    """

    file: str
    metric: str
    rtol: float = 0.0
    atol: float = 0.0
    reference: str | None = None
    error: str | None = None
    sigmas: float = 3.0


@dataclass(frozen=True, slots=True)
class SmokeSpec:
    """The slice: `tasks` rows of the table, with the fields of `set` overwritten."""

    tasks: int = 4
    set: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ShardsSpec:
    """Exactly one is set: wall seconds a shard should take, how many shards, or tasks in each."""

    target_s: float | None = None
    count: int | None = None
    tasks_per_shard: int | None = None


@dataclass(frozen=True, slots=True)
class EncryptSpec:
    """Where the key is: a file only its owner may read, an environment variable, or the keys of
    the age command (identity: a file; recipient: enough to save)."""

    key_file: str | None = None
    key_env: str | None = None
    age_identity: str | None = None
    age_recipient: str | None = None


@dataclass(frozen=True, slots=True)
class UploaderSpec:
    enable: bool = True
    to: Literal["warm", "cold"] = "warm"
    max_bandwidth_mb_s: float | None = 200.0
    retries: int = 5
    cold_every: int = 1


@dataclass(frozen=True, slots=True)
class CheckpointSpec:
    """`interval_s` is None for `auto`; `contents` are names a generation is expected to hold."""

    interval_s: float | None = None
    rotation: int = 3
    compression: Literal["none", "zstd", "lz4", "auto"] = "auto"
    delta: bool = True
    encrypt: EncryptSpec | None = None
    signal: str = "URG"
    contents: tuple[str, ...] = ()
    uploader: UploaderSpec = field(default_factory=UploaderSpec)
    ttl_days: float | None = 30.0
    gold_every: int | None = 50
    max_gap_s: float | None = None
    when_busy: Literal["skip", "wait"] = "skip"
    staging_limit_mb: float | None = None
    rank_timeout_s: float = 600.0
    allow: tuple[str, ...] = ()
    """Differences that the contract allows at a restore: container, gpu_profile, code."""


@dataclass(frozen=True, slots=True)
class PlannerSpec:
    mode: Literal["auto", "on-demand", "interruptible", "reserved"] = "auto"
    deadline_h: float | None = None
    budget: float | None = None
    mtbf_h: float | None = None
    profiles: str | None = None
    history_days: float | None = 90.0
    size: str | None = None


@dataclass(frozen=True, slots=True)
class SlurmSpec:
    """Where on a cluster the shards go; None is left to the cluster or to the user's profile."""

    account: str | None = None
    partition: str | None = None
    qos: str | None = None
    reservation: str | None = None
    constraint: str | None = None


@dataclass(frozen=True, slots=True)
class TierSpec:
    """Places by name; each is a path or a URL that fsspec speaks. Environment names expand."""

    scratch: str = "work/scratch"
    warm: str | None = "results/warm"
    cold: str | None = None


@dataclass(frozen=True, slots=True)
class RunSpec:
    """One run: a workload under one contract."""

    name: str
    work: WorkSpec
    purpose: str = ""
    software: tuple[str, ...] = ()
    workload: str = "simulation"
    resource_class: str = "cpu"
    needs: tuple[str, ...] = ()
    """Runs whose closeout must say closed before this one starts."""
    resources: Resources = field(default_factory=Resources)
    artifacts: tuple[ArtifactCheck, ...] = ()
    control: ControlSpec | None = None
    smoke: SmokeSpec = field(default_factory=SmokeSpec)
    resume: Literal["fresh", "resume-from-checkpoint", "rerun-failed-shards"] = (
        "rerun-failed-shards"
    )
    stop: Literal["time-limit", "convergence", "all-shards-complete", "smoke-only"] = (
        "all-shards-complete"
    )
    shards: ShardsSpec = field(default_factory=ShardsSpec)
    retry_limit: int = 2
    checkpoint: CheckpointSpec = field(default_factory=CheckpointSpec)
    planner: PlannerSpec = field(default_factory=PlannerSpec)
    signatures: tuple[Mapping[str, Any], ...] = ()
    """Failure signatures of the user; the keys of workflow/policies/failures.yaml."""
    public_note: str | None = None
    license: str | None = None
    """Of the public record: a name of the SPDX list, such as CC-BY-4.0."""
    slurm: SlurmSpec = field(default_factory=SlurmSpec)
    tiers: TierSpec = field(default_factory=TierSpec)
    raw: Mapping[str, Any] = field(default_factory=dict)
    """The run's block as plain data with defaults filled in; what the contract freezes."""
