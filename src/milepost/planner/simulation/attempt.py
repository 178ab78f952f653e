"""What is done and what is durable after some seconds of an attempt, in closed form.

The number of whole periods is a division, so an attempt costs the same whether it holds one
checkpoint or a million.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from milepost.planner.simulation.job import FarTier, Job
from milepost.planner.simulation.policies import Pace, Seconds

Array = NDArray[np.float64]

_SLACK = 1e-9
"""So much of an interval is not one more piece but a rounding error."""


@dataclass(frozen=True, slots=True)
class Progress:
    """After some seconds of work: useful work done, saves made, and what a restart would find.

    `near_s` and `far_s` are the useful seconds of this attempt that the tiers hold; `far_s` is
    negative infinity where the far tier got no copy. `phase` counts checkpoints since the last
    far one.
    """

    worked_s: Array
    saves: Array
    near_s: Array
    far_s: Array
    phase: Array


class Pattern(Protocol):
    def needed(self, pace: Pace, work_s: Array, phase: Array) -> tuple[Array, Array]:
        """Seconds until `work_s` useful seconds are done and saved, and the number of saves."""

    def after(self, pace: Pace, seconds: Array, work_s: Array, phase: Array) -> Progress:
        """Progress after so many seconds, fewer than `work_s` needs."""


def pattern_of(job: Job) -> Pattern:
    if job.far is None:
        return OneTier(job.t_ckpt_s, job.lag_s)
    return TwoTiers(job.t_ckpt_s, job.lag_s, job.far)


def _pieces(pace: Pace, work_s: Array) -> Array:
    more: Array = np.ceil((work_s - pace.first_s) / pace.later_s - _SLACK)
    return 1.0 + np.maximum(more, 0.0)


@dataclass(frozen=True, slots=True)
class OneTier:
    """Checkpoints of one kind."""

    t_ckpt_s: float
    lag_s: float

    def needed(self, pace: Pace, work_s: Array, phase: Array) -> tuple[Array, Array]:
        saves = _pieces(pace, work_s)
        return work_s + saves * self.t_ckpt_s, saves

    def after(self, pace: Pace, seconds: Array, work_s: Array, phase: Array) -> Progress:
        # Seconds are counted as if the first interval were as long as the later ones.
        period_s = pace.later_s + self.t_ckpt_s
        shift_s = pace.later_s - pace.first_s
        place = seconds + shift_s
        saves = np.maximum(np.floor(place / period_s), 0.0)
        worked = saves * pace.later_s - shift_s
        worked += np.minimum(place - saves * period_s, pace.later_s)
        if self.lag_s == 0.0:
            durable = saves
        else:
            durable = np.maximum(np.floor((place - self.lag_s) / period_s), 0.0)
        near = durable * pace.later_s - shift_s * (durable > 0.0)
        return Progress(worked, saves, near, near, phase)


@dataclass(frozen=True, slots=True)
class TwoTiers:
    """`far.every` near checkpoints, then a far one; `phase` of them were made before the attempt.

    With a far checkpoint that blocks, the first interval is taken as long as the later ones. One
    that is copied in the background is not another save. The last piece of the work goes into
    both tiers at once.
    """

    t_ckpt_s: float
    lag_s: float
    far: FarTier

    def needed(self, pace: Pace, work_s: Array, phase: Array) -> tuple[Array, Array]:
        pace = self._paced(pace)
        near = _pieces(pace, work_s)
        far = np.ceil((near + phase) / self.far.every)
        seconds = work_s + near * self.t_ckpt_s + far * self.far.t_ckpt_s
        return seconds, near + far * self._counted

    def after(self, pace: Pace, seconds: Array, work_s: Array, phase: Array) -> Progress:
        pace = self._paced(pace)
        every, period_s = self.far.every, pace.later_s + self.t_ckpt_s
        round_s = every * period_s + self.far.t_ckpt_s
        shift_s = pace.later_s - pace.first_s
        place = seconds + shift_s + phase * period_s
        rounds, inner = self._count(place, period_s, round_s)
        most = _pieces(pace, work_s) - 1.0
        made = rounds * every + inner - phase
        is_last = made > most
        made = np.clip(made, 0.0, most)
        rest = place - rounds * round_s - inner * period_s
        doing = np.where(inner < every, np.minimum(rest, pace.later_s), 0.0)
        worked = np.where(is_last, work_s, made * pace.later_s - shift_s + doing)
        held_rounds, held_inner = self._count(place - self.lag_s, period_s, round_s)
        held = np.clip(held_rounds * every + held_inner - phase, 0.0, most)
        far_rounds = np.floor((place - self.lag_s - self.far.lag_s) / round_s)
        far = far_rounds * every - phase
        return Progress(
            worked,
            made + rounds * self._counted,
            held * pace.later_s - shift_s * (held > 0.0),
            np.where(far_rounds >= 1.0, far * pace.later_s - shift_s, -np.inf),
            np.where((held > 0.0) | (held_rounds > 0.0), held_inner, phase),
        )

    def _count(self, place: Array, period_s: Seconds, round_s: Seconds) -> tuple[Array, Array]:
        """Whole rounds, and near checkpoints in the present one."""
        rounds = np.maximum(np.floor(place / round_s + _SLACK), 0.0)
        # An attempt that was cut before its first moment of work starts on a boundary.
        inner = np.floor((place - rounds * round_s) / period_s + _SLACK)
        return rounds, np.clip(inner, 0.0, self.far.every)

    @property
    def _counted(self) -> bool:
        return self.far.t_ckpt_s > 0.0

    def _paced(self, pace: Pace) -> Pace:
        return Pace(pace.later_s, pace.later_s) if self._counted else pace
