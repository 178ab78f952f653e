"""Many copies of a job, each taken from one interruption to the next in a few array operations."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from milepost.planner.simulation.attempt import Pattern, Progress, pattern_of
from milepost.planner.simulation.failures import Exponential, Failures, Never
from milepost.planner.simulation.job import Job, Preemption, Walltime
from milepost.planner.simulation.policies import Pace, Policy, View

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

_DONE = 1e-9
"""A remainder of so small a part of the work is a rounding error."""

_Z95 = 1.6448536269514722


@dataclass(slots=True)
class State:
    """Arrays over the jobs that still run, at the start of an attempt."""

    ids: NDArray[np.int64]
    key: Array
    now_s: Array
    saved_s: Array
    far_s: Array
    phase: Array
    is_far_only: Mask
    next_restore_s: Array
    end_s: Array
    fail_s: Array
    preempt_s: Array
    lost_s: Array
    restore_s: Array
    waiting_s: Array
    checkpoints: Array
    failures: Array
    preemptions: Array
    saved_preemptions: Array
    allocations: Array

    def keep(self, mask: Mask) -> None:
        for one in fields(self):
            setattr(self, one.name, getattr(self, one.name)[mask])


@dataclass(slots=True)
class Event:
    """How attempts end: struck when and by what, over when, and what the work had come to."""

    struck_s: Array
    end_s: Array
    worked_s: Array
    kept_s: Array
    saves: Array
    is_failure: Mask
    is_preemption: Mask
    is_in_time: Mask
    progress: Progress


class Fleet:
    """`count` copies of `job`. `step` takes each to its next interruption or its end."""

    def __init__(
        self,
        job: Job,
        failures: Failures,
        policy: Policy,
        count: int,
        first_id: int,
        rng: np.random.Generator,
    ) -> None:
        self._job, self._policy, self._rng = job, policy, rng
        self._failures = failures
        preemption = job.preemption
        self._preempts = Never() if preemption is None else Exponential(preemption.mtbf_s)
        self._pattern: Pattern = pattern_of(job)
        key, zero = failures.start(rng, count), np.zeros(count)
        end_s = np.full(count, np.inf if job.walltime is None else job.walltime.length_s)
        self.state = State(
            ids=np.arange(first_id, first_id + count),
            key=key,
            end_s=end_s,
            fail_s=failures.after(rng, zero, key),
            preempt_s=self._preempts.after(rng, zero, key),
            allocations=np.ones(count),
            is_far_only=np.zeros(count, dtype=bool),
            **{name: np.zeros(count) for name in _ZEROS},
        )

    @property
    def saved_share(self) -> float:
        """Saved share of the work, on average over the jobs that still run."""
        return float(self.state.saved_s.mean()) / self._job.work_s

    def step(self) -> State | None:
        """Play one attempt of every job; those that ended, as they were at their end."""
        state, job = self.state, self._job
        pace = self._policy.pace(self._view())
        left_s = job.work_s - state.saved_s
        needed_s, saves = self._pattern.needed(pace, left_s, state.phase)
        finish_s = state.now_s + state.next_restore_s + needed_s
        event = self._interruption(pace, finish_s, left_s)
        # What the last checkpoint of an allocation holds may be all there was to do.
        is_done = finish_s <= event.struck_s
        is_whole = event.is_in_time & (left_s - event.worked_s <= _DONE * job.work_s) & ~is_done
        finish_s = np.where(is_whole, event.end_s, finish_s)
        is_done |= is_whole
        ended = None
        if is_done.any():
            self._account_whole(event, is_whole)
            ended = self._retire(is_done, finish_s, np.where(is_whole, event.saves, saves))
        self._apply(event)
        if ended is not None:
            state.keep(~is_done)
        return ended

    def _view(self) -> View:
        state, job = self.state, self._job
        left_s: float | Array = np.inf
        if job.walltime is not None:
            left_s = state.end_s - job.reserve_s - state.now_s - state.next_restore_s
        losses = state.failures + state.preemptions - state.saved_preemptions
        running_s = state.now_s - state.waiting_s
        return View(left_s, losses, running_s, state.now_s, state.ids)

    def _interruption(self, pace: Pace, finish_s: Array, left_s: Array) -> Event:
        """The first of failure, preemption and end of allocation; at `finish_s` at the latest."""
        state, job = self.state, self._job
        begin_s = state.now_s + state.next_restore_s
        hit_s, none = state.fail_s, np.zeros(len(finish_s), dtype=bool)
        is_stop = is_preemption = none
        if job.preemption is not None:
            is_preemption = state.preempt_s < hit_s
            hit_s = np.minimum(hit_s, state.preempt_s)
        if job.walltime is not None:
            stop_s = state.end_s - job.reserve_s
            is_stop = stop_s <= hit_s
            is_preemption &= ~is_stop
            hit_s = np.minimum(hit_s, stop_s)
        end_s = np.minimum(hit_s, finish_s)
        worked = np.maximum(end_s - begin_s, 0.0)
        if job.walltime is not None and self._policy.saves_last:
            worked -= is_stop * np.minimum(worked, job.t_ckpt_s)
        progress = self._pattern.after(pace, worked, left_s, state.phase)
        event = Event(
            struck_s=hit_s,
            end_s=end_s,
            worked_s=np.minimum(progress.worked_s, left_s),
            kept_s=np.minimum(progress.near_s, left_s),
            saves=progress.saves,
            is_failure=~(is_stop | is_preemption),
            is_preemption=is_preemption,
            is_in_time=is_stop & self._policy.saves_last,
            progress=progress,
        )
        if job.preemption is not None:
            self._force(event, job.preemption, begin_s)
        event.kept_s = np.where(event.is_in_time, event.worked_s, event.kept_s)
        event.saves = event.saves + event.is_in_time
        return event

    def _force(self, event: Event, preemption: Preemption, begin_s: Array) -> None:
        """Decide whether the forced checkpoint is durable before the notice ends."""
        t_ckpt_s = preemption.median_s
        if 0.0 < preemption.median_s < preemption.p95_s:
            sigma = np.log(preemption.p95_s / preemption.median_s) / _Z95
            drawn = self._rng.standard_normal(len(begin_s))
            t_ckpt_s = preemption.median_s * np.exp(sigma * drawn)
        has_work = event.end_s > begin_s
        forced_s = np.where(has_work, preemption.step_s + t_ckpt_s, 0.0)
        fits = (forced_s <= preemption.notice_s) & (self.state.fail_s > event.end_s + forced_s)
        event.is_in_time = event.is_in_time | (event.is_preemption & fits)
        spent_s = np.where(fits, forced_s, preemption.notice_s)
        event.end_s = event.end_s + event.is_preemption * spent_s

    def _apply(self, event: Event) -> None:
        """Account for the attempt, and set up the next one."""
        state, job, rng = self.state, self._job, self._rng
        state.restore_s += np.minimum(event.end_s - state.now_s, state.next_restore_s)
        state.checkpoints += event.saves
        state.failures += event.is_failure
        state.preemptions += event.is_preemption
        state.saved_preemptions += event.is_preemption & event.is_in_time
        kept_s = self._keep(event)
        state.lost_s += event.worked_s - kept_s
        state.saved_s += kept_s
        waiting_s = np.where(event.is_failure, job.downtime_s, self._requeue(event))
        now_s = event.end_s + waiting_s
        if job.walltime is not None:
            now_s = self._allocate(job.walltime, event, now_s)
        state.waiting_s += now_s - event.end_s
        state.now_s = now_s
        is_new = event.is_failure | (state.fail_s <= now_s)
        following = self._failures.after(rng, now_s, state.key)
        state.fail_s = np.where(is_new, following, state.fail_s)
        if job.preemption is not None:
            is_new = event.is_preemption | (state.preempt_s <= now_s)
            following = self._preempts.after(rng, now_s, state.key)
            state.preempt_s = np.where(is_new, following, state.preempt_s)

    def _keep(self, event: Event) -> Array:
        """Useful seconds that the next attempt finds (below 0: the near tier is gone)."""
        state, job = self.state, self._job
        state.next_restore_s = np.full(len(state.now_s), float(job.restore_s))
        if job.far is None:
            return event.kept_s
        found = event.progress
        far_s = np.maximum(state.far_s, state.saved_s + np.minimum(found.far_s, event.worked_s))
        far_s = np.where(event.is_in_time, state.saved_s + event.worked_s, far_s)
        is_gone = event.is_failure & (self._rng.random(len(far_s)) < job.far.node_loss)
        is_gone |= event.is_preemption & ~event.is_in_time
        # What was restored from the far tier is in the near one after the next checkpoint.
        state.is_far_only = is_gone | (
            state.is_far_only & (found.near_s <= 0.0) & ~event.is_in_time
        )
        state.next_restore_s[state.is_far_only] = job.far.restore_s
        state.phase = np.where(is_gone | event.is_in_time, 0.0, found.phase)
        state.far_s = far_s
        return np.where(is_gone, far_s - state.saved_s, event.kept_s)

    def _requeue(self, event: Event) -> Array | float:
        walltime, preemption = self._job.walltime, self._job.preemption
        after_stop = 0.0 if walltime is None else walltime.requeue_s
        if preemption is None:
            return after_stop
        return np.where(event.is_preemption, preemption.requeue_s, after_stop)

    def _allocate(self, walltime: Walltime, event: Event, now_s: Array) -> Array:
        """A new allocation where the old one is over; when the next attempt starts."""
        state, job = self.state, self._job
        is_new = ~event.is_failure if walltime.in_place else np.ones(len(now_s), dtype=bool)
        if walltime.in_place:
            busy_s = state.next_restore_s + job.t_ckpt_s + job.reserve_s
            is_spent = event.is_failure & (now_s + busy_s >= state.end_s)
            later_s = np.maximum(now_s, state.end_s) + walltime.requeue_s
            now_s = np.where(is_spent, later_s, now_s)
            is_new |= is_spent
        state.end_s = np.where(is_new, now_s + walltime.length_s, state.end_s)
        state.allocations += is_new
        return now_s

    def _account_whole(self, event: Event, is_whole: Mask) -> None:
        """Jobs that a forced checkpoint ended were preempted all the same."""
        self.state.preemptions += is_whole & event.is_preemption
        self.state.saved_preemptions += is_whole & event.is_preemption

    def _retire(self, is_done: Mask, finish_s: Array, saves: Array) -> State:
        """The jobs that end, with their last attempt accounted for; `now_s` is their end."""
        state = self.state
        ended = State(**{one.name: getattr(state, one.name)[is_done] for one in fields(State)})
        ended.restore_s = ended.restore_s + ended.next_restore_s
        ended.checkpoints = ended.checkpoints + saves[is_done]
        ended.now_s = finish_s[is_done]
        return ended


_ZEROS = (
    "now_s",
    "saved_s",
    "far_s",
    "phase",
    "next_restore_s",
    "preemptions",
    "lost_s",
    "restore_s",
    "waiting_s",
    "checkpoints",
    "failures",
    "saved_preemptions",
)
