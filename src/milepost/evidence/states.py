"""What follows from the three witnesses about a shard: one total, pure function over a table.

The table is workflow/policies/states.yaml. It is fail-closed: DONE needs all three witnesses.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import Any

from milepost.errors import ConfigError
from milepost.model import Verdict
from milepost.resources import data_file, load_yaml


class Journal(StrEnum):
    """What the journal of the shard says about the work."""

    NONE = "none"
    PARTIAL = "partial"
    COMPLETE = "complete"
    FAILED = "failed"
    DAMAGED = "damaged"


class Scheduler(StrEnum):
    """What the scheduler says about the last attempt.

    `none`: there is no scheduler, or the shard was never given to it. `not_listed`: it answered
    and does not know the job. `not_heard`: it did not answer.
    """

    NONE = "none"
    ALIVE = "alive"
    PENDING = "pending"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    TIMEOUT = "timeout"
    PREEMPTED = "preempted"
    NODE_FAIL = "node_fail"
    OUT_OF_MEMORY = "out_of_memory"
    NOT_LISTED = "not_listed"
    NOT_HEARD = "not_heard"


class Artifacts(StrEnum):
    """What was found of the artifacts of the work that the journal calls done."""

    VERIFIED = "verified"
    MISSING = "missing"
    BAD = "bad"
    UNCHECKED = "unchecked"
    NOT_EXPECTED = "not_expected"


@dataclass(frozen=True, slots=True)
class Decision:
    """A verdict, the reason for it, and what comes next.

    `command` is a template with {run} and {shard}; empty when there is nothing to do.
    """

    verdict: Verdict
    reason: str
    next_action: str
    command: str

    def command_for(self, run: str, shard: str) -> str:
        """The command for one shard."""
        return self.command.replace("{run}", run).replace("{shard}", shard)


@dataclass(frozen=True, slots=True)
class Rule:
    """A row of the table: the sets of words it is for, and what follows."""

    journal: frozenset[Journal]
    scheduler: frozenset[Scheduler]
    artifacts: frozenset[Artifacts]
    decision: Decision

    def fits(self, journal: Journal, scheduler: Scheduler, artifacts: Artifacts) -> bool:
        return (
            journal in self.journal and scheduler in self.scheduler and artifacts in self.artifacts
        )


def decide(journal: Journal, scheduler: Scheduler, artifacts: Artifacts) -> Decision:
    """Judge a shard by its three witnesses. Pure and total."""
    return _table()[journal, scheduler, artifacts]


def rules() -> tuple[Rule, ...]:
    """The rules in the order in which they are tried."""
    table = load_yaml("policies", "states.yaml")
    return tuple(_rule(row, table["commands"]) for row in table["rules"])


@cache
def _table() -> Mapping[tuple[Journal, Scheduler, Artifacts], Decision]:
    ordered = rules()
    return {
        (journal, scheduler, artifacts): _first(ordered, journal, scheduler, artifacts)
        for journal in Journal
        for scheduler in Scheduler
        for artifacts in Artifacts
    }


def _first(
    ordered: tuple[Rule, ...], journal: Journal, scheduler: Scheduler, artifacts: Artifacts
) -> Decision:
    for rule in ordered:
        if rule.fits(journal, scheduler, artifacts):
            return _filled(rule.decision, scheduler)
    raise ConfigError(
        f"no rule for journal {journal}, scheduler {scheduler}, artifacts {artifacts}",
        where=data_file("policies", "states.yaml"),
        fix="add a rule; UNKNOWN is the safe verdict",
    )


def _filled(decision: Decision, scheduler: Scheduler) -> Decision:
    start = "snakemake -c2" if scheduler is Scheduler.NONE else "snakemake --profile slurm"
    return Decision(
        decision.verdict,
        decision.reason.replace("{scheduler}", scheduler.replace("_", " ")),
        decision.next_action,
        decision.command.replace("{snakemake}", start),
    )


def _rule(row: Mapping[str, Any], commands: Mapping[str, str]) -> Rule:
    return Rule(
        frozenset(Journal(word) for word in row.get("journal", Journal)),
        frozenset(Scheduler(word) for word in row.get("scheduler", Scheduler)),
        frozenset(Artifacts(word) for word in row.get("artifacts", Artifacts)),
        Decision(
            Verdict(row["verdict"]),
            row["reason"],
            row["next"],
            commands[row["command"]] if row["command"] else "",
        ),
    )
