"""Two tiers of checkpoints, and errors that nobody notices. First order: seconds in, seconds out."""

from __future__ import annotations

import math
from dataclasses import dataclass

from milepost.planner.theory import positive


@dataclass(frozen=True, slots=True)
class TwoTiers:
    """`local_per_remote` fast checkpoints for a slow one, one slow every `period_s` of work."""

    local_per_remote: float
    period_s: float
    overhead: float


def two_tiers(
    local_s: float, remote_s: float, local_mtbf_s: float, remote_mtbf_s: float
) -> TwoTiers:
    """Optimal pattern of a fast tier that survives most failures and a slow one for the rest.

    `local_mtbf_s` is between failures that the fast tier survives, `remote_mtbf_s` between the
    others. n* = sqrt(l1 C2 / (l2 C1)), W* = sqrt((n C1 + C2) / ((l1/n + l2) / 2)) (after Benoit
    et al., IEEE TC 2017). First order without recovery: about a tenth too low, the order of
    alternatives is right. At least one local checkpoint a remote one.
    """
    ratio = positive("remote_mtbf_s", remote_mtbf_s) / positive("local_mtbf_s", local_mtbf_s)
    count = max(1.0, math.sqrt(ratio * remote_s / positive("local_s", local_s)))
    paid_s = count * local_s + remote_s
    lost_rate = 0.5 * (1.0 / (local_mtbf_s * count) + 1.0 / remote_mtbf_s)
    return TwoTiers(count, math.sqrt(paid_s / lost_rate), 2.0 * math.sqrt(paid_s * lost_rate))


def silent_error_period(
    verify_s: float, t_ckpt_s: float, silent_mtbf_s: float, mtbf_s: float
) -> tuple[float, float]:
    """Work between verified checkpoints (seconds) and its overhead, with silent errors.

    W* = sqrt((V + C) / (ls + lf/2)), overhead 2 sqrt((V + C)(ls + lf/2)): a silent error loses
    the whole period, a failure half of it. Keep two verified generations.
    """
    rate = 1.0 / positive("silent_mtbf_s", silent_mtbf_s) + 0.5 / positive("mtbf_s", mtbf_s)
    paid_s = verify_s + t_ckpt_s
    return math.sqrt(paid_s / rate), 2.0 * math.sqrt(paid_s * rate)


def job_mtbf(
    nodes: float, failures_per_node_day: float, job_failures_per_day: float = 0.0
) -> float:
    """MTBF of a job in seconds from the rate of its nodes and a part that does not scale.

    Pure hardware scaling (`job_failures_per_day` 0) is several times too good for small jobs.
    """
    return 86400.0 / positive("rate", nodes * failures_per_node_day + job_failures_per_day)


def useful_ratio(interval_s: float, t_ckpt_s: float, mtbf_s: float, restart_s: float) -> float:
    """Expected useful share of wall time, (1 - (u0 + I/2)/M) / (1 + C/I) (after Meta, 2024)."""
    positive("interval_s", interval_s)
    lost = (restart_s + interval_s / 2.0) / positive("mtbf_s", mtbf_s)
    return (1.0 - lost) / (1.0 + t_ckpt_s / interval_s)
