"""Time at risk: windows, gaps in exposure, bursts."""

from __future__ import annotations

import numpy as np
import pytest

from milepost.planner.exposure import End, Span, burstiness, clip, gaps, weibull_shape

FAILURE, PREEMPTION, CENSORED = End.FAILURE, End.PREEMPTION, End.CENSORED


def test_a_window_cuts_time_and_forgets_failures_before_it() -> None:
    spans = [
        Span(0, 50, end=FAILURE),
        Span(80, 130, end=FAILURE),
        Span(150, 250, end=FAILURE),
        Span(90, 110),
    ]
    assert clip(spans, 100, 200) == (
        Span(100, 130, end=FAILURE),
        Span(150, 200),  # it failed after the window
        Span(100, 110),
    )


def test_a_failure_at_launch_has_no_time_and_counts() -> None:
    assert clip([Span(150, 150, end=FAILURE), Span(150, 150)], 100, 200) == (
        Span(150, 150, end=FAILURE),
    )


def test_gaps_are_node_seconds_and_idle_time_is_no_gap() -> None:
    spans = [
        Span(0, 10, nodes=2, end=FAILURE),
        Span(1000, 1010, nodes=1),
        Span(1000, 1020, nodes=3, end=FAILURE),
        Span(5000, 5005, nodes=1, end=PREEMPTION),
    ]
    assert gaps(spans, FAILURE) == [20.0, 70.0]
    assert gaps(spans, PREEMPTION) == [95.0]
    assert gaps([], FAILURE) == []


def test_bursts() -> None:
    assert burstiness([1.0, 2.0]) is None
    assert burstiness([5.0, 5.0, 5.0, 5.0]) == 0.0
    assert burstiness([0.0, 0.0, 0.0]) is None
    random = np.random.default_rng(3)
    assert burstiness(random.exponential(7.0, 20000)) == pytest.approx(1.0, abs=0.05)
    # Weibull: C2 = G(1 + 2/k)/G(1 + 1/k)^2 - 1, 5 for k = 0.5
    assert burstiness(random.weibull(0.5, 200000)) == pytest.approx(5.0, rel=0.05)


@pytest.mark.parametrize("shape", [0.5, 0.7, 1.0, 2.0])
def test_weibull_shape_is_that_of_a_general_fit(shape: float) -> None:
    from scipy.stats import CensoredData, weibull_min

    random = np.random.default_rng(11)
    found = [float(x) for x in 3600.0 * random.weibull(shape, 300)]
    rest = 5000.0
    data = CensoredData(uncensored=found, right=[rest])
    wanted, _, _ = weibull_min.fit(data, floc=0.0)
    assert weibull_shape(found, rest) == pytest.approx(wanted, rel=1e-3)
    assert weibull_shape(found[:19], rest) is None


def test_failures_at_one_moment_do_not_break_the_fit() -> None:
    shape = weibull_shape([0.0] * 10 + [100.0] * 15)
    assert shape is not None and 0.02 < shape < 0.5
