"""Expected overhead of a job under everything at once: failures, preemptions, walltime, lag."""

from __future__ import annotations

import math
from dataclasses import dataclass

from milepost.planner.preemption import (
    effective_mtbf,
    forced_checkpoint_chance,
    forced_checkpoint_mean,
    preempted_overhead,
)
from milepost.planner.reservation import reservation_overhead
from milepost.planner.theory import exact_interval, exact_overhead


@dataclass(frozen=True, slots=True)
class Conditions:
    """Seconds. `mtbf_s` is that of hard failures, `preempt_mtbf_s` that of preemptions (None:
    there are none). `left_s`: useful seconds and checkpoints of one allocation, when the work
    takes more than one (None: it does not). A wait between allocations is `requeue_s`."""

    t_ckpt_s: float
    mtbf_s: float
    restore_s: float = 0.0
    downtime_s: float = 0.0
    lag_s: float = 0.0
    requeue_s: float = 0.0
    left_s: float | None = None
    preempt_mtbf_s: float | None = None
    notice_s: float = 0.0
    step_s: float = 0.0
    forced_median_s: float = 0.0
    forced_p95_s: float = 0.0

    @property
    def saved_chance(self) -> float:
        """That a forced checkpoint fits into the notice."""
        return forced_checkpoint_chance(*self._forced)

    @property
    def effective_mtbf_s(self) -> float:
        """Mean seconds between interruptions that lose work."""
        return effective_mtbf(self.mtbf_s, self.preempt_mtbf_s, self.saved_chance)

    @property
    def best_interval_s(self) -> float:
        """Without a walltime; for whole pieces of an allocation see `walltime.even_split`."""
        return exact_interval(self.t_ckpt_s, self.effective_mtbf_s)

    def overhead(self, interval_s: float) -> float:
        """Extra seconds per useful second with checkpoints every `interval_s` of work."""
        mtbf_s = self.effective_mtbf_s
        if self.left_s is None:
            rest = (self.restore_s, self.downtime_s, self.lag_s)
            found = exact_overhead(interval_s, self.t_ckpt_s, mtbf_s, *rest)
        else:
            parts = max(1, round(self.left_s / (interval_s + self.t_ckpt_s)))
            found = reservation_overhead(
                self.left_s,
                parts,
                self.t_ckpt_s,
                mtbf_s,
                self.restore_s,
                self.downtime_s,
                self.requeue_s,
                self.lag_s,
            )
        if self.preempt_mtbf_s is None or math.isinf(found):
            return found
        saved_s = forced_checkpoint_mean(*self._forced) + self.requeue_s + self.restore_s
        return preempted_overhead(
            found,
            self.preempt_mtbf_s,
            self.saved_chance,
            saved_s - 0.5 * self.t_ckpt_s,
            self.notice_s + self.requeue_s - self.downtime_s,
            mtbf_s,
            self.downtime_s,
        )

    @property
    def _forced(self) -> tuple[float, float, float, float]:
        return self.notice_s, self.step_s, self.forced_median_s, self.forced_p95_s
