"""What a reservation of limited length is worth when failures come at a constant rate."""

from __future__ import annotations

import math
from collections.abc import Callable

from milepost.planner.theory import not_negative, positive


def reservation_overhead(
    left_s: float,
    parts: int,
    t_ckpt_s: float,
    mtbf_s: float,
    restore_s: float = 0.0,
    downtime_s: float = 0.0,
    requeue_s: float = 0.0,
    durable_lag_s: float = 0.0,
) -> float:
    """Expected extra time as a fraction of useful time of work in many allocations, exactly.

    An allocation begins with R, then `left_s` hold `parts` equal pieces, each with its
    checkpoint; a failure ends it, and the next one comes after D; at its end the job waits
    `requeue_s` (Q). By renewal reward: time M (1 - e^(-(R+left)/M)) + D P(failed) + Q P(not),
    work (left/k - C) times the sum over i of e^(-(R + min(i left/k + L, left))/M). Infinite when
    nothing is ever saved.
    """
    rate = 1.0 / positive("mtbf_s", mtbf_s)
    period_s = positive("left_s", left_s) / parts
    useful_s = period_s - not_negative("t_ckpt_s", t_ckpt_s)
    lives = math.exp(-rate * (restore_s + left_s))
    time_s = (mtbf_s + downtime_s) * (1.0 - lives) + requeue_s * lives
    # The pieces that are durable before the end are a geometric series.
    early = min(max(math.floor((left_s - durable_lag_s) / period_s), 0), parts)
    series = math.exp(-rate * (restore_s + durable_lag_s)) * _series(rate * period_s, early)
    saved = series + (parts - early) * lives
    return time_s / (useful_s * saved) - 1.0 if useful_s * saved > 0.0 else math.inf


def _series(x: float, count: int) -> float:
    """The sum of e^(-i x) over i = 1 … count."""
    return math.expm1(-count * x) / math.expm1(-x) * math.exp(-x) if x > 0.0 else float(count)


def saved_work(
    length_s: float,
    t_ckpt_s: float,
    mtbf_s: float,
    gone_s: float,
    step_s: float,
    interval: Callable[[float], float] | None = None,
) -> float:
    """Expected useful seconds that a reservation of `length_s` saves; it goes on after a failure.

    V(t) = max over w of e^(-(w+C)/M) (w + V(t-w-C)) + the integral over x < w+C of
    e^(-x/M)/M V(t-x-gone) dx, V(t) = 0 for t <= C: dynamic programming on a grid of `step_s`
    (`gone_s` = D + R; Bellman's principle on the renewal at each failure, with the mean of a step
    for its failures). `interval` maps the seconds left to the work before the next checkpoint,
    or to more than fits for none; None: the best of all. Quadratic in length_s/step_s.
    """
    import numpy as np

    count, cost = round(length_s / step_s), round(t_ckpt_s / step_s)
    gone, rate = gone_s / step_s, step_s / mtbf_s
    grid = np.arange(count + 1, dtype=float)
    dies = np.exp(-rate * grid) * -np.expm1(-rate)
    value = np.zeros(count + 1)
    for left in range(cost + 1, count + 1):
        # A failure in step x of the stretch leaves the value of what remains then.
        lost = dies[:left] * np.interp(left - gone - grid[:left] - 0.5, grid, value, left=0.0)
        work = np.arange(1, left - cost + 1)
        span = work + cost
        gain = np.exp(-rate * span) * (work + value[left - span]) + np.cumsum(lost)[span - 1]
        if interval is None:
            value[left] = gain.max()
        else:
            wanted = round(interval(left * step_s) / step_s)
            value[left] = gain[wanted - 1] if 1 <= wanted <= len(gain) else lost.sum()
    return float(value[count]) * step_s
