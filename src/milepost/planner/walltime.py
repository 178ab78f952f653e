"""Work in reservations that end: how many are needed, and how to space checkpoints in one."""

from __future__ import annotations

import math
from collections.abc import Sequence

from milepost.errors import ConfigError
from milepost.planner.theory import exact_interval

END_MARGIN_S = 60.0
"""What is kept free before the end of an allocation besides a checkpoint and a step."""


def end_margin(t_ckpt_p95_s: float | None, step_s: float | None) -> float:
    """Seconds before the walltime at which the last checkpoint starts: p95 + one step + 60 s."""
    return (t_ckpt_p95_s or 0.0) + (step_s or 0.0) + END_MARGIN_S


def even_split(left_s: float, t_ckpt_s: float, mtbf_s: float) -> float:
    """Interval that fits `left_s` seconds of a reservation: k = round(left/(I_exact + C)) equal parts.

    The last checkpoint ends with the reservation, so that no work is thrown away there; within
    0.01 % of dynamic programming. At least one part; never longer than what is left.
    """
    return split_near(left_s, t_ckpt_s, exact_interval(t_ckpt_s, mtbf_s))


def split_near(left_s: float, t_ckpt_s: float, interval_s: float) -> float:
    """The interval nearest to `interval_s` that cuts `left_s` seconds into equal parts."""
    period = interval_s + t_ckpt_s
    parts = max(1, round(left_s / period)) if period > 0.0 else 1
    return max(0.0, left_s / parts - t_ckpt_s)


def reservations(work_s: float, walltime_s: float, restore_s: float, reserved_s: float) -> int:
    """How many reservations of `walltime_s` hold `work_s` useful seconds when nothing fails.

    Each but the first starts with `restore_s`; `reserved_s` at each end is for the last
    checkpoint and its margin.
    """
    first, later = walltime_s - reserved_s, walltime_s - reserved_s - restore_s
    if work_s <= first:
        return 1
    if later <= 0.0:
        raise ConfigError(
            f"runtime_s {walltime_s:g} leaves no time for work beside {restore_s:.4g} s of restart "
            f"and {reserved_s:.4g} s for the last checkpoint",
            where="resources.runtime_s",
            fix="ask for a longer runtime_s",
        )
    return 1 + math.ceil((work_s - max(first, 0.0)) / later)


def last_checkpoint_start(left_s: float, t_ckpt_sample_s: Sequence[float]) -> float:
    """When to start the last checkpoint, X seconds before the end, from measured durations.

    Maximises (left - X) P(t_ckpt <= X) over the sample's distribution (Barbut et al., FTXS
    2023): the best X is one of the measured durations. 0 when none of them fits.
    """
    sample = sorted(x for x in t_ckpt_sample_s if x <= left_s)
    if not sample:
        return 0.0
    gains = [(left_s - x) * (rank + 1) for rank, x in enumerate(sample)]
    return sample[max(range(len(sample)), key=gains.__getitem__)]
