"""When the next save is due, asked so cheaply that it can be asked at every step."""

from __future__ import annotations

import math
import time
from dataclasses import replace

from milepost.checkpoint.options import Options
from milepost.checkpoint.policies import (
    AnyOf,
    BeforeWalltime,
    EveryOptimal,
    EverySeconds,
    Moment,
    OnSignal,
    Policy,
)
from milepost.checkpoint.request import LOOK_S
from milepost.durable import read_json

_SAMPLES = 50
_P = 0.95
_POSTPONE_S = 0.05


def periodic(options: Options) -> EverySeconds | EveryOptimal:
    """Every interval, or as the MTBF and the measured saves make it best."""
    if options.mtbf_s is None:
        return EverySeconds(options.interval_s)
    most_s = math.inf if options.interval_most_s is None else options.interval_most_s
    return EveryOptimal(options.mtbf_s, options.interval_s, most_s=most_s)


def default_policy(options: Options) -> Policy:
    """A signal, the walltime with the time before it split evenly, or the interval."""
    every = periodic(options)
    if options.deadline is None:
        return AnyOf((OnSignal(), every))
    walltime = BeforeWalltime(options.deadline, options.deadline_margin_s, every)
    return AnyOf((OnSignal(), walltime))


def newer_mtbf_s(options: Options) -> float | None:
    """What `mtbf_file` says, seconds; None without one."""
    if options.mtbf_file is None:
        return None
    try:
        return float(read_json(options.mtbf_file)["mtbf_s"])
    except FileNotFoundError:
        return None


class Schedule:
    """Keeps the times that the policy looks at; `next_look` (monotonic) is when to ask again."""

    def __init__(self, options: Options, policy: Policy | None = None) -> None:
        self._options, self._is_default = options, policy is None
        self._policy = policy or default_policy(options)
        self._every = periodic(options) if policy is None else None
        self._postpone_s = min(options.interval_s, _POSTPONE_S)
        self._saves_s: list[float] = []
        self._blocked_s: list[float] = []
        self.steps, self.next_look = 0, 0.0
        self.restart()

    def restart(self) -> None:
        """A save begins now: the next one is due an interval later."""
        self._last_save = time.monotonic()
        self.steps = 0
        self._plan_look()

    def durable(self, seconds: float, blocked_s: float | None = None) -> None:
        """A save took `seconds` until it was durable; the work stood still for `blocked_s`."""
        self._saves_s = [*self._saves_s, seconds][-_SAMPLES:]
        if blocked_s is not None:
            self._blocked_s = [*self._blocked_s, blocked_s][-_SAMPLES:]
        self._hear()
        self.next_look = time.monotonic()

    def _hear(self) -> None:
        """Plan with the MTBF that the runner knows by now, when that is another one."""
        mtbf_s = newer_mtbf_s(self._options) if self._is_default else None
        if mtbf_s is not None and mtbf_s != self._options.mtbf_s:
            self._options = replace(self._options, mtbf_s=mtbf_s)
            self._policy, self._every = default_policy(self._options), periodic(self._options)

    def interval_s(self) -> float | None:
        """Seconds of work between two saves as planned now, before a walltime splits them evenly;
        None under a policy of the caller."""
        if isinstance(self._every, EveryOptimal):
            return self._every.interval_s(self._moment())
        return None if self._every is None else self._every.interval_s

    def postpone(self) -> None:
        """A save is due but the one before is still under way: look again a little later."""
        self.next_look = time.monotonic() + self._postpone_s

    def reason(self, stop_reason: str | None) -> str | None:
        """Why to save now; None when there is no reason."""
        moment = self._moment(stop_reason)
        self._plan_look()
        return self._policy.reason(moment)

    def _moment(self, stop_reason: str | None = None) -> Moment:
        since = time.monotonic() - self._last_save
        step_s = since / self.steps if self.steps else None
        blocked = self._blocked_s
        return Moment(
            since,
            time.time(),
            _percentile(self._saves_s),
            step_s,
            stop_reason,
            sum(blocked) / len(blocked) if blocked else None,
        )

    def _plan_look(self) -> None:
        wait_s = self._policy.wait_s(self._moment())
        self.next_look = time.monotonic() + min(wait_s, LOOK_S)  # a person may ask for a save


def _percentile(values: list[float]) -> float | None:
    """The 95th percentile: the smallest value that at least 95 % do not exceed."""
    if not values:
        return None
    return sorted(values)[min(int(_P * len(values)), len(values) - 1)]
