"""When a simulated job saves: small values that give each attempt its pace.

Within one attempt (from one start to the next interruption) the pace is a first interval and
a constant later one, so that what is durable at any moment has a closed form.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Seconds = float | Array


@dataclass(frozen=True, slots=True)
class View:
    """What a policy knows at the start of an attempt, for each job.

    `left_s`: until the last checkpoint of the allocation must be durable (infinite without a
    walltime). `losses`: interruptions that cost work so far, in `running_s` seconds at risk.
    `now_s`: since the job's start.
    """

    left_s: Seconds
    losses: Array
    running_s: Array
    now_s: Array
    ids: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Pace:
    """Useful seconds before the first checkpoint, and between later ones."""

    first_s: Seconds
    later_s: Seconds


class Policy(Protocol):
    """`saves_last`: a last checkpoint is made before the allocation ends."""

    @property
    def saves_last(self) -> bool: ...

    def pace(self, view: View) -> Pace: ...


@dataclass(frozen=True, slots=True)
class Every:
    """The same interval always."""

    interval_s: float
    saves_last: bool = True

    def pace(self, view: View) -> Pace:
        return Pace(self.interval_s, self.interval_s)


@dataclass(frozen=True, slots=True, eq=False)
class Sweep:
    """Another interval for each job: many intervals against the same failures in one pass."""

    intervals_s: Array
    saves_last: bool = True

    def pace(self, view: View) -> Pace:
        interval_s = self.intervals_s[view.ids % len(self.intervals_s)]
        return Pace(interval_s, interval_s)


@dataclass(frozen=True, slots=True)
class Adaptive:
    """What the runner does: the optimum for the measured cost and the MTBF seen so far.

    The MTBF is estimated anew at each start, as one over the mean of the posterior rate: from
    `believed_s`, which is worth so many failures, and the interruptions of the job itself. The first interval of an attempt, before a checkpoint was measured, is `first_s`
    (None: the optimum). `most_s` bounds the interval, and `least_s` (a save's time to become
    durable) does so from below.
    """

    t_ckpt_s: float
    believed_s: float
    worth: float = 1.0
    first_s: float | None = None
    least_s: float = 0.0
    most_s: float = math.inf
    saves_last: bool = True

    def pace(self, view: View) -> Pace:
        mtbf_s = (self.worth * self.believed_s + view.running_s) / (self.worth + view.losses)
        best_s = exact_intervals(self.t_ckpt_s, mtbf_s)
        later_s = np.clip(best_s, self.least_s, max(self.most_s, self.least_s))
        return Pace(later_s if self.first_s is None else self.first_s, later_s)


@dataclass(frozen=True, slots=True)
class EvenSplit:
    """Cut what is left of the allocation evenly into about as many pieces as `every` would.

    Without a walltime it is `every` itself. `never_longer`: no piece is longer than its interval.
    """

    every: Policy
    t_ckpt_s: float
    never_longer: bool = False
    saves_last: bool = True

    def pace(self, view: View) -> Pace:
        pace = self.every.pace(view)
        if np.all(np.isinf(view.left_s)):
            return pace
        pieces = view.left_s / (pace.later_s + self.t_ckpt_s)
        whole = np.ceil(pieces - 1e-9) if self.never_longer else np.round(pieces)
        even_s = view.left_s / np.maximum(whole, 1.0) - self.t_ckpt_s
        return Pace(even_s, even_s)


def exact_intervals(t_ckpt_s: float, mtbf_s: Array) -> Array:
    """`theory.exact_interval` for an array: one Newton step from Daly's series (or from M)."""
    half = t_ckpt_s / (2.0 * mtbf_s)
    root = np.sqrt(half)
    daly = 2.0 * root * (1.0 + root / 3.0 + half / 9.0) - 2.0 * half
    x = np.where(half < 1.0, daly, 1.0)
    rest = np.exp(-x - 2.0 * half)
    found: Array = mtbf_s * (x - (x - 1.0 + rest) / (1.0 - rest))
    return found
