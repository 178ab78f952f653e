"""Published and independently computed values of checkpoint theory."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from scipy import stats

from milepost.errors import ConfigError
from milepost.planner import levels, preemption, reservation, theory, walltime

MINUTE, HOUR = 60.0, 3600.0


@pytest.mark.parametrize(
    ("mtbf", "published", "daly", "exact", "young", "stretch", "textbook"),
    [
        (24 * 60, 117, 116.690, 116.6901, 120.000, 1.0958, 1.0833),
        (6 * 60, 57, 56.713, 56.7140, 60.000, 1.2204, 1.1667),
        (15, 9.1, 9.141, 9.1665, 12.247, 5.0083, 1.8165),
    ],
)
def test_daly_2006_published_optima(
    mtbf: float,
    published: float,
    daly: float,
    exact: float,
    young: float,
    stretch: float,
    textbook: float,
) -> None:
    """500 h of work, t_ckpt 5 min, restart 10 min; values in minutes."""
    best = theory.exact_interval(5, mtbf)
    assert theory.daly_interval(5, mtbf) == pytest.approx(published, abs=0.35)
    assert theory.daly_interval(5, mtbf) == pytest.approx(daly, abs=1e-3)
    assert best == pytest.approx(exact, abs=1e-4)
    assert theory.young_interval(5, mtbf) == pytest.approx(young, abs=1e-3)
    assert 1 + theory.exact_overhead(best, 5, mtbf, 10) == pytest.approx(stretch, abs=1e-4)
    at_young = theory.textbook_overhead(5, theory.young_interval(5, mtbf), mtbf)
    assert 1 + at_young == pytest.approx(textbook, abs=1e-4)


@pytest.mark.parametrize(
    ("interval", "ckpt", "mtbf", "down", "restore", "formula", "simulated", "error"),
    [
        (57, 5, 360, 0, 10, 69.565, 69.518, 0.046),
        (9.1, 5, 15, 0, 10, 45.576, 45.601, 0.093),
        (100, 10, 100, 5, 10, 232.569, 232.536, 0.349),
    ],
)
def test_expected_time_of_a_chunk(
    interval: float,
    ckpt: float,
    mtbf: float,
    down: float,
    restore: float,
    formula: float,
    simulated: float,
    error: float,
) -> None:
    value = theory.expected_time(interval, ckpt, mtbf, restore, down)
    assert value == pytest.approx(formula, abs=1e-3)
    assert abs(value - simulated) < 3 * error


@pytest.mark.parametrize(
    ("ratio", "young", "exact", "young_excess", "daly_excess", "slowdown"),
    [
        (0.001, 0.0447, 0.0441, 0.000, 0.0000, 1.046),
        (0.01, 0.1414, 0.1348, 0.015, 0.0000, 1.156),
        (0.1, 0.4472, 0.3832, 0.47, 0.0000, 1.62),
        (0.25, 0.7071, 0.5512, 1.8, 0.0001, 2.23),
        (0.5, 1.000, 0.6983, 5.0, 0.0011, 3.31),
        (1, 1.414, 0.8414, 14, 0.014, 6.3),
        (2, 2.000, 0.9475, 41, 0.14, 19),
    ],
)
def test_where_the_textbook_interval_fails(
    ratio: float,
    young: float,
    exact: float,
    young_excess: float,
    daly_excess: float,
    slowdown: float,
) -> None:
    """t_ckpt/MTBF from tiny to hopeless; MTBF is 1."""

    def stretch(interval: float) -> float:
        return theory.expected_time(interval, ratio, 1.0) / interval

    def excess(interval: float) -> float:
        return 100 * (stretch(interval) / stretch(theory.exact_interval(ratio, 1.0)) - 1)

    assert theory.young_interval(ratio, 1.0) == pytest.approx(young, abs=5e-4)
    assert theory.exact_interval(ratio, 1.0) == pytest.approx(exact, abs=5e-5)
    assert excess(theory.young_interval(ratio, 1.0)) == pytest.approx(
        young_excess, rel=0.03, abs=6e-4
    )
    assert excess(theory.daly_interval(ratio, 1.0)) == pytest.approx(
        daly_excess, rel=0.05, abs=6e-5
    )
    assert stretch(theory.exact_interval(ratio, 1.0)) == pytest.approx(slowdown, rel=5e-3)


@pytest.mark.parametrize(
    ("ckpt_s", "mtbf_s", "factor"),
    [
        (5, 24 * HOUR, 1.02),
        (60, 6 * HOUR, 1.13),
        (300, 6 * HOUR, 1.32),
        (300, 1.8 * HOUR, 1.69),
        (600, 1.8 * HOUR, 2.14),
    ],
)
def test_textbook_understates_the_cost(ckpt_s: float, mtbf_s: float, factor: float) -> None:
    young = theory.young_interval(ckpt_s, mtbf_s)
    exact = theory.exact_overhead(young, ckpt_s, mtbf_s, restore_s=2 * ckpt_s)
    assert exact / theory.textbook_overhead(ckpt_s, young, mtbf_s) == pytest.approx(
        factor, abs=0.01
    )


@pytest.mark.parametrize(
    ("ckpt_s", "at_default", "at_best", "times"), [(5, 0.042, 0.011, 3.9), (30, 0.25, 0.026, 9.5)]
)
def test_default_interval_is_dear_when_checkpoints_are(
    ckpt_s: float, at_default: float, at_best: float, times: float
) -> None:
    best = theory.exact_interval(ckpt_s, 24 * HOUR)
    default = theory.exact_overhead(120, ckpt_s, 24 * HOUR)
    least = theory.exact_overhead(best, ckpt_s, 24 * HOUR)
    assert default == pytest.approx(at_default, abs=2e-3)
    assert least == pytest.approx(at_best, abs=1e-3)
    assert default / least == pytest.approx(times, rel=0.03)


@pytest.mark.parametrize("ckpt_s", [0.1, 0.2, 0.5])
def test_default_interval_is_fine_for_short_checkpoints(ckpt_s: float) -> None:
    best = theory.exact_interval(ckpt_s, 24 * HOUR)
    least = theory.exact_overhead(best, ckpt_s, 24 * HOUR)
    assert theory.exact_overhead(120, ckpt_s, 24 * HOUR) <= 1.45 * least
    assert theory.young_interval(ckpt_s, 7200 / ckpt_s) == pytest.approx(120)


@pytest.mark.parametrize(("work", "chunks"), [(30000, 529), (600, 11), (120, 2)])
def test_finite_work_in_whole_chunks(work: float, chunks: int) -> None:
    def time(count: int) -> float:
        return count * theory.expected_time(work / count, 5, 360, 10)

    assert theory.whole_chunks(work, 5, 360) == chunks
    assert chunks == min(range(1, 3 * chunks + 10), key=time)


def test_finite_work_keeps_at_least_one_chunk() -> None:
    assert theory.whole_chunks(1.0, 100.0, 1000.0) == 1
    assert theory.whole_chunks(1e6, 0.0, 1e4) > 1000


@pytest.mark.parametrize(("lag", "simulated"), [(0, 1.0159), (60, 1.0190), (150, 1.0230)])
def test_background_checkpoints_add_their_latency(lag: float, simulated: float) -> None:
    """Blocked 2 s, MTBF 6 h, restore 60 s, interval 294 s; simulated values."""
    assert theory.young_interval(2, 6 * HOUR) == pytest.approx(294, abs=0.1)
    first_order = 1 + theory.textbook_overhead(2, 294, 6 * HOUR) + (lag + 60) / (6 * HOUR)
    exact = 1 + theory.exact_overhead(294, 2, 6 * HOUR, 60, durable_lag_s=lag)
    at_once = 1 + theory.exact_overhead(294, 2, 6 * HOUR, 60)
    assert exact - at_once == pytest.approx(lag / (6 * HOUR), rel=0.03)
    assert theory.exact_overhead(294, 2, 6 * HOUR, 60, durable_lag_s=lag) == min(
        theory.exact_overhead(x, 2, 6 * HOUR, 60, durable_lag_s=lag)
        for x in (100.0, 200.0, 294.0, 400.0, 900.0)
    )
    assert first_order == pytest.approx({0: 1.0164, 60: 1.0192, 150: 1.0233}[int(lag)], abs=1e-4)
    assert exact == pytest.approx(simulated, abs=1e-3)


def test_restore_and_downtime_do_not_move_the_optimum() -> None:
    def stretch(interval: float) -> float:
        return 1 + theory.exact_overhead(interval, 10, 100, 10, 5)

    grid = np.linspace(20, 80, 6001)
    best = grid[np.argmin([stretch(x) for x in grid])]
    assert theory.exact_interval(10, 100) == pytest.approx(best, abs=0.01)
    assert 1 - 1 / stretch(38.3) == pytest.approx(0.469, abs=1e-3)
    assert 1 - 1 / stretch(math.sqrt(2 * 85 * 10) - 10) == pytest.approx(0.473, abs=1e-3)


def test_hopeless_jobs_are_infinite_not_an_overflow() -> None:
    assert theory.expected_time(1e6, 1, 1) == math.inf
    assert theory.exact_overhead(1e6, 1, 1) == math.inf
    assert theory.daly_interval(3.0, 1.0) == 1.0


@pytest.mark.parametrize(
    "call",
    [
        lambda: theory.exact_interval(1, 0),
        lambda: theory.exact_interval(-1, 10),
        lambda: theory.young_interval(math.nan, 10),
        lambda: theory.overhead_checkpoint(1, 0),
        lambda: theory.cost_overhead(1, 1, 0, 10),
    ],
)
def test_impossible_numbers_are_named(call: Callable[[], float]) -> None:
    with pytest.raises(ConfigError):
        call()


def test_cost_formulas() -> None:
    assert theory.cost_overhead(2.0, 4, 0.8, 1800) == pytest.approx(5.0)
    assert theory.cost_total(2.0, 4, 0.8, 5400, 1800) == pytest.approx(20.0)


YOUNG = 57
"""Optimal period of t_ckpt 5 min at an MTBF of 6 h, in minutes of work."""


@pytest.mark.parametrize(
    ("limit", "mtbf", "best", "blind", "fitted", "even", "single"),
    [
        (60, 360, 49.00, 0.0, 49.00, 49.00, 49.00),
        (120, 1440, 109.38, 0.0, 109.38, 109.38, 109.38),
        (240, 360, 196.26, 159.77, 195.87, 196.25, 165.46),
        (1440, 360, 1178.52, 1153.46, 1177.54, 1178.50, 338.57),
    ],
)
def test_saved_work_of_a_reservation(
    limit: int, mtbf: float, best: float, blind: float, fitted: float, even: float, single: float
) -> None:
    """Minutes of saved work, t_ckpt 5 min, 10 min lost at a failure: the optimum, a period that
    forgets the end, one whose last piece ends with the reservation, even split, one checkpoint."""
    period = YOUNG if mtbf == 360 else round(theory.exact_interval(5, mtbf))

    def saved(interval: Callable[[float], float] | None) -> float:
        return reservation.saved_work(limit, 5, mtbf, 10, 1.0, interval)

    optimum = saved(None)
    assert optimum == pytest.approx(best, rel=2e-3)
    assert saved(lambda left: period) == pytest.approx(blind, rel=2e-3)
    assert saved(lambda left: min(period, left - 5)) == pytest.approx(fitted, rel=2e-3)
    split = saved(lambda left: walltime.even_split(left, 5, mtbf))
    assert split == pytest.approx(even, rel=2e-3)
    assert split >= optimum * (1 - 1e-4)
    assert saved(lambda left: left - 5) == pytest.approx(single, rel=2e-3)


def test_a_single_checkpoint_is_best_in_a_short_reservation() -> None:
    """Up to 87 minutes, for t_ckpt 5 min, MTBF 6 h and 10 min lost at a failure."""

    def loss(limit: int) -> float:
        single = reservation.saved_work(limit, 5, 360, 10, 1.0, lambda left: left - 5)
        return reservation.saved_work(limit, 5, 360, 10, 1.0) - single

    assert loss(87) == 0.0
    assert loss(88) > 0.0


@pytest.mark.parametrize("parts", [1, 2, 4, 8])
def test_overhead_of_reservations_is_that_of_their_pieces(parts: int) -> None:
    """Where nothing fails it is checkpoints, restores and waits; where they are long it is the
    unlimited one; and the even split is the best number of pieces."""
    calm = reservation.reservation_overhead(1000, parts, 10, 1e12, 50, 0, 100)
    assert calm == pytest.approx(1150 / (1000 - 10 * parts) - 1, rel=1e-6)
    interval = 500.0
    many = reservation.reservation_overhead(400 * 510.0, 400, 10, 20000, 30, 60, 0)
    assert many == pytest.approx(theory.exact_overhead(interval, 10, 20000, 30, 60), rel=1e-2)

    def overhead(count: int) -> float:
        return reservation.reservation_overhead(14400, count, 60, 21600, 60, 60, 120)

    best = round(14400 / (theory.exact_interval(60, 21600) + 60))
    assert overhead(best) <= overhead(parts)
    assert reservation.reservation_overhead(100, 2, 50, 1000) == math.inf


def test_one_checkpoint_at_the_end_of_a_short_reservation() -> None:
    assert walltime.even_split(60, 5, 360) == 55
    assert walltime.even_split(3, 5, 360) == 0


def test_reservations_needed() -> None:
    assert walltime.reservations(100, 1000, 10, 60) == 1
    assert walltime.reservations(940, 1000, 10, 60) == 1
    assert walltime.reservations(941, 1000, 10, 60) == 2
    assert walltime.reservations(940 + 930, 1000, 10, 60) == 2
    assert walltime.reservations(940 + 931, 1000, 10, 60) == 3
    with pytest.raises(ConfigError, match="leaves no time"):
        walltime.reservations(5000, 100, 50, 60)


@pytest.mark.parametrize(
    ("distribution", "start", "gain"),
    [
        (stats.uniform(1, 6.5), 5.5, 3.1154),
        (stats.uniform(1, 4), 5.0, 5.0),
        (stats.truncnorm(-3.5, np.inf, 3.5, 1), 4.792, 4.6966),
    ],
)
def test_when_to_start_the_last_checkpoint(
    distribution: stats.rv_continuous, start: float, gain: float
) -> None:
    """Barbut et al. 2023: 10 s are left and the duration is random."""
    count = 4000
    sample = distribution.ppf((np.arange(count) + 0.5) / count)
    found = walltime.last_checkpoint_start(10, list(sample))
    assert found == pytest.approx(start, abs=0.03)
    assert (10 - found) * distribution.cdf(found) == pytest.approx(gain, abs=1e-3)


def test_last_checkpoint_does_not_start_when_none_fits() -> None:
    assert walltime.last_checkpoint_start(1, [2.0, 3.0]) == 0.0


@pytest.mark.parametrize(
    ("notice", "chance", "mtbf", "interval"),
    [(30, 0.6423, 27462, 1172), (60, 0.9600, 69685, 1867), (120, 0.9991, 85960, 2073)],
)
def test_preemption_with_notice(notice: float, chance: float, mtbf: float, interval: float) -> None:
    """Failures every 24 h, preemptions every 4 h, t_ckpt log-normal (25 s, sigma 0.5)."""
    p95 = 25 * math.exp(0.5 * stats.norm.ppf(0.95))
    found = preemption.forced_checkpoint_chance(notice, 0.0, 25, p95)
    both = preemption.effective_mtbf(24 * HOUR, 4 * HOUR, found)
    assert found == pytest.approx(chance, abs=1e-4)
    assert both == pytest.approx(mtbf, rel=1e-3)
    assert theory.young_interval(25, both) == pytest.approx(interval, abs=1)


def test_preemption_without_notice() -> None:
    both = preemption.effective_mtbf(24 * HOUR, 4 * HOUR, 0.0)
    assert both == pytest.approx(12343, abs=1)
    assert theory.young_interval(25, both) == pytest.approx(786, abs=1)
    assert preemption.forced_checkpoint_chance(30, 40, 1, 2) == 0.0
    assert preemption.forced_checkpoint_chance(30, 0, 10, 10) == 1.0
    assert preemption.effective_mtbf(HOUR, None, 0.0) == HOUR


def test_a_forced_checkpoint_that_fits_is_a_short_one() -> None:
    """The mean of a log-normal cut at the notice, against that of its quantiles."""
    p95 = 25 * math.exp(0.5 * stats.norm.ppf(0.95))
    drawn = stats.lognorm(0.5, scale=25).ppf((np.arange(100_000) + 0.5) / 100_000)
    for notice, step in ((30, 0), (60, 10), (120, 0)):
        fits = drawn[drawn <= notice - step]
        found = preemption.forced_checkpoint_mean(notice, step, 25, p95)
        assert found == pytest.approx(step + fits.mean(), rel=1e-3)
    assert preemption.forced_checkpoint_mean(30, 5, 10, 10) == 15
    assert preemption.forced_checkpoint_mean(5, 6, 10, 10) == 5


def test_a_preemption_that_saves_its_work_still_costs_time() -> None:
    """p of them cost 100 s, the others 30 s, one preemption in 10000 s of running."""
    found = preemption.preempted_overhead(0.1, 1e4, 0.75, 100, 30)
    assert found == pytest.approx(1.1 * (1 + (75 + 7.5) / 1e4) - 1)
    waiting = preemption.preempted_overhead(0.1, 1e4, 1.0, 100, 0, 900, 100)
    assert waiting == pytest.approx(1.1 * (1 + 0.9 * 0.01) - 1)


def test_two_tiers() -> None:
    found = levels.two_tiers(1, 30, 600, 7200)
    assert found.local_per_remote == pytest.approx(18.974, abs=1e-3)
    assert found.period_s == pytest.approx(657.27, abs=0.01)
    assert found.overhead == pytest.approx(0.14902, abs=1e-5)
    alone = 1 / (1 / 600 + 1 / 7200)
    one_tier = theory.exact_overhead(theory.exact_interval(30, alone), 30, alone, 30)
    assert one_tier == pytest.approx(0.498, rel=1e-2)
    exact = levels.two_tier_overhead(657.27, 19, 1, 30, 600, 7200, 1, 30)
    assert exact == pytest.approx(0.1720, rel=1e-3)
    assert one_tier / exact == pytest.approx(2.9, rel=0.02)


def test_best_two_tiers_is_the_best_by_the_exact_overhead() -> None:
    """First order finds the pattern within a few per cent of cost; the exact one is dearer."""
    rest = (1.0, 30.0, 20.0)
    best = levels.best_two_tiers(1, 30, 600, 7200, *rest)
    assert best.local_per_remote == int(best.local_per_remote)

    def overhead(count: int, factor: float) -> float:
        return levels.two_tier_overhead(factor * best.period_s, count, 1, 30, 600, 7200, *rest)

    assert best.overhead == pytest.approx(overhead(int(best.local_per_remote), 1.0))
    for count in range(1, 60):
        for factor in (0.5, 0.8, 0.95, 1.05, 1.25, 2.0):
            assert best.overhead <= overhead(count, factor) * (1 + 1e-6)
    first = levels.two_tiers(1, 30, 600, 7200)
    near = levels.two_tier_overhead(first.period_s, 19, 1, 30, 600, 7200, *rest)
    assert best.overhead <= near < 1.01 * best.overhead
    assert first.overhead < 0.9 * best.overhead


def test_two_tiers_of_which_one_does_nothing_are_one() -> None:
    """Almost no failure needs the far tier, and its checkpoint is free."""
    one = theory.exact_overhead(300, 10, 4000, 20, 60)
    two = levels.two_tier_overhead(3000, 10, 10, 1e-9, 4000, 1e12, 20, 20, 60)
    assert two == pytest.approx(one, rel=1e-6)
    all_far = levels.two_tier_overhead(300, 1, 1e-9, 10, 1e12, 4000, 20, 20, 60)
    assert all_far == pytest.approx(one, rel=1e-6)
    assert levels.two_tier_overhead(1e7, 1, 1, 1, 100, 100) == math.inf


def test_silent_errors() -> None:
    period, overhead = levels.silent_error_period(2, 5, 1000, 360)
    assert period == pytest.approx(54.132, abs=1e-3)
    assert overhead == pytest.approx(0.25863, abs=1e-5)


def test_mtbf_scales_with_nodes() -> None:
    assert levels.job_mtbf(16384 / 8, 6.5e-3) == pytest.approx(1.803 * HOUR, rel=1e-3)
    assert levels.job_mtbf(131072 / 8, 6.5e-3) == pytest.approx(0.225 * HOUR, rel=2e-3)
    assert levels.job_mtbf(128, 6.5e-3) == pytest.approx(28.8 * HOUR, rel=2e-3)
    assert levels.job_mtbf(1, 6.5e-3) == pytest.approx(154 * 24 * HOUR, rel=2e-3)
    per_job = 24 / 7.9 - 128 * 6.5e-3
    assert levels.job_mtbf(128, 6.5e-3, per_job) == pytest.approx(7.9 * HOUR)


@pytest.mark.parametrize(
    ("minutes", "ratio"), [(5, 0.7756), (10, 0.8251), (15, 0.8292), (30, 0.7888), (60, 0.6654)]
)
def test_useful_ratio_of_a_large_job(minutes: float, ratio: float) -> None:
    found = levels.useful_ratio(minutes * MINUTE, MINUTE, levels.job_mtbf(2048, 6.5e-3), 5 * MINUTE)
    assert found == pytest.approx(ratio, abs=1e-4)
