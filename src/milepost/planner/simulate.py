"""Monte Carlo of a job with checkpoints and interruptions, to hold formulas and policies against.

Loaded on use only: it needs numpy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields

import numpy as np

from milepost.errors import ConfigError
from milepost.planner.simulation.failures import Failures
from milepost.planner.simulation.fleet import Fleet, State
from milepost.planner.simulation.job import Job
from milepost.planner.simulation.outcome import Runs
from milepost.planner.simulation.policies import Policy

BATCH = 4096
"""So many runs are played together: their arrays stay in the processor's cache."""

_MOST_ATTEMPTS = 1_000_000
"""A run with more attempts than this is not going to end."""

_LOOK = 1000
"""Attempts after which a run that gets nowhere is noticed, and between reports of progress."""


def simulate(
    job: Job,
    failures: Failures,
    policy: Policy,
    jobs: int = 2000,
    seed: int = 1,
    progress: Callable[[float], None] | None = None,
) -> Runs:
    """Play `jobs` independent runs of `job`; the same seed gives the same numbers.

    `progress` is told the share that is done, now and then. A job that is not going to end is
    a ConfigError.
    """
    job.check()
    if jobs < 1:
        raise ConfigError(f"jobs is {jobs}", fix="use 1 or more")
    ended = []
    seeds = np.random.SeedSequence(seed).spawn(-(-jobs // BATCH))
    for number, own in enumerate(seeds):
        first = number * BATCH
        count = min(BATCH, jobs - first)
        fleet = Fleet(job, failures, policy, count, first, np.random.default_rng(own))

        def tell(share: float, first: int = first, count: int = count) -> None:
            if progress is not None:
                progress((first + share * count) / jobs)

        ended += list(_play(fleet, count, tell))
    return _collect(job, jobs, ended)


def _play(fleet: Fleet, count: int, tell: Callable[[float], None]) -> Iterator[State]:
    left = count
    for attempt in range(1, _MOST_ATTEMPTS + 1):
        done = fleet.step()
        if done is not None:
            left -= len(done.ids)
            yield done
            if left == 0:
                tell(1.0)
                return
        if attempt % _LOOK == 0:
            share = 1.0 - left / count * (1.0 - fleet.saved_share)
            if share * _MOST_ATTEMPTS < attempt:
                raise _hopeless(left, attempt)
            tell(share)
    raise _hopeless(left, _MOST_ATTEMPTS)


def _hopeless(left: int, attempts: int) -> ConfigError:
    return ConfigError(
        f"{left} simulated runs are not going to end: {attempts} attempts brought them nowhere",
        fix="shorten the interval, or state a longer MTBF",
    )


def _collect(job: Job, jobs: int, ended: list[State]) -> Runs:
    """Values of all runs in the order of their numbers."""
    ids = np.concatenate([one.ids for one in ended])
    found = {}
    for field in fields(Runs):
        if field.name != "work_s":
            name = "now_s" if field.name == "wall_s" else field.name
            values = np.empty(jobs)
            values[ids] = np.concatenate([getattr(one, name) for one in ended])
            found[field.name] = values
    return Runs(job.work_s, **found)
