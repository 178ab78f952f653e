"""Checkpoint theory for one level of checkpoints and failures at a constant rate.

Symbols, all in seconds: `t_ckpt_s` is the time the work stands still for one checkpoint (C),
`mtbf_s` the mean time between failures of the whole job (M), `interval_s` the useful work
between two checkpoints, without the checkpoint itself (I), `restore_s` reload and start-up after
a failure (R), `downtime_s` the wait for a new allocation (D).
"""

from __future__ import annotations

import math

from milepost.errors import ConfigError

_LARGEST_EXPONENT = 700.0
"""exp() of more overflows; such a job is never expected to end."""

_TINY_RATIO = 1e-8


def overhead_checkpoint(t_ckpt_s: float, interval_s: float) -> float:
    """Fraction of useful time spent on checkpoints, t_ckpt/I (Young 1974)."""
    return t_ckpt_s / positive("interval_s", interval_s)


def expected_loss(interval_s: float, mtbf_s: float) -> float:
    """Fraction of useful time expected to be lost to failures, I/(2 MTBF) (Young 1974).

    First order: half an interval a failure, at most one failure in an interval.
    """
    return interval_s / (2.0 * positive("mtbf_s", mtbf_s))


def textbook_overhead(t_ckpt_s: float, interval_s: float, mtbf_s: float) -> float:
    """Overhead_ckpt + Loss_expected: too low when t_ckpt is not small against MTBF."""
    return overhead_checkpoint(t_ckpt_s, interval_s) + expected_loss(interval_s, mtbf_s)


def young_interval(t_ckpt_s: float, mtbf_s: float) -> float:
    """I_opt = sqrt(2 t_ckpt MTBF), the textbook optimum (Young 1974), seconds."""
    return math.sqrt(2.0 * not_negative("t_ckpt_s", t_ckpt_s) * positive("mtbf_s", mtbf_s))


def daly_interval(t_ckpt_s: float, mtbf_s: float) -> float:
    """Daly's higher-order optimum (FGCS 22, 2006, eq. 37), seconds of useful work.

    sqrt(2CM) [1 + sqrt(C/2M)/3 + (C/2M)/9] - C while C < 2M, otherwise M.
    """
    if t_ckpt_s >= 2.0 * positive("mtbf_s", mtbf_s):
        return mtbf_s
    half = not_negative("t_ckpt_s", t_ckpt_s) / (2.0 * mtbf_s)
    return young_interval(t_ckpt_s, mtbf_s) * (1.0 + math.sqrt(half) / 3.0 + half / 9.0) - t_ckpt_s


def exact_interval(t_ckpt_s: float, mtbf_s: float) -> float:
    """The interval that minimises `expected_time` per useful second: M (1 + W0(-exp(-1-C/M))).

    W0 is the principal branch of Lambert's function. Restore and downtime do not move it. For a
    tiny C/M, where W0 loses digits, Daly's series is the more exact one.
    """
    ratio = not_negative("t_ckpt_s", t_ckpt_s) / positive("mtbf_s", mtbf_s)
    if ratio < _TINY_RATIO:
        return daly_interval(t_ckpt_s, mtbf_s)
    from scipy.special import lambertw

    return float(mtbf_s * (1.0 + lambertw(-math.exp(-1.0 - ratio)).real))


def expected_time(
    interval_s: float,
    t_ckpt_s: float,
    mtbf_s: float,
    restore_s: float = 0.0,
    downtime_s: float = 0.0,
) -> float:
    """Expected seconds to do `interval_s` of work and save it: e^(R/M) (M+D) (e^((I+C)/M) - 1).

    Failures may hit work, checkpoint and restore, not the downtime (Bougeret et al., SC 2011;
    Daly's cost function when D is 0). Infinite when it overflows.
    """
    span = (interval_s + t_ckpt_s) / positive("mtbf_s", mtbf_s)
    if span > _LARGEST_EXPONENT or restore_s / mtbf_s > _LARGEST_EXPONENT:
        return math.inf
    return math.exp(restore_s / mtbf_s) * (mtbf_s + downtime_s) * math.expm1(span)


def exact_overhead(
    interval_s: float,
    t_ckpt_s: float,
    mtbf_s: float,
    restore_s: float = 0.0,
    downtime_s: float = 0.0,
    durable_lag_s: float = 0.0,
) -> float:
    """Expected extra time as a fraction of useful time, `expected_time`/I - 1, of a long job.

    `durable_lag_s` is how long after the blocked part a background checkpoint becomes durable
    (L). A failure loses that much more, L/M to first order (Vaidya 1997), and exactly: an
    attempt that lives for X seconds leaves floor((X - R - L)/(I + C)) durable chunks, for
    exponential X on average e^(-(R+L)/M) / (e^((I+C)/M) - 1), so that L stands beside R. It does
    not move the optimal interval, which depends on the blocked time only.
    """
    time_s = expected_time(interval_s, t_ckpt_s, mtbf_s, restore_s + durable_lag_s, downtime_s)
    return time_s / positive("interval_s", interval_s) - 1.0


def whole_chunks(work_s: float, t_ckpt_s: float, mtbf_s: float) -> int:
    """How many equal chunks finish `work_s` soonest: the better neighbour of work/I_exact.

    Minimises K (e^((work/K + C)/M) - 1), which is convex in K; at least 1.
    """
    positive("work_s", work_s)
    best = work_s / max(exact_interval(t_ckpt_s, mtbf_s), work_s * 1e-9)
    low = max(1, math.floor(best))
    return min((low, low + 1), key=lambda k: k * _grow((work_s / k + t_ckpt_s) / mtbf_s))


def cost_overhead(
    price_per_gpu_h: float, gpu_count: int, utilisation: float, overhead_s: float
) -> float:
    """Cost_overhead = c_gpu N_gpu / U x Overhead_seconds / 3600, in the price's currency.

    `utilisation` U is the used share of what is paid, above 0 and at most 1.
    """
    if not 0.0 < utilisation <= 1.0:
        raise ConfigError(f"utilisation {utilisation} is not above 0 and at most 1")
    return price_per_gpu_h * gpu_count / utilisation * overhead_s / 3600.0


def cost_total(
    price_per_gpu_h: float, gpu_count: int, utilisation: float, useful_s: float, overhead_s: float
) -> float:
    """Cost of useful and overhead seconds together, in the price's currency."""
    return cost_overhead(price_per_gpu_h, gpu_count, utilisation, useful_s + overhead_s)


def _grow(span: float) -> float:
    return math.inf if span > _LARGEST_EXPONENT else math.expm1(span)


def positive(name: str, value: float) -> float:
    if not (value > 0.0 and math.isfinite(value)):
        raise ConfigError(f"{name} is {value}", fix="give a positive number of seconds")
    return value


def not_negative(name: str, value: float) -> float:
    if not (value >= 0.0 and math.isfinite(value)):
        raise ConfigError(f"{name} is {value}", fix="give a number of seconds, 0 or more")
    return value
