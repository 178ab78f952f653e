"""The formulas against simulation with the same parameters: within three percent."""

from __future__ import annotations

import pytest

from milepost.errors import ConfigError
from milepost.planner.simulate import Job, simulate
from milepost.planner.theory import exact_interval, exact_overhead, textbook_overhead

HOUR = 3600.0


@pytest.mark.parametrize(
    ("ckpt", "mtbf", "restore", "down", "lag"),
    [
        (300, 24 * HOUR, 600, 0, 0),
        (300, 6 * HOUR, 600, 60, 0),
        (300, 900, 600, 0, 0),
        (5, 24 * HOUR, 10, 60, 0),
        (600, 1.8 * HOUR, 1200, 300, 0),
        (2, 6 * HOUR, 60, 0, 60),
        (0.5, 2 * HOUR, 5, 120, 10),
    ],
)
def test_predicted_overhead_is_that_of_the_simulation(
    ckpt: float, mtbf: float, restore: float, down: float, lag: float
) -> None:
    interval = exact_interval(ckpt, mtbf)
    chunks = max(20, round(200 * mtbf / interval))
    job = Job(interval, ckpt, mtbf, chunks, restore, down, lag)
    found = simulate(job, jobs=1500)
    predicted = exact_overhead(interval, ckpt, mtbf, restore, down, lag)
    assert predicted == pytest.approx(found.overhead, rel=0.03)
    assert (found.high - found.low) / found.overhead < 0.03


def test_the_textbook_value_is_not_within_three_percent() -> None:
    interval = exact_interval(300, 6 * HOUR)
    found = simulate(Job(interval, 300, 6 * HOUR, 5000, 600), jobs=500)
    assert textbook_overhead(300, interval, 6 * HOUR) < 0.85 * found.overhead


@pytest.mark.parametrize("lag", [0, 60, 150])
def test_the_best_interval_does_not_hang_on_the_lag(lag: float) -> None:
    """Blocked 2 s, MTBF 6 h, restore 60 s: the middle one of three is best at any latency."""

    def overhead(interval: float) -> float:
        chunks = round(100 * 6 * HOUR / interval)
        return simulate(Job(interval, 2, 6 * HOUR, chunks, 60, 0, lag), jobs=1500).overhead

    assert overhead(294) < min(overhead(100), overhead(900))


def test_clustered_failures_hardly_move_the_interval() -> None:
    """Weibull shape 0.7, t_ckpt 5 min, MTBF 6 h: the exponential optimum is good there too."""

    def overhead(minutes: float) -> float:
        chunks = round(200 * 360 / minutes)
        return simulate(Job(minutes, 5, 360, chunks, 10, shape=0.7), jobs=800).overhead

    best = overhead(57)
    assert best < min(overhead(20), overhead(160))


def test_one_seed_one_result() -> None:
    job = Job(60, 5, 600, 50, 10)
    assert simulate(job, jobs=50, seed=3) == simulate(job, jobs=50, seed=3)
    assert simulate(job, jobs=50, seed=3) != simulate(job, jobs=50, seed=4)


def test_without_failures_only_checkpoints_cost() -> None:
    found = simulate(Job(100, 1, 1e15, 10), jobs=5)
    assert found.overhead == pytest.approx(0.01)
    assert found.failures_per_job == 0


@pytest.mark.parametrize(
    "job",
    [Job(0, 1, 1, 1), Job(1, -1, 1, 1), Job(1, 1, 0, 1), Job(1, 1, 1, 0), Job(1, 1, 1, 1, shape=0)],
)
def test_impossible_jobs_are_named(job: Job) -> None:
    with pytest.raises(ConfigError):
        simulate(job, jobs=10)
