"""When to save: small values with one method, composed with AnyOf."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Moment:
    """What a policy may look at.

    `since_save_s`: seconds since the last save (or the start). `now_s`: seconds since the epoch.
    `save_s`: what a durable save is expected to take, `step_s`: what a step takes; None when
    unknown. `stop_reason`: why the process should stop, None when it should not.
    """

    since_save_s: float
    now_s: float
    save_s: float | None = None
    step_s: float | None = None
    stop_reason: str | None = None


class Policy(Protocol):
    """A reason to save."""

    def reason(self, moment: Moment) -> str | None:
        """Why to save now, in a few words; None when there is no reason."""


@dataclass(frozen=True, slots=True)
class EverySeconds:
    """Save when `interval_s` have passed since the last save."""

    interval_s: float

    def reason(self, moment: Moment) -> str | None:
        return "interval" if moment.since_save_s >= self.interval_s else None


@dataclass(frozen=True, slots=True)
class BeforeDeadline:
    """Save while a save, one step and `margin_s` still fit before `deadline_s` (epoch)."""

    deadline_s: float
    margin_s: float = 60.0

    def latest_s(self, moment: Moment) -> float:
        """The moment (epoch) from which on the save is due."""
        return self.deadline_s - self.margin_s - (moment.save_s or 0.0) - (moment.step_s or 0.0)

    def reason(self, moment: Moment) -> str | None:
        return "walltime" if moment.now_s >= self.latest_s(moment) else None


@dataclass(frozen=True, slots=True)
class OnSignal:
    """Save when the process was told to stop."""

    def reason(self, moment: Moment) -> str | None:
        return moment.stop_reason


@dataclass(frozen=True, slots=True)
class AnyOf:
    """The first reason among several policies."""

    policies: tuple[Policy, ...]

    def reason(self, moment: Moment) -> str | None:
        for policy in self.policies:
            found = policy.reason(moment)
            if found is not None:
                return found
        return None
