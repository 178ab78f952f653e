"""When failures come. A process is a small value; times are seconds since the job's start.

`start` draws what a process must remember of each job (its key), `after` the first failure later
than `now_s`. The engine asks anew after each failure, from the moment on at which the job is
started again.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from milepost.errors import ConfigError
from milepost.planner.theory import positive

Array = NDArray[np.float64]

_TOGETHER_S = 1e-3
"""Recorded failures that are no further apart are one."""


class Failures(Protocol):
    """A stream of failures for each of many jobs."""

    @property
    def mtbf_s(self) -> float:
        """Mean time between failures."""

    def start(self, rng: np.random.Generator, count: int) -> Array:
        """A key for each of `count` jobs."""

    def after(self, rng: np.random.Generator, now_s: Array, key: Array) -> Array:
        """The next failure of each job, later than `now_s`."""


@dataclass(frozen=True, slots=True)
class Never:
    """No failures."""

    mtbf_s: float = math.inf

    def start(self, rng: np.random.Generator, count: int) -> Array:
        return np.zeros(count)

    def after(self, rng: np.random.Generator, now_s: Array, key: Array) -> Array:
        return np.full(len(now_s), math.inf)


@dataclass(frozen=True, slots=True)
class Exponential:
    """Failures at a constant rate."""

    mtbf_s: float

    def __post_init__(self) -> None:
        positive("mtbf_s", self.mtbf_s)

    def start(self, rng: np.random.Generator, count: int) -> Array:
        return np.zeros(count)

    def after(self, rng: np.random.Generator, now_s: Array, key: Array) -> Array:
        drawn: Array = rng.standard_exponential(len(now_s))
        drawn *= self.mtbf_s
        drawn += now_s
        return drawn


@dataclass(frozen=True, slots=True)
class Weibull:
    """Weibull times between failures, renewed at each start: with a shape below 1 they cluster."""

    mtbf_s: float
    shape: float

    def __post_init__(self) -> None:
        positive("mtbf_s", self.mtbf_s)
        if not 0.1 <= self.shape <= 20.0:
            raise ConfigError(f"shape is {self.shape:g}", fix="use a number from 0.1 to 20")

    def start(self, rng: np.random.Generator, count: int) -> Array:
        return np.zeros(count)

    def after(self, rng: np.random.Generator, now_s: Array, key: Array) -> Array:
        scale_s = self.mtbf_s / math.gamma(1.0 + 1.0 / self.shape)
        return now_s + scale_s * rng.weibull(self.shape, len(now_s))


@dataclass(frozen=True, slots=True, eq=False)
class Replay:
    """Failures as they were recorded, the record taken as a circle of `span_s` seconds.

    `times_s` rise from 0 on. Each job begins somewhere else in the record (bootstrap), with
    `from_start` all at its begin. A failure that falls into a downtime hits nobody.
    """

    times_s: Array
    span_s: float
    from_start: bool = False

    def __post_init__(self) -> None:
        if len(self.times_s) == 0 or not self.span_s > self.times_s[-1] - self.times_s[0]:
            raise ConfigError(
                f"a trace of {len(self.times_s)} failures in {self.span_s:g} s cannot be replayed",
                fix="use a record of at least two failures at different times",
            )

    @property
    def mtbf_s(self) -> float:
        return self.span_s / len(self.times_s)

    @property
    def gaps_s(self) -> Array:
        """Between one failure and the next, the gap that closes the circle last."""
        found: Array = np.diff(np.concatenate((self.times_s, [self.times_s[0] + self.span_s])))
        return found

    def scaled(self, mtbf_s: float) -> Replay:
        """The same bursts at another mean: all gaps longer or shorter by one factor."""
        factor = positive("mtbf_s", mtbf_s) / self.mtbf_s
        return Replay(self.times_s * factor, self.span_s * factor, self.from_start)

    def start(self, rng: np.random.Generator, count: int) -> Array:
        if self.from_start:
            return np.zeros(count)
        return rng.uniform(0.0, self.span_s, count)

    def after(self, rng: np.random.Generator, now_s: Array, key: Array) -> Array:
        place = now_s + key + _TOGETHER_S
        lap: Array = np.floor((place - self.times_s[0]) / self.span_s) * self.span_s
        index = np.searchsorted(self.times_s, place - lap, side="right")
        is_next_lap = index == len(self.times_s)
        index[is_next_lap] = 0
        found: Array = self.times_s[index] + (lap + self.span_s * is_next_lap) - key
        return found
