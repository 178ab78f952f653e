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
    if t_ckpt_median_s <= 0.0 or t_ckpt_p95_s <= t_ckpt_median_s:
        return 1.0 if t_ckpt_median_s <= left_s else 0.0
    sigma = math.log(t_ckpt_p95_s / t_ckpt_median_s) / _Z95
    z = math.log(left_s / t_ckpt_median_s) / sigma
    return 0.5 * math.erfc(-z / math.sqrt(2.0))


def effective_mtbf(mtbf_s: float, preempt_mtbf_s: float | None, saved_chance: float) -> float:
    """M_eff in seconds: 1/M_eff = 1/M_fail + (1 - p)/M_preempt.

    `preempt_mtbf_s` is the mean time between preemptions (None: there are none), p the chance
    that the notice is long enough.
    """
    if preempt_mtbf_s is None:
        return mtbf_s
    return 1.0 / (1.0 / mtbf_s + (1.0 - saved_chance) / preempt_mtbf_s)
