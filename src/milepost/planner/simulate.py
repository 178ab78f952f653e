"""Monte Carlo of a job with checkpoints and failures, to hold the formulas against.

Loaded on use only: it needs numpy.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from milepost.errors import ConfigError

_MOST_FAILURES = 100_000
"""A run with more failures than this is not going to end."""

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Job:
    """A job of `chunks` pieces of `interval_s` useful seconds, each saved in `t_ckpt_s`.

    `mtbf_s` is the mean and `shape` the Weibull shape of the time between failures (1:
    exponential; below 1: failures cluster). `lag_s` is how long after its blocking part a
    checkpoint becomes durable. Failures hit work, checkpoint and restore, not the downtime; the
    clock to the next failure starts anew after each.
    """

    interval_s: float
    t_ckpt_s: float
    mtbf_s: float
    chunks: int
    restore_s: float = 0.0
    downtime_s: float = 0.0
    lag_s: float = 0.0
    shape: float = 1.0


@dataclass(frozen=True, slots=True)
class Simulated:
    """Mean overhead (extra seconds per useful second), its 95 % confidence interval, failures."""

    overhead: float
    low: float
    high: float
    failures_per_job: float
    jobs: int


def simulate(job: Job, jobs: int = 2000, seed: int = 1) -> Simulated:
    """Run `jobs` independent copies of `job`; the same seed gives the same numbers.

    A job that does not end within a hundred thousand failures is a ConfigError.
    """
    _check(job, jobs)
    rng = np.random.default_rng(seed)
    useful_s = job.chunks * job.interval_s
    wall_s = np.zeros(jobs)
    saved = np.zeros(jobs)
    failures = np.zeros(jobs)
    active = np.arange(jobs)
    for round_number in range(_MOST_FAILURES):
        restore_s = job.restore_s if round_number else 0.0
        alive_s = _time_to_failure(job, rng, len(active))
        needed_s = restore_s + (job.chunks - saved[active]) * (job.interval_s + job.t_ckpt_s)
        ends = alive_s >= needed_s
        wall_s[active] += np.where(ends, needed_s, alive_s + job.downtime_s)
        hit = active[~ends]
        saved[hit] += _durable_chunks(job, alive_s[~ends] - restore_s, saved[hit])
        failures[hit] += 1
        active = hit
        if not len(active):
            return _summarise(wall_s / useful_s - 1.0, failures)
    raise ConfigError(
        f"{len(active)} of {jobs} simulated jobs had not ended after {_MOST_FAILURES} failures",
        fix="shorten the interval, or state a longer mtbf_h",
    )


def _time_to_failure(job: Job, rng: np.random.Generator, count: int) -> Array:
    scale = job.mtbf_s / math.gamma(1.0 + 1.0 / job.shape)
    drawn: Array = scale * rng.weibull(job.shape, count)
    return drawn


def _durable_chunks(job: Job, worked_s: Array, saved: Array) -> Array:
    """Whole chunks that were durable when the failure came."""
    period = job.interval_s + job.t_ckpt_s
    done: Array = np.floor(np.maximum(worked_s - job.lag_s, 0.0) / period)
    return np.minimum(done, job.chunks - saved)


def _summarise(overhead: Array, failures: Array) -> Simulated:
    mean = float(overhead.mean())
    half = 1.96 * float(overhead.std(ddof=1)) / math.sqrt(len(overhead))
    return Simulated(mean, mean - half, mean + half, float(failures.mean()), len(overhead))


def _check(job: Job, jobs: int) -> None:
    positive = {
        "interval_s": job.interval_s,
        "mtbf_s": job.mtbf_s,
        "shape": job.shape,
        "chunks": job.chunks,
        "jobs": jobs - 1,
    }
    for name, value in positive.items():
        if not (value > 0 and math.isfinite(value)):
            raise ConfigError(f"{name} is {value + (name == 'jobs')}", fix="use a larger number")
    for name in ("t_ckpt_s", "restore_s", "downtime_s", "lag_s"):
        if getattr(job, name) < 0.0:
            raise ConfigError(f"{name} is {getattr(job, name)}", fix="use 0 or more")
