"""The same job as `milepost simulate` plays, one activity after the other in a plain Python loop.

Written independently of the simulator's closed forms: tests hold one against the other, and the
benchmark measures one beside the other.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from milepost.planner.simulation.job import Job

Clock = Callable[[float], float]
"""The next interruption after a moment."""


@dataclass
class Totals:
    """What one run came to, in seconds and counts; named as in the simulator's `Runs`."""

    wall_s: float = 0.0
    lost_s: float = 0.0
    restore_s: float = 0.0
    waiting_s: float = 0.0
    checkpoints: int = 0
    failures: int = 0
    preemptions: int = 0
    saved_preemptions: int = 0
    allocations: int = 1


@dataclass
class Copy:
    """A checkpoint: from when on it can be used, the work it holds, and whether it is far."""

    usable_s: float
    work_s: float
    is_far: bool
    phase: int


class Run:
    """One run of `job`. `interval` is asked at each start with the seconds left in the
    allocation; `forced_s` is what a forced checkpoint takes."""

    def __init__(
        self,
        job: Job,
        next_failure: Clock,
        next_preemption: Clock,
        interval: Callable[[float], float],
        saves_last: bool = True,
        forced_s: float = 0.0,
        loses_node: Callable[[], bool] = lambda: True,
    ) -> None:
        self.job, self.interval, self.saves_last = job, interval, saves_last
        self.next_failure, self.next_preemption = next_failure, next_preemption
        self.forced_s, self.loses_node = forced_s, loses_node
        self.totals = Totals()
        self.now_s = self.next_restore_s = 0.0
        self.saved_s = self.far_s = 0.0
        self.phase = 0
        self.is_far_only = False
        self.end_s = math.inf if job.walltime is None else job.walltime.length_s
        self.fail_s, self.preempt_s = next_failure(0.0), next_preemption(0.0)

    def play(self) -> Totals:
        while not self.attempt():
            pass
        return self.totals

    def attempt(self) -> bool:
        """From a start to the next interruption, or to the end of the work (True)."""
        job = self.job
        stop_s = self.end_s - job.reserve_s
        struck_s = min(stop_s, self.preempt_s, self.fail_s)
        is_stop = struck_s == stop_s
        is_preemption = not is_stop and struck_s == self.preempt_s
        begin_s = self.now_s + self.next_restore_s
        before_s, before_saves = self.saved_s, self.totals.checkpoints
        copies, worked_s, end_s = self.work(begin_s, struck_s)
        if end_s is not None:
            self.totals.restore_s += self.next_restore_s
            self.totals.wall_s = end_s
            return True
        if is_stop and self.saves_last:
            self.totals.checkpoints = before_saves
            copies, worked_s, _ = self.work(begin_s, max(struck_s - job.t_ckpt_s, begin_s))
        over_s, in_time = struck_s, is_stop and self.saves_last
        if is_preemption:
            over_s, in_time = self.force(struck_s, struck_s > begin_s)
        self.totals.restore_s += min(over_s - self.now_s, self.next_restore_s)
        is_failure = not is_stop and not is_preemption
        self.restart_from(copies, struck_s, before_s, worked_s, in_time, is_failure, is_preemption)
        self.totals.failures += is_failure
        self.totals.preemptions += is_preemption
        self.totals.saved_preemptions += is_preemption and in_time
        self.totals.checkpoints += in_time
        self.totals.lost_s += before_s + worked_s - self.saved_s
        if in_time and self.saved_s >= job.work_s * (1 - 1e-9):
            self.totals.wall_s = over_s
            return True
        self.wait(over_s, is_failure, is_preemption)
        return False

    def work(self, now_s: float, until_s: float) -> tuple[list[Copy], float, float | None]:
        """Work and save until then: the copies made, the work done, and the end if all is done."""
        job = self.job
        blocks_s, every = (0.0, 0) if job.far is None else (job.far.t_ckpt_s, job.far.every)
        interval_s = self.interval(self.end_s - job.reserve_s - now_s)
        worked_s, phase = 0.0, self.phase
        copies: list[Copy] = []
        while now_s < until_s:
            if blocks_s > 0.0 and phase == every:
                now_s += blocks_s
                if now_s > until_s:
                    break
                phase = 0
                self.totals.checkpoints += 1
                copies += self.both(now_s, worked_s)
                continue
            piece_s = min(interval_s, job.work_s - self.saved_s - worked_s)
            is_last = self.saved_s + worked_s + piece_s >= job.work_s * (1 - 1e-12)
            if now_s + piece_s > until_s:
                return copies, worked_s + until_s - now_s, None
            now_s, worked_s = now_s + piece_s, worked_s + piece_s
            now_s += job.t_ckpt_s + blocks_s * is_last
            if now_s > until_s:
                break
            self.totals.checkpoints += 1 + (blocks_s > 0.0 and is_last)
            if is_last:
                return copies, worked_s, now_s
            phase += 1
            if blocks_s == 0.0 and phase == every:
                phase = 0
                copies += self.both(now_s, worked_s)
            else:
                copies.append(Copy(now_s + job.lag_s, worked_s, False, phase))
        return copies, worked_s, None

    def both(self, now_s: float, worked_s: float) -> list[Copy]:
        """A near and a far copy."""
        assert self.job.far is not None
        usable_s = now_s + self.job.lag_s
        near = Copy(usable_s, worked_s, False, 0)
        return [near, Copy(usable_s + self.job.far.lag_s, worked_s, True, 0)]

    def force(self, struck_s: float, has_work: bool) -> tuple[float, bool]:
        """A forced checkpoint within the notice: when it is over, and whether it is durable."""
        preemption = self.job.preemption
        assert preemption is not None
        needed_s = preemption.step_s + self.forced_s if has_work else 0.0
        if needed_s <= preemption.notice_s and self.fail_s > struck_s + needed_s:
            return struck_s + needed_s, True
        return struck_s + preemption.notice_s, False

    def restart_from(
        self,
        copies: list[Copy],
        now_s: float,
        before_s: float,
        worked_s: float,
        in_time: bool,
        is_failure: bool,
        is_preemption: bool,
    ) -> None:
        """What the next attempt finds, and how long it takes to read it."""
        job = self.job
        usable = [one for one in copies if one.usable_s <= now_s]
        near = [one for one in usable if not one.is_far]
        for one in usable:
            if one.is_far:
                self.far_s = before_s + one.work_s
        is_gone = (is_failure and job.far is not None and self.loses_node()) or (
            is_preemption and not in_time
        )
        if in_time:
            self.saved_s = self.far_s = before_s + worked_s
            self.phase, self.is_far_only = 0, False
        elif job.far is not None and is_gone:
            self.saved_s, self.phase = self.far_s, 0
            self.is_far_only = True
        elif near:
            self.is_far_only = self.is_far_only and near[-1].work_s == 0.0
            self.saved_s, self.phase = before_s + near[-1].work_s, near[-1].phase
        self.next_restore_s = job.restore_s
        if job.far is not None and self.is_far_only:
            self.next_restore_s = job.far.restore_s

    def wait(self, over_s: float, is_failure: bool, is_preemption: bool) -> None:
        """Downtime or requeue; a new allocation where the old one is over."""
        job, walltime = self.job, self.job.walltime
        if is_failure:
            now_s = over_s + job.downtime_s
        elif is_preemption:
            assert job.preemption is not None
            now_s = over_s + job.preemption.requeue_s
        else:
            assert walltime is not None
            now_s = over_s + walltime.requeue_s
        if walltime is not None:
            is_new = not (walltime.in_place and is_failure)
            busy_s = self.next_restore_s + job.t_ckpt_s + job.reserve_s
            if not is_new and now_s + busy_s >= self.end_s:
                now_s, is_new = max(now_s, self.end_s) + walltime.requeue_s, True
            if is_new:
                self.end_s = now_s + walltime.length_s
                self.totals.allocations += 1
        self.totals.waiting_s += now_s - over_s
        self.now_s = now_s
        if is_failure or self.fail_s <= now_s:
            self.fail_s = self.next_failure(now_s)
        if is_preemption or self.preempt_s <= now_s:
            self.preempt_s = self.next_preemption(now_s)
