"""MTBF from few failures: published factors, priors, and which source wins."""

from __future__ import annotations

import math

import pytest

from milepost.planner import mtbf
from milepost.planner.mtbf import History

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
    found = mtbf.chi2_interval(failures, 1000.0)
    assert found[0] / (1000 / failures) == pytest.approx(low, abs=1e-4)
    assert found[1] / (1000 / failures) == pytest.approx(high, abs=1e-4)


def test_no_failure_gives_a_bound() -> None:
    assert mtbf.zero_failure_bound(1.0, 0.95) == pytest.approx(0.3338, abs=1e-4)
    assert mtbf.zero_failure_bound(1.0, 0.90) == pytest.approx(0.4343, abs=1e-4)
    assert mtbf.chi2_interval(0, 1.0)[1] == math.inf


@pytest.mark.parametrize(
    ("failures", "value", "low", "high"),
    [(0, 2000, 521, 508629), (2, 400, 181, 1746), (10, 95.24, 61, 173)],
)
def test_jeffreys_posterior(failures: int, value: float, low: float, high: float) -> None:
    found = mtbf.gamma_posterior(failures, 1000.0)
    assert found[0] == pytest.approx(value, abs=0.01)
    assert found[1] == pytest.approx(low, abs=0.6)
    assert found[2] == pytest.approx(high, rel=1e-4, abs=0.6)


def test_a_stated_value_wins_and_has_no_interval() -> None:
    found = mtbf.estimate(6.0, History(3, 0, 100 * HOUR), 50.0)
    assert (found.value_s, found.low_s, found.high_s) == (6 * HOUR, None, None)
    assert "stated" in found.source


def test_own_failures_win_over_the_default() -> None:
    found = mtbf.estimate(None, History(2, 0, 1000 * HOUR), None)
    assert found.value_s == pytest.approx(400 * HOUR)
    assert found.low_s == pytest.approx(181 * HOUR, rel=0.01)
    assert found.source == "measured by the run's attempts (2 failures in 1e+03 h)"


def test_a_profile_is_worth_one_failure() -> None:
    found = mtbf.estimate(None, History(1, 0, 100 * HOUR), 50.0)
    assert found.value_s == pytest.approx((50 + 100) / 2 * HOUR)
    alone = mtbf.estimate(None, History(), 50.0)
    assert alone.value_s == 50 * HOUR
    assert alone.source == "stated in the profile"
    assert alone.low_s is not None and alone.high_s is not None
    assert alone.low_s < alone.value_s < alone.high_s


def test_nothing_known_is_a_default_that_says_so() -> None:
    found = mtbf.estimate(None, History(), None)
    assert found.value_s == mtbf.DEFAULT_MTBF_S
    assert found.source == "default"


def test_quiet_time_only_raises_the_bound() -> None:
    short = mtbf.estimate(None, History(0, 0, HOUR), None)
    assert short.value_s == mtbf.DEFAULT_MTBF_S
    long = mtbf.estimate(None, History(0, 0, 1000 * HOUR), None)
    assert long.value_s == pytest.approx(333.8 * HOUR, rel=1e-3)
    assert "0 failures in 1e+03 h bound it" in long.source


def test_failures_without_any_time_at_risk_are_not_used() -> None:
    assert mtbf.estimate(None, History(2, 0, 0.0), None).source == "default"


def attempt(stop: str | None, hours: float = 1.0, action: str | None = None) -> dict[str, object]:
    return {
        "stop": stop,
        "started": "2026-01-01T00:00:00.000Z",
        "ended": None if stop is None else f"2026-01-01T{int(hours):02d}:00:00.000Z",
        "finding": None if action is None else {"action": action},
        "useful_s": 1800.0,
        "checkpoint_s": 60.0,
        "lost_s": None,
    }


def test_which_ends_are_failures() -> None:
    found = mtbf.read_history(
        [
            attempt("done", 2),
            attempt("walltime", 4),
            attempt("signal URG", 1),
            attempt("signal TERM", 1),
            attempt("failed", 1, "fix_no_retry"),
            attempt("failed", 1, "retry_more_memory"),
            attempt("failed", 1, "retry_same"),
            attempt("error", 1, "resume_from_checkpoint"),
            attempt(None),
        ]
    )
    assert (found.failures, found.preemptions) == (3, 1)
    assert found.exposure_s == 12 * HOUR + 1860.0


def test_preemptions() -> None:
    assert mtbf.preemption_mtbf(History(), None) is None
    assert mtbf.preemption_mtbf(History(), 4.0) == 4 * HOUR
    seen = mtbf.preemption_mtbf(History(0, 2, 1000 * HOUR), None)
    assert seen == pytest.approx(400 * HOUR)
    both = mtbf.preemption_mtbf(History(0, 1, 4 * HOUR), 4.0)
    assert both == pytest.approx(4 * HOUR)
