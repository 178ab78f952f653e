"""When to save: small values with two methods, composed with AnyOf."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Moment:
    """What a policy may look at.

    `since_save_s`: seconds since the last save began (or since the start). `now_s`: seconds since
    the epoch. `save_s`: what a durable save is expected to take, `blocked_s`: how long the work
    stands still for it, `step_s`: what a step takes; None when unknown. `stop_reason`: why the
    process should stop, None when it should not.
    """

    since_save_s: float
    now_s: float
    save_s: float | None = None
    step_s: float | None = None
    stop_reason: str | None = None
    blocked_s: float | None = None


class Policy(Protocol):
    """A reason to save."""

    def reason(self, moment: Moment) -> str | None:
        """Why to save now, in a few words; None when there is no reason."""

    def wait_s(self, moment: Moment) -> float:
        """For how long from now on there will be no reason; signals are heard in any case."""


class Periodic(Policy, Protocol):
    """A policy that saves again and again."""

    def count(self, left_s: float, moment: Moment) -> int:
        """Into how many pieces, each ended by a save, it would cut `left_s`; at least 1."""


@dataclass(frozen=True, slots=True)
class EverySeconds:
    """Save when `interval_s` have passed since the last save."""

    interval_s: float

    def reason(self, moment: Moment) -> str | None:
        return "interval" if moment.since_save_s >= self.interval_s else None

    def wait_s(self, moment: Moment) -> float:
        return max(self.interval_s - moment.since_save_s, 0.0)

    def count(self, left_s: float, moment: Moment) -> int:
        """So many that none is longer than the interval."""
        return max(math.ceil(left_s / max(self.interval_s, 1e-3)), 1)


@dataclass(frozen=True, slots=True)
class EveryOptimal:
    """Save at the interval that loses least, from the MTBF and the measured blocked time.

    Never more often than the save before takes to become durable, and between `least_s` and
    `most_s`. Until a save was measured, `unknown_s` is the interval.
    """

    mtbf_s: float
    unknown_s: float = 120.0
    least_s: float = 1.0
    most_s: float = math.inf

    def interval_s(self, moment: Moment) -> float:
        """Seconds of work between two saves."""
        if moment.blocked_s is None:
            return self.unknown_s
        best_s = optimal_interval_s(moment.blocked_s, self.mtbf_s)
        return max(min(max(best_s, self.least_s), self.most_s), moment.save_s or 0.0)

    def reason(self, moment: Moment) -> str | None:
        return "interval" if self.wait_s(moment) <= 0 else None

    def wait_s(self, moment: Moment) -> float:
        period_s = self.interval_s(moment) + (moment.blocked_s or 0.0)
        return max(period_s - moment.since_save_s, 0.0)

    def count(self, left_s: float, moment: Moment) -> int:
        """The nearest whole number, but no piece longer than `most_s`, nor shorter than a save
        takes to become durable."""
        blocked_s = moment.blocked_s or 0.0
        pieces = round(left_s / (self.interval_s(moment) + blocked_s))
        pieces = max(pieces, math.ceil(left_s / (self.most_s + blocked_s) - 1e-9))
        most = int(left_s / moment.save_s) if moment.save_s else pieces
        return max(min(pieces, most), 1)


@dataclass(frozen=True, slots=True)
class BeforeWalltime:
    """Save while a save, one step and `margin_s` still fit before `deadline_s` (epoch).

    With `every`, the time up to there is cut evenly into as many pieces as that policy would:
    within 0.01 % of the optimum, and no save just before the last one.
    """

    deadline_s: float
    margin_s: float = 60.0
    every: Periodic | None = None

    def latest_s(self, moment: Moment) -> float:
        """The moment (epoch) from which on the last save is due."""
        return self.deadline_s - self.margin_s - (moment.save_s or 0.0) - (moment.step_s or 0.0)

    def reason(self, moment: Moment) -> str | None:
        if moment.now_s >= self.latest_s(moment):
            return "walltime"
        return "interval" if self._piece_left_s(moment) <= 0 else None

    def wait_s(self, moment: Moment) -> float:
        left_s = max(self.latest_s(moment) - moment.now_s, 0.0)
        # Half of what is left: what is known about steps and saves gets better on the way.
        return min(left_s / 2, max(self._piece_left_s(moment), 0.0))

    def _piece_left_s(self, moment: Moment) -> float:
        """Until the next save that is not the last one; infinite when there is none."""
        left_s = self.latest_s(moment) - moment.now_s + moment.since_save_s
        count = 1 if self.every is None else self.every.count(left_s, moment)
        return math.inf if count == 1 else left_s / count - moment.since_save_s


@dataclass(frozen=True, slots=True)
class OnSignal:
    """Save when the process was told to stop."""

    def reason(self, moment: Moment) -> str | None:
        return moment.stop_reason

    def wait_s(self, moment: Moment) -> float:
        return math.inf


@dataclass(frozen=True)
class AnyOf:
    """The first reason among several policies."""

    policies: tuple[Policy, ...]

    def reason(self, moment: Moment) -> str | None:
        for policy in self.policies:
            found = policy.reason(moment)
            if found is not None:
                return found
        return None

    def wait_s(self, moment: Moment) -> float:
        return min((policy.wait_s(moment) for policy in self.policies), default=math.inf)


def optimal_interval_s(blocked_s: float, mtbf_s: float) -> float:
    """The interval t that loses least: (t/M) = 1 - exp(-(t + C)/M), by Newton's method.

    The exact optimum for failures at a constant rate, M (1 + W0(-exp(-1 - C/M))); written without
    Lambert's function, whose digits are gone for a small C/M. C: `blocked_s`, M: `mtbf_s`.
    """
    if blocked_s <= 0:
        return 0.0
    ratio = blocked_s / mtbf_s
    x = min(math.sqrt(2 * ratio), 1.0)
    for _ in range(60):
        rest = math.exp(-x - ratio)
        step = (x + math.expm1(-x - ratio)) / (1 - rest)
        x -= step
        if abs(step) <= 1e-14 * x:
            break
    return x * mtbf_s
