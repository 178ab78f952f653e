"""Mean time between failures from few failures, with its uncertainty.

Failures come at a constant rate; time that ended without a failure counts as exposure
(censored). The posterior of the rate is Gamma(a + n, b + S) with n failures in S seconds. The
expected cost is linear in the rate, so the value to plan with is one over the mean rate.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

DEFAULT_MTBF_S = 24 * 3600.0
"""What is assumed of a job when nothing is known: one failure a day."""

JEFFREYS = (0.5, 0.0)
"""Prior (failures, seconds) that says nothing."""


@dataclass(frozen=True, slots=True)
class Mtbf:
    """MTBF of one job in seconds, its 90 % interval (None when it was stated), its source."""

    value_s: float
    low_s: float | None
    high_s: float | None
    source: str


@dataclass(frozen=True, slots=True)
class History:
    """What the attempts of a run tell: hard failures, preemptions, seconds at risk."""

    failures: int = 0
    preemptions: int = 0
    exposure_s: float = 0.0


def gamma_posterior(
    failures: int,
    exposure_s: float,
    prior: tuple[float, float] = JEFFREYS,
    level: float = 0.9,
) -> tuple[float, float, float]:
    """MTBF to plan with, and its lower and upper credible bound, in seconds.

    `prior` is worth prior[0] failures in prior[1] seconds.
    """
    from scipy.special import gammaincinv

    shape, rate = prior[0] + failures, prior[1] + exposure_s
    tail = (1.0 - level) / 2.0
    low = rate / float(gammaincinv(shape, 1.0 - tail))
    return rate / shape, low, rate / float(gammaincinv(shape, tail))


def zero_failure_bound(exposure_s: float, confidence: float = 0.95) -> float:
    """Lower bound of the MTBF after `exposure_s` seconds without a failure: S / -ln(1-c).

    NIST/SEMATECH e-Handbook 8.4.5.1.
    """
    return exposure_s / -math.log(1.0 - confidence)


def chi2_interval(failures: int, exposure_s: float, level: float = 0.9) -> tuple[float, float]:
    """Two-sided confidence interval of the MTBF, time-censored: 2S / chi2 (NIST 8.4.5.1).

    The upper end is infinite when there was no failure.
    """
    from scipy.special import gammaincinv

    tail = (1.0 - level) / 2.0
    low = exposure_s / float(gammaincinv(failures + 1, 1.0 - tail))
    if failures == 0:
        return low, math.inf
    return low, exposure_s / float(gammaincinv(failures, tail))


def estimate(stated_h: float | None, history: History, profile_h: float | None) -> Mtbf:
    """The MTBF to plan with: stated, else from the run's attempts, else profile, else default.

    A profile's value and the default are worth one failure: they give way to what is observed.
    Without any failure the observed time only bounds the MTBF from below.
    """
    if stated_h is not None:
        return Mtbf(stated_h * 3600.0, None, None, "stated in the config (planner.mtbf_h)")
    believed_s = DEFAULT_MTBF_S if profile_h is None else profile_h * 3600.0
    name = "default" if profile_h is None else "stated in the profile"
    if history.failures and history.exposure_s > 0.0:
        prior = JEFFREYS if profile_h is None else (1.0, believed_s)
        return Mtbf(
            *gamma_posterior(history.failures, history.exposure_s, prior),
            f"measured by the run's attempts ({_count(history)})",
        )
    _, low, high = gamma_posterior(0, 0.0, (1.0, believed_s))
    if history.exposure_s <= 0.0:
        return Mtbf(believed_s, low, high, name)
    bound = zero_failure_bound(history.exposure_s)
    value = max(believed_s, bound)
    said = f"{name}; {_count(history)} bound it to at least {bound / 3600.0:.3g} h (95 %)"
    return Mtbf(value, max(low, bound), max(high, value), said)


def read_history(attempts: Sequence[Mapping[str, Any]]) -> History:
    """Count hard failures, preemptions and seconds at risk in the records of attempts.

    A failure is an end that another try can pass (node lost, killed, storage gone). An end
    that belongs to the work (wrong data, too little memory or time) is exposure, not a failure.
    """
    ends = [_how_it_ended(one) for one in attempts]
    return History(
        failures=ends.count("failure"),
        preemptions=ends.count("preemption"),
        exposure_s=sum(_seconds(one) for one in attempts),
    )


_TRANSIENT = ("retry_same", "resume_from_checkpoint")
_WALLTIME = ("requeued: its walltime ends", "requeued: its time limit is reached")


def _how_it_ended(attempt: Mapping[str, Any]) -> str:
    stop = attempt.get("stop")
    if stop is None:
        return "failure"
    if stop == "signal URG" or attempt.get("then") in _WALLTIME:
        return "other"
    if str(stop).startswith("signal"):
        return "preemption"
    finding = attempt.get("finding") or {}
    if stop in ("failed", "error") and finding.get("action") in _TRANSIENT:
        return "failure"
    return "other"


def _seconds(attempt: Mapping[str, Any]) -> float:
    if attempt.get("started") and attempt.get("ended"):
        from datetime import datetime

        span = datetime.fromisoformat(attempt["ended"]) - datetime.fromisoformat(attempt["started"])
        return max(0.0, span.total_seconds())
    return sum(float(attempt.get(key) or 0.0) for key in ("useful_s", "checkpoint_s", "lost_s"))


def _count(history: History) -> str:
    noun = "failure" if history.failures == 1 else "failures"
    return f"{history.failures} {noun} in {history.exposure_s / 3600.0:.3g} h"


def preemption_mtbf(history: History, profile_h: float | None) -> float | None:
    """Mean seconds between preemptions of a job; None when none was seen or stated."""
    if history.preemptions and history.exposure_s > 0.0:
        prior = JEFFREYS if profile_h is None else (1.0, profile_h * 3600.0)
        return gamma_posterior(history.preemptions, history.exposure_s, prior)[0]
    return None if profile_h is None else profile_h * 3600.0
