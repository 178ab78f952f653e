"""The rate of failures from few failures: published factors, priors, size of jobs, bursts."""

from __future__ import annotations

import math

import numpy as np
import pytest

from milepost.planner.levels import job_mtbf, useful_ratio
from milepost.planner.rate import (
    Counts,
    chi2_interval,
    gamma_posterior,
    posterior,
    zero_failure_bound,
)

DAY = 86400.0
HOUR = 3600.0


@pytest.mark.parametrize(
    ("failures", "low", "high"),
    [
        (1, 0.2108, 19.4957),
        (2, 0.3177, 5.6281),
        (3, 0.3869, 3.6689),
        (5, 0.4756, 2.5379),
        (10, 0.5895, 1.8432),
    ],
)
def test_confidence_factors(failures: int, low: float, high: float) -> None:
    """Factors of S/n at 90 %."""
    found = chi2_interval(failures, 1000.0)
    assert found[0] / (1000 / failures) == pytest.approx(low, abs=1e-4)
    assert found[1] / (1000 / failures) == pytest.approx(high, abs=1e-4)


def test_no_failure_gives_a_bound() -> None:
    assert zero_failure_bound(1.0, 0.95) == pytest.approx(0.3338, abs=1e-4)
    assert zero_failure_bound(1.0, 0.90) == pytest.approx(0.4343, abs=1e-4)
    assert chi2_interval(0, 1.0)[1] == math.inf


@pytest.mark.parametrize(
    ("failures", "value", "low", "high"),
    [(0, 2000, 521, 508629), (2, 400, 181, 1746), (10, 95.24, 61, 173)],
)
def test_jeffreys_posterior(failures: int, value: float, low: float, high: float) -> None:
    plain = gamma_posterior(failures, 1000.0)
    rate = posterior(Counts(1000.0, 1000.0, {1: failures} if failures else {}))
    for found in (plain, (1 / rate.mean, 1 / rate.high, 1 / rate.low)):
        assert found[0] == pytest.approx(value, abs=0.01)
        assert found[1] == pytest.approx(low, abs=0.6)
        assert found[2] == pytest.approx(high, rel=1e-4, abs=0.6)


def test_the_value_is_one_over_the_mean_rate_and_not_the_mean_of_the_mtbf() -> None:
    """With half a failure the mean of the MTBF is infinite; the mean of the rate is not."""
    rate = posterior(Counts(1000.0, 1000.0))
    assert 1 / rate.mean == pytest.approx(2000.0)
    assert math.isfinite(1 / rate.low)


def test_a_stated_value_is_worth_one_failure() -> None:
    alone = posterior(Counts(), prior_s=5000.0)
    assert 1 / alone.mean == pytest.approx(5000.0)
    both = posterior(Counts(100.0, 100.0, {1: 1}), prior_s=50.0)
    assert 1 / both.mean == pytest.approx((50.0 + 100.0) / 2)
    expected = gamma_posterior(1, 100.0, (1.0, 50.0))
    assert (1 / both.high, 1 / both.low) == pytest.approx(expected[1:])


def test_hardware_alone_scales_as_published() -> None:
    """6.5 and 2.34 failures in 1000 node days; 8 GPUs a node."""
    assert job_mtbf(16384 / 8, 6.5e-3) / HOUR == pytest.approx(1.803, abs=1e-3)
    assert job_mtbf(131072 / 8, 6.5e-3) / HOUR == pytest.approx(0.225, abs=1e-3)
    assert job_mtbf(1024 / 8, 6.5e-3) / HOUR == pytest.approx(28.8, abs=0.1)
    assert job_mtbf(1, 6.5e-3) / DAY == pytest.approx(154, abs=0.5)


def test_hardware_alone_is_several_times_too_good_for_small_jobs() -> None:
    """Measured: 47.7 days on 1 node, 7.9 h on 128."""
    assert job_mtbf(1, 6.5e-3) / (47.7 * DAY) == pytest.approx(3.2, abs=0.1)
    assert job_mtbf(128, 6.5e-3) / (7.9 * HOUR) == pytest.approx(3.65, abs=0.1)


