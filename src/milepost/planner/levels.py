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


def two_tier_overhead(
    period_s: float,
    local_per_remote: int,
    local_s: float,
    remote_s: float,
    local_mtbf_s: float,
    remote_mtbf_s: float,
    local_restore_s: float = 0.0,
    remote_restore_s: float = 0.0,
    downtime_s: float = 0.0,
) -> float:
    """Expected extra time as a fraction of useful time of that pattern, exactly.

    The states of a pattern are its local checkpoints done, i = 0 … n. From each the next is
    reached, or a failure comes: one of the near kind restores state i, one of the far kind state
    0 of the far tier. With s = e^(-d/M) for a stretch of d seconds, the expected time to the end
    of the pattern is T_i = M (1 - s) + s T_{i+1} + (1 - s)(D + (1 - q) S_i + q Z), the same for
    the restores S_i and Z: linear equations, solved backwards with Z as the unknown. Failures
    hit restores too, not the downtime; infinite when no pattern is expected to end.
    """
    rate = 1.0 / positive("local_mtbf_s", local_mtbf_s) + 1.0 / positive(
        "remote_mtbf_s", remote_mtbf_s
    )
    mtbf_s, far = 1.0 / rate, 1.0 / (rate * remote_mtbf_s)
    work_s = positive("period_s", period_s) / local_per_remote
    lives = [math.exp(-rate * d) for d in (local_restore_s, remote_restore_s)]
    rescue = _Line(mtbf_s, far, downtime_s)
    # (a, b): an expected time of a + b Z.
    following = (0.0, 0.0)
    after_first = following
    for stretch_s in (remote_s, *[work_s + local_s] * local_per_remote):
        after_first = following
        following = rescue.state(math.exp(-rate * stretch_s), following, lives[0])
    start = rescue.far_start(math.exp(-rate * (work_s + local_s)), after_first)
    dead = 1.0 - lives[1]
    left = 1.0 - dead - lives[1] * start[1]
    if left <= 0.0 or lives[1] <= 0.0:
        return math.inf
    far_s = (mtbf_s * dead + dead * downtime_s + lives[1] * start[0]) / left
    return (following[0] + following[1] * far_s) / period_s - 1.0


@dataclass(frozen=True, slots=True)
class _Line:
    """One state of a pattern from the one behind it; `far` is the share of far failures."""

    mtbf_s: float
    far: float
    downtime_s: float

    def state(
        self, lives: float, following: tuple[float, float], restore_lives: float
    ) -> tuple[float, float]:
        """T_i = a + b Z, with S_i = alpha + beta Z + gamma T_i put in."""
        near, dead = 1.0 - self.far, 1.0 - restore_lives
        scale = 1.0 - dead * near
        alpha = dead * (self.mtbf_s + self.downtime_s) / scale
        beta, gamma = dead * self.far / scale, restore_lives / scale
        dies = 1.0 - lives
        a = dies * (self.mtbf_s + self.downtime_s + near * alpha) + lives * following[0]
        b = dies * (near * beta + self.far) + lives * following[1]
        rest = 1.0 - dies * near * gamma
        return a / rest, b / rest

    def far_start(self, lives: float, following: tuple[float, float]) -> tuple[float, float]:
        """State 0 after a far restore: until the next local checkpoint, every failure is far."""
        dies = 1.0 - lives
        return dies * (self.mtbf_s + self.downtime_s) + lives * following[0], (
            dies + lives * following[1]
        )


def best_two_tiers(
    local_s: float,
    remote_s: float,
    local_mtbf_s: float,
    remote_mtbf_s: float,
    local_restore_s: float = 0.0,
    remote_restore_s: float = 0.0,
    downtime_s: float = 0.0,
) -> TwoTiers:
    """The pattern of least `two_tier_overhead`: a whole number of local checkpoints.

    Searched around the first-order optimum; the overhead is flat and has one minimum there.
    """
    from scipy.optimize import minimize_scalar

    first = two_tiers(local_s, remote_s, local_mtbf_s, remote_mtbf_s)

    def best(count: int) -> TwoTiers:
        def overhead(log_s: float) -> float:
            return two_tier_overhead(
                math.exp(log_s), count, local_s, remote_s, local_mtbf_s, remote_mtbf_s,
                local_restore_s, remote_restore_s, downtime_s,
            )  # fmt: skip

        middle = math.log(first.period_s)
        found = minimize_scalar(overhead, bounds=(middle - 3.0, middle + 3.0), method="bounded")
        return TwoTiers(count, math.exp(float(found.x)), float(found.fun))

    low, high = 1, max(2, math.ceil(4.0 * first.local_per_remote))
    while high - low > 2:
        third = (high - low) // 3
        left, right = low + third, high - third
        if best(left).overhead <= best(right).overhead:
            high = right
        else:
            low = left
    return min(map(best, range(low, high + 1)), key=lambda one: one.overhead)


def silent_error_period(
    verify_s: float, t_ckpt_s: float, silent_mtbf_s: float, mtbf_s: float
) -> tuple[float, float]:
    """Work between verified checkpoints (seconds) and its overhead, with silent errors.

    W* = sqrt((V + C) / (ls + lf/2)), overhead 2 sqrt((V + C)(ls + lf/2)): a silent error loses
    the whole period, a failure half of it (after Benoit et al., IEEE TC 2017; first order). Keep
    two verified generations.
    """
    rate = 1.0 / positive("silent_mtbf_s", silent_mtbf_s) + 0.5 / positive("mtbf_s", mtbf_s)
    paid_s = verify_s + t_ckpt_s
    return math.sqrt(paid_s / rate), 2.0 * math.sqrt(paid_s * rate)


def job_mtbf(
    nodes: float, failures_per_node_day: float, job_failures_per_day: float = 0.0
) -> float:
    """MTBF of a job in seconds from the rate of its nodes and a part that does not scale.

    Pure hardware scaling (`job_failures_per_day` 0) is several times too good for small jobs
    (measured by Kokolis et al. 2024, arXiv 2410.21680).
    """
    return 86400.0 / positive("rate", nodes * failures_per_node_day + job_failures_per_day)


def useful_ratio(interval_s: float, t_ckpt_s: float, mtbf_s: float, restart_s: float) -> float:
    """Expected useful share of wall time, (1 - (u0 + I/2)/M) / (1 + C/I) (after Meta, 2024)."""
    positive("interval_s", interval_s)
    lost = (restart_s + interval_s / 2.0) / positive("mtbf_s", mtbf_s)
    return (1.0 - lost) / (1.0 + t_ckpt_s / interval_s)
