"""Preemption with notice: only a forced checkpoint that comes too late costs work."""

from __future__ import annotations

import math

_Z95 = 1.6448536269514722
"""The 95 % quantile of the standard normal distribution."""


def forced_checkpoint_chance(
    notice_s: float, step_s: float, t_ckpt_median_s: float, t_ckpt_p95_s: float
) -> float:
    """P(step + t_ckpt <= notice): the chance that a forced checkpoint is durable in time.

    t_ckpt is taken as log-normal through its median and 95 % quantile.
    """
    left_s = notice_s - step_s
    if left_s <= 0.0:
        return 0.0
    sigma = _sigma(t_ckpt_median_s, t_ckpt_p95_s)
    if sigma == 0.0:
        return 1.0 if t_ckpt_median_s <= left_s else 0.0
    return _normal(math.log(left_s / t_ckpt_median_s) / sigma)


def forced_checkpoint_mean(
    notice_s: float, step_s: float, t_ckpt_median_s: float, t_ckpt_p95_s: float
) -> float:
    """Mean seconds from the notice to the end of a forced checkpoint, of those that fit.

    Step and the mean of a log-normal that is cut at the notice: m e^(s^2/2) F(z-s)/F(z) with
    z = ln((notice - step)/m)/s. Where none fits, the notice itself.
    """
    chance = forced_checkpoint_chance(notice_s, step_s, t_ckpt_median_s, t_ckpt_p95_s)
    if chance <= 0.0:
        return notice_s
    sigma = _sigma(t_ckpt_median_s, t_ckpt_p95_s)
    if sigma == 0.0:
        return step_s + t_ckpt_median_s
    z = math.log((notice_s - step_s) / t_ckpt_median_s) / sigma
    return step_s + t_ckpt_median_s * math.exp(sigma**2 / 2.0) * _normal(z - sigma) / chance


def _sigma(median_s: float, p95_s: float) -> float:
    """Of the logarithm; 0 when the duration does not vary."""
    is_wide = 0.0 < median_s < p95_s
    return math.log(p95_s / median_s) / _Z95 if is_wide else 0.0


def _normal(z: float) -> float:
    return 0.5 * math.erfc(-z / math.sqrt(2.0))


def effective_mtbf(mtbf_s: float, preempt_mtbf_s: float | None, saved_chance: float) -> float:
    """M_eff in seconds: 1/M_eff = 1/M_fail + (1 - p)/M_preempt.

    Two independent Poisson streams, the second thinned by what is saved in time (Kingman 1993,
    Poisson Processes, 1.3 and 2.2). `preempt_mtbf_s` is the mean time between preemptions (None: there are none), p the chance
    that the notice is long enough.
    """
    if preempt_mtbf_s is None:
        return mtbf_s
    return 1.0 / (1.0 / mtbf_s + (1.0 - saved_chance) / preempt_mtbf_s)


def preempted_overhead(
    overhead: float,
    preempt_mtbf_s: float,
    saved_chance: float,
    saved_cost_s: float,
    missed_cost_s: float = 0.0,
    mtbf_s: float = math.inf,
    downtime_s: float = 0.0,
) -> float:
    """The overhead with the time that preemptions cost beside lost work: fraction of useful time.

    `overhead` is the exact one at M_eff (`mtbf_s`), which knows only the preemptions that lose
    work. Of the others, each running second sees p/M_preempt, at `saved_cost_s` each: forced
    checkpoint, wait and restore, less half a periodic checkpoint, which the forced one makes
    needless on average. A missed one costs `missed_cost_s` beside the work, a restore and
    `downtime_s`. Waits (D of each M + D) are not running. First order in the preemptions; renewal reward.
    """
    running = 1.0 if math.isinf(mtbf_s) else mtbf_s / (mtbf_s + downtime_s)
    each_s = saved_chance * saved_cost_s + (1.0 - saved_chance) * missed_cost_s
    return (1.0 + overhead) * (1.0 + running * each_s / preempt_mtbf_s) - 1.0
