"""The rate of failures of a job from few failures, with its uncertainty.

Failures come at a constant rate; time that ended without a failure counts as exposure (censored).
A job on N nodes fails at N r + c: r of each node, and c of the job as a whole (file system, batch
system, software), which does not grow with it. Pure hardware scaling is several times too good for
small jobs.

With n failures over S_n node seconds and S_j job seconds, write r = p m/S_n and c = (1-p) m/S_j: m
is the expected number of failures and p the share of the nodes in it. The likelihood is then
m^n exp(-m) times a product over the failures that holds p alone, so m and p are independent: m has
a Gamma posterior, p (uniform before) is integrated over. With few failures, or jobs of one size
only, p stays open and the estimate is the mean of both extremes; its interval holds both.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

JEFFREYS = (0.5, 0.0)
"""Prior (failures, seconds) that says nothing."""

LEVEL = 0.9
"""Of the credible intervals."""

_GRID = 200
"""Points of p. The product over the failures is smooth; this is far finer than its width."""


@dataclass(frozen=True, slots=True)
class Counts:
    """What was observed, sums over executions of jobs.

    `sizes` maps the node count of the jobs that failed to how many of them did. `dispersion` is
    the variance of a count over its mean, 1 for failures at a constant rate, more for clusters.
    """

    node_s: float = 0.0
    job_s: float = 0.0
    sizes: Mapping[int, int] = field(default_factory=dict)
    dispersion: float = 1.0

    @property
    def failures(self) -> int:
        return sum(self.sizes.values())


@dataclass(frozen=True, slots=True)
class Rate:
    """Failures a second of one job, with bounds; `share` of the nodes in them, with bounds."""

    mean: float
    low: float
    high: float
    share: float
    share_low: float
    share_high: float


def posterior(counts: Counts, nodes: int = 1, prior_s: float | None = None) -> Rate:
    """The rate of a job on `nodes` nodes. Needs exposure or a prior.

    `prior_s` is a stated MTBF of such a job, worth one failure in that time; without one the
    prior is Jeffreys'. The mean is what to plan with: expected cost is linear in the rate.
    Clustered failures widen the interval: the variance of a count is its mean times the index of
    dispersion (quasi-Poisson, McCullagh & Nelder 1989, 6.2.3), which for failures with gaps of
    squared coefficient of variation C2 tends to C2 (Cox 1962, renewal theory, 4.2).
    """
    import numpy as np

    weight, past_s = (0.5, 0.0) if prior_s is None else (1.0, prior_s)
    node_s, job_s = counts.node_s + nodes * past_s, counts.job_s + past_s
    share = (np.arange(_GRID) + 0.5) / _GRID
    log_weight = np.zeros(_GRID)
    sizes = dict(counts.sizes)
    if prior_s is not None:
        sizes[nodes] = sizes.get(nodes, 0) + 1
    for size, count in sizes.items():
        log_weight += count * np.log(share * size / node_s + (1.0 - share) / job_s)
    spread = max(1.0, counts.dispersion)
    weights = np.exp((log_weight - log_weight.max()) / spread)
    weights /= weights.sum()
    scale = share * nodes / node_s + (1.0 - share) / job_s
    shape = weight + counts.failures
    tail = (1.0 - LEVEL) / 2.0
    return Rate(
        mean=shape * float(weights @ scale),
        low=_quantile(tail, weights, scale, shape, spread),
        high=_quantile(1.0 - tail, weights, scale, shape, spread),
        share=float(weights @ share),
        share_low=_share_quantile(tail, weights),
        share_high=_share_quantile(1.0 - tail, weights),
    )


def _quantile(level: float, weights: Any, scale: Any, shape: float, spread: float) -> float:
    """Quantile of a mixture of Gamma(shape/spread) of mean shape * scale, by bisection."""
    from scipy.special import gammainc, gammaincinv

    edge = float(gammaincinv(shape / spread, level)) * spread
    low, high = edge * float(scale.min()), edge * float(scale.max())
    for _ in range(80):
        if high - low <= 1e-12 * high:
            break
        middle = 0.5 * (low + high)
        below = float(weights @ gammainc(shape / spread, middle / scale / spread))
        low, high = (middle, high) if below < level else (low, middle)
    return 0.5 * (low + high)


def _share_quantile(level: float, weights: Any) -> float:
    import numpy as np

    known = np.concatenate(([0.0], np.cumsum(weights)))
    return float(np.interp(level, known, np.arange(_GRID + 1) / _GRID))


def gamma_posterior(
    failures: int,
    exposure_s: float,
    prior: tuple[float, float] = JEFFREYS,
    level: float = LEVEL,
) -> tuple[float, float, float]:
    """MTBF to plan with, and its lower and upper credible bound, in seconds, of equal machines.

    `prior` is worth prior[0] failures in prior[1] seconds. The posterior of the rate is
    Gamma(prior[0] + n, prior[1] + S); the MTBF to plan with is one over its mean.
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


def chi2_interval(failures: int, exposure_s: float, level: float = LEVEL) -> tuple[float, float]:
    """Two-sided confidence interval of the MTBF, time-censored: 2S / chi2 (NIST 8.4.5.1).

    The upper end is infinite when there was no failure.
    """
    from scipy.special import gammaincinv

    tail = (1.0 - level) / 2.0
    low = exposure_s / float(gammaincinv(failures + 1, 1.0 - tail))
    if failures == 0:
        return low, math.inf
    return low, exposure_s / float(gammaincinv(failures, tail))
