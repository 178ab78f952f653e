"""What many simulated runs of one job have in common: means, how sure they are, and the spread."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Runs:
    """One value for each simulated run; seconds and counts.

    wall = work + lost + checkpoints + restores + waiting. `lost_s` is work that was done and done
    again, `waiting_s` downtime and requeue delays. `saved_preemptions` cost no work.
    """

    work_s: float
    wall_s: Array
    lost_s: Array
    restore_s: Array
    waiting_s: Array
    checkpoints: Array
    failures: Array
    preemptions: Array
    saved_preemptions: Array
    allocations: Array

    @property
    def checkpoint_s(self) -> Array:
        """Seconds at a standstill for checkpoints, also for those that were cut off."""
        rest: Array = self.wall_s - self.work_s - self.lost_s - self.restore_s - self.waiting_s
        return rest

    @property
    def overhead(self) -> Array:
        found: Array = self.wall_s / self.work_s - 1.0
        return found

    @property
    def useful_share(self) -> Array:
        found: Array = self.work_s / self.wall_s
        return found

    @property
    def paid_s(self) -> Array:
        """Seconds in allocations."""
        found: Array = self.wall_s - self.waiting_s
        return found

    @property
    def events(self) -> int:
        """Interruptions in all runs: failures, preemptions and ends of allocations."""
        return int((self.failures + self.preemptions + self.allocations - 1).sum())


@dataclass(frozen=True, slots=True)
class Estimate:
    """Mean, its confidence interval, and the 5 % and 95 % quantiles of single runs."""

    mean: float
    low: float
    high: float
    p05: float
    p95: float


@dataclass(frozen=True, slots=True)
class Outcome:
    """Estimates over `jobs` runs, with confidence `level`; `cost` is None without a price."""

    jobs: int
    level: float
    makespan_s: Estimate
    overhead: Estimate
    useful_share: Estimate
    lost_s: Estimate
    checkpoint_s: Estimate
    restore_s: Estimate
    waiting_s: Estimate
    checkpoints: Estimate
    failures: Estimate
    preemptions: Estimate
    saved_preemptions: Estimate
    allocations: Estimate
    cost: Estimate | None


def summarise(runs: Runs, price_per_h: float | None = None, level: float = 0.95) -> Outcome:
    """Estimates of `runs`. `price_per_h` is for the whole job, per hour in an allocation."""
    found = {
        name: estimate(getattr(runs, "wall_s" if name == "makespan_s" else name), level)
        for name in (field.name for field in fields(Outcome))
        if name not in ("jobs", "level", "cost")
    }
    cost = None if price_per_h is None else estimate(runs.paid_s * (price_per_h / 3600.0), level)
    return Outcome(jobs=len(runs.wall_s), level=level, cost=cost, **found)


def estimate(values: Array, level: float = 0.95) -> Estimate:
    """Mean and spread; Student's t for the interval of the mean. One value has no interval but
    itself only where all are known to be equal: with a single run the interval is infinite."""
    from scipy.special import stdtrit

    count, mean = len(values), float(values.mean())
    half = math.inf
    if count > 1:
        error = float(values.std(ddof=1)) / math.sqrt(count)
        half = error * float(stdtrit(count - 1, 0.5 + level / 2.0))
    p05, p95 = np.quantile(values, (0.05, 0.95))
    return Estimate(mean, mean - half, mean + half, float(p05), float(p95))