def test_published_share_of_useful_time() -> None:
    """2048 nodes, 6.5 failures in 1000 node days, restart 5 min, checkpoint 1 min."""
    mtbf_s = job_mtbf(2048, 6.5e-3)
    wanted = {5: 0.7756, 10: 0.8251, 15: 0.8292, 30: 0.7888, 60: 0.6654}
    for minutes, ratio in wanted.items():
        found = useful_ratio(60.0 * minutes, 60.0, mtbf_s, 300.0)
        assert found == pytest.approx(ratio, abs=2e-4), minutes


def test_a_long_published_run() -> None:
    """419 failures in 54 days: 3.09 h, known to a tenth."""
    rate = posterior(Counts(54 * DAY, 54 * DAY, {1: 419}))
    assert 1 / rate.mean / HOUR == pytest.approx(3.09, abs=0.01)
    assert 2.8 < 1 / rate.high / HOUR < 1 / rate.low / HOUR < 3.4


def simulated(node_rate: float, job_rate: float, jobs: int, seed: int = 1) -> Counts:
    """Jobs of 1 to 64 nodes that run for a day or until they fail."""
    random = np.random.default_rng(seed)
    node_s = job_s = 0.0
    sizes: dict[int, int] = {}
    for size in random.choice([1, 4, 16, 64], jobs):
        lived = random.exponential(1.0 / (size * node_rate + job_rate))
        lasted = min(lived, DAY)
        node_s, job_s = node_s + size * lasted, job_s + lasted
        if lived <= DAY:
            sizes[int(size)] = sizes.get(int(size), 0) + 1
    return Counts(node_s, job_s, sizes)


@pytest.mark.parametrize(("node_rate", "job_rate"), [(1e-6, 0.0), (0.0, 1e-5), (4e-7, 1e-5)])
def test_what_scales_with_nodes_is_told_apart_by_many_failures(
    node_rate: float, job_rate: float
) -> None:
    counts = simulated(node_rate, job_rate, 20000)
    for nodes in (1, 64):
        truth = nodes * node_rate + job_rate
        rate = posterior(counts, nodes)
        if truth > 5e-6:
            assert rate.mean == pytest.approx(truth, rel=0.1)
        assert rate.low <= truth * 1.35
    share = node_rate * counts.node_s / (node_rate * counts.node_s + job_rate * counts.job_s)
    assert posterior(counts).share == pytest.approx(share, abs=0.1)


def test_few_failures_leave_it_open_and_the_interval_holds_both_extremes() -> None:
    counts = Counts(64 * 1000 * HOUR, 1000 * HOUR, {64: 2})
    rate = posterior(counts, nodes=1)
    assert rate.share == pytest.approx(0.5)
    assert rate.share_high - rate.share_low == pytest.approx(0.9, abs=0.01)
    per_node, per_job = 2.5 / counts.node_s, 2.5 / counts.job_s
    assert rate.mean == pytest.approx((per_node + per_job) / 2)
    assert rate.low < per_job / 4 and rate.high > per_job
    same = posterior(counts, nodes=64)
    assert same.mean == pytest.approx(per_job)


def test_bursts_widen_the_interval_and_leave_the_value() -> None:
    calm = posterior(Counts(1e6, 1e6, {1: 10}))
    wild = posterior(Counts(1e6, 1e6, {1: 10}, dispersion=4.0))
    assert wild.mean == pytest.approx(calm.mean)
    assert wild.low < calm.low and wild.high > calm.high
    scaled = gamma_posterior(0, 1e6 / 4, (10.5 / 4, 0.0))  # a quarter of the failures and time
    assert (1 / wild.high, 1 / wild.low) == pytest.approx(scaled[1:])
    even = posterior(Counts(1e6, 1e6, {1: 10}, dispersion=0.2))
    assert (even.low, even.high) == (calm.low, calm.high)


def test_nine_of_ten_intervals_hold_the_truth() -> None:
    """Over many true values; for a single one, whole numbers of failures jump across it."""
    random = np.random.default_rng(5)
    held = 0
    for hours in random.uniform(2.0, 20.0, 600):
        count = int(random.poisson(hours))
        rate = posterior(Counts(hours * HOUR, hours * HOUR, {1: count} if count else {}))
        held += rate.low <= 1.0 / HOUR <= rate.high
    assert 0.86 <= held / 600 <= 0.94
