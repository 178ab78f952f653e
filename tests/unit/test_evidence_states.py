"""The verdict table is total, every rule is of use, and DONE needs all three witnesses."""

from __future__ import annotations

from itertools import product

import pytest

from milepost.evidence.states import Artifacts, Journal, Scheduler, decide, rules
from milepost.model import Verdict

COMBINATIONS = list(product(Journal, Scheduler, Artifacts))


def test_every_combination_is_decided() -> None:
    assert len(COMBINATIONS) == 5 * 12 * 5
    for combination in COMBINATIONS:
        decision = decide(*combination)
        assert decision.reason
        assert "{scheduler}" not in decision.reason
        assert "{snakemake}" not in decision.command


def test_every_rule_decides_something() -> None:
    firsts = {
        next(number for number, rule in enumerate(rules()) if rule.fits(*combination))
        for combination in COMBINATIONS
    }
    assert firsts == set(range(len(rules())))


def test_done_needs_all_three_witnesses() -> None:
    done = {combination for combination in COMBINATIONS if decide(*combination).verdict == "DONE"}
    assert done == set(
        product(
            [Journal.COMPLETE],
            [Scheduler.NONE, Scheduler.COMPLETED],
            [Artifacts.VERIFIED, Artifacts.NOT_EXPECTED],
        )
    )


def test_what_is_not_done_names_a_next_step() -> None:
    for combination in COMBINATIONS:
        decision = decide(*combination)
        is_done = decision.verdict is Verdict.DONE
        assert bool(decision.next_action) is not is_done
        assert bool(decision.command) is not is_done


def test_a_scheduler_that_is_not_heard_never_gives_a_certain_verdict() -> None:
    for journal, artifacts in product(Journal, Artifacts):
        verdict = decide(journal, Scheduler.NOT_HEARD, artifacts).verdict
        assert verdict in (Verdict.UNKNOWN, Verdict.SUSPECT)


def test_damage_is_never_talked_away() -> None:
    for journal, scheduler, artifacts in COMBINATIONS:
        if journal is Journal.DAMAGED or artifacts is Artifacts.BAD:
            assert decide(journal, scheduler, artifacts).verdict is Verdict.SUSPECT


def test_a_shard_at_work_is_never_started_again() -> None:
    for journal, artifacts in product(set(Journal) - {Journal.NONE}, Artifacts):
        for scheduler in (Scheduler.ALIVE, Scheduler.PENDING, Scheduler.NOT_HEARD):
            decision = decide(journal, scheduler, artifacts)
            if decision.verdict is not Verdict.SUSPECT or scheduler is not Scheduler.NOT_HEARD:
                assert "snakemake" not in decision.command


@pytest.mark.parametrize(
    ("journal", "scheduler", "artifacts", "verdict"),
    [
        ("none", "none", "not_expected", "PENDING"),
        ("none", "pending", "not_expected", "PENDING"),
        ("none", "alive", "not_expected", "RUNNING"),
        ("none", "completed", "not_expected", "SUSPECT"),
        ("none", "failed", "not_expected", "FAILED"),
        ("none", "none", "verified", "SUSPECT"),
        ("partial", "none", "verified", "INTERRUPTED"),
        ("partial", "timeout", "unchecked", "INTERRUPTED"),
        ("partial", "preempted", "verified", "INTERRUPTED"),
        ("partial", "node_fail", "verified", "INTERRUPTED"),
        ("partial", "out_of_memory", "verified", "FAILED"),
        ("partial", "completed", "verified", "SUSPECT"),
        ("partial", "pending", "verified", "PENDING"),
        ("partial", "not_listed", "verified", "UNKNOWN"),
        ("failed", "failed", "verified", "FAILED"),
        ("failed", "none", "not_expected", "FAILED"),
        ("failed", "completed", "verified", "SUSPECT"),
        ("failed", "alive", "verified", "RUNNING"),
        ("complete", "completed", "verified", "DONE"),
        ("complete", "none", "not_expected", "DONE"),
        ("complete", "completed", "unchecked", "UNKNOWN"),
        ("complete", "completed", "missing", "SUSPECT"),
        ("complete", "failed", "verified", "SUSPECT"),
        ("complete", "not_listed", "verified", "UNKNOWN"),
        ("complete", "not_heard", "verified", "UNKNOWN"),
        ("complete", "alive", "verified", "RUNNING"),
    ],
)
def test_verdicts_that_people_rely_on(
    journal: str, scheduler: str, artifacts: str, verdict: str
) -> None:
    decision = decide(Journal(journal), Scheduler(scheduler), Artifacts(artifacts))
    assert decision.verdict == verdict


def test_the_command_names_the_shard_and_the_place() -> None:
    decision = decide(Journal.PARTIAL, Scheduler.NONE, Artifacts.VERIFIED)
    command = decision.command_for("sweep", "0007")
    assert command == "snakemake -c2 --force results/sweep/shards/0007/journal.csv"
    decision = decide(Journal.PARTIAL, Scheduler.TIMEOUT, Artifacts.VERIFIED)
    assert decision.command_for("sweep", "0007").startswith("snakemake --profile slurm ")
