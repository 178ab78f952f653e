"""When the next save is due, asked so cheaply that it can be asked at every step."""

from __future__ import annotations

import time

from milepost.checkpoint.options import Options
from milepost.checkpoint.policies import (
    AnyOf,
    BeforeDeadline,
    EverySeconds,
    Moment,
    OnSignal,
    Policy,
)

_SAMPLES = 50
_P = 0.95
_POSTPONE_S = 0.05


class Schedule:
    """Keeps the times that the policies look at; `next_look` (monotonic) is when to ask again."""

    def __init__(self, options: Options) -> None:
        self._interval_s = options.interval_s
        self._deadline = (
            None
            if options.deadline is None
            else BeforeDeadline(options.deadline, options.deadline_margin_s)
        )
        policies: list[Policy] = [OnSignal(), EverySeconds(options.interval_s)]
        if self._deadline is not None:
            policies.insert(0, self._deadline)
        self._policy = AnyOf(tuple(policies))
        self._saves_s: list[float] = []
        self.steps, self.next_look = 0, 0.0
        self.restart()

    def restart(self) -> None:
        """A save begins now: the next one is due an interval later."""
        self._last_save = time.monotonic()
        self.steps = 0
        self._plan_look()

    def durable(self, seconds: float) -> None:
        """A save took `seconds` until it was durable."""
        self._saves_s = [*self._saves_s, seconds][-_SAMPLES:]

    def postpone(self) -> None:
        """A save is due but the one before is still under way: look again a little later."""
        self.next_look = time.monotonic() + min(self._interval_s, _POSTPONE_S)

    def reason(self, stop_reason: str | None) -> str | None:
        """Why to save now; None when there is no reason."""
        moment = self._moment(stop_reason)
        self._plan_look()
        return self._policy.reason(moment)

    def _moment(self, stop_reason: str | None = None) -> Moment:
        since = time.monotonic() - self._last_save
        step_s = since / self.steps if self.steps else None
        return Moment(since, time.time(), _percentile(self._saves_s), step_s, stop_reason)

    def _plan_look(self) -> None:
        now = time.monotonic()
        self.next_look = max(self._last_save + self._interval_s, now)
        if self._deadline is not None:
            moment = self._moment()
            left = self._deadline.latest_s(moment) - moment.now_s
            # Half of what is left: what is known about steps and saves gets better on the way.
            self.next_look = min(self.next_look, now + max(left / 2, 0.0))


def _percentile(values: list[float]) -> float | None:
    """The 95th percentile: the smallest value that at least 95 % do not exceed."""
    if not values:
        return None
    return sorted(values)[min(int(_P * len(values)), len(values) - 1)]
