"""What is simulated: a job, its checkpoints, and what it runs on. Seconds throughout."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any

from milepost.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Walltime:
    """Allocations of `length_s`; after each the job waits `requeue_s` for the next one.

    `margin_s` before the end stay unused. `in_place`: a failure leaves the allocation, which goes
    on with its remaining time; otherwise the job waits its downtime for a new one.
    """

    length_s: float
    requeue_s: float = 0.0
    margin_s: float = 0.0
    in_place: bool = False


@dataclass(frozen=True, slots=True)
class Preemption:
    """Preemptions at a constant rate, each announced `notice_s` before.

    A forced checkpoint begins a step (`step_s`) after the notice and takes a log-normal time
    with median `median_s` and 95 % quantile `p95_s`; when it fits, no work is lost. The job
    then waits `requeue_s`.
    """

    mtbf_s: float
    notice_s: float = 0.0
    median_s: float = 0.0
    p95_s: float = 0.0
    step_s: float = 0.0
    requeue_s: float = 0.0


@dataclass(frozen=True, slots=True)
class FarTier:
    """Every `every`-th checkpoint also goes to a tier that outlives the node.

    The work stands still for `t_ckpt_s` (0: the upload is in the background), and the copy is
    durable `lag_s` later than the near one. `node_loss` is the share of failures that take the
    near tier along; a start from the far one takes `restore_s`.
    """

    every: int = 1
    t_ckpt_s: float = 0.0
    lag_s: float = 0.0
    node_loss: float = 1.0
    restore_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Job:
    """`work_s` useful seconds, saved in pieces; the last piece is saved as well.

    The work stands still for `t_ckpt_s` at each checkpoint, which is durable `lag_s` after
    that. A failure costs `downtime_s` and then `restore_s`; failures hit work, checkpoint and
    restore, not the downtime.
    """

    work_s: float
    t_ckpt_s: float
    restore_s: float = 0.0
    downtime_s: float = 0.0
    lag_s: float = 0.0
    walltime: Walltime | None = None
    preemption: Preemption | None = None
    far: FarTier | None = None

    def check(self) -> None:
        """A ConfigError that names the first impossible number."""
        _positive(self, "work_s")
        _not_negative(self, "t_ckpt_s", "restore_s", "downtime_s", "lag_s")
        if self.walltime is not None:
            _positive(self.walltime, "length_s")
            _not_negative(self.walltime, "requeue_s", "margin_s")
            self._check_room(self.walltime)
        if self.preemption is not None:
            _positive(self.preemption, "mtbf_s")
            _not_negative(self.preemption, *(f.name for f in fields(Preemption)))
        if self.far is not None:
            _positive(self.far, "every")
            _not_negative(self.far, "t_ckpt_s", "lag_s", "restore_s", "node_loss")
            if self.far.node_loss > 1.0:
                raise ConfigError(f"node_loss is {self.far.node_loss:g}", fix="use at most 1")

    @property
    def reserve_s(self) -> float:
        """What is kept free before the end of an allocation, besides the last checkpoint."""
        return 0.0 if self.walltime is None else self.walltime.margin_s + self.lag_s

    @property
    def slowest_restore_s(self) -> float:
        return max(self.restore_s, 0.0 if self.far is None else self.far.restore_s)

    def _check_room(self, walltime: Walltime) -> None:
        room_s = walltime.length_s - self.reserve_s - self.t_ckpt_s - self.slowest_restore_s
        if room_s <= 0.0:
            raise ConfigError(
                f"a walltime of {walltime.length_s:g} s leaves no time for work beside a restart, "
                f"a checkpoint and a margin of {walltime.margin_s:g} s",
                fix="use a longer walltime",
            )


def _positive(owner: Any, name: str) -> None:
    value = getattr(owner, name)
    if not (value > 0.0 and math.isfinite(value)):
        raise ConfigError(f"{name} is {value:g}", fix="use a number above 0")


def _not_negative(owner: Any, *names: str) -> None:
    for name in names:
        value = getattr(owner, name)
        if not (value >= 0.0 and math.isfinite(value)):
            raise ConfigError(f"{name} is {value:g}", fix="use 0 or more")
