"""What workflow/rules/executor.smk makes of the states that the Slurm executor asks for."""

import asyncio
import sys
from pathlib import Path
from types import ModuleType

import pytest

RULES = Path(__file__).resolve().parents[2] / "workflow" / "rules" / "executor.smk"


def states(
    monkeypatch: pytest.MonkeyPatch,
    recorded: dict[str, str] | None,
    listed: dict[str, str] | None,
) -> dict[str, str] | None:
    """What the executor is told when sacct and squeue answer so; None: the command failed."""
    executor = ModuleType("snakemake_executor_plugin_slurm")

    async def ask(command: str, logger: object) -> tuple[dict[str, str] | None, float | None]:
        answer = recorded if command.startswith("sacct") else listed
        return answer, None if answer is None else 0.1

    executor.query_job_status = ask  # type: ignore[attr-defined]
    executor.query_job_status_squeue = lambda head: f"squeue --name {head}"  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, executor.__name__, executor)
    exec(compile(RULES.read_text(encoding="utf-8"), str(RULES), "exec"), {"sys": sys})
    answer, _ = asyncio.run(executor.query_job_status("sacct --name some-head", None))
    return answer


def test_states_are_one_word(monkeypatch: pytest.MonkeyPatch) -> None:
    assert states(monkeypatch, {"1": "CANCELLED by 1000"}, {}) == {"1": "CANCELLED"}


def test_a_job_that_was_cancelled_while_held_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    assert states(monkeypatch, {}, {"1": "CANCELLED"}) == {"1": "CANCELLED"}


@pytest.mark.parametrize("listed", ["COMPLETING", "PENDING", "RUNNING"])
def test_a_job_at_its_limit_may_still_be_requeued(
    monkeypatch: pytest.MonkeyPatch, listed: str
) -> None:
    assert states(monkeypatch, {"1": "TIMEOUT"}, {"1": listed}) == {"1": listed}


@pytest.mark.parametrize("listed", [{}, {"1": "TIMEOUT"}, None])
def test_a_job_that_is_over_at_its_limit_has_failed(
    monkeypatch: pytest.MonkeyPatch, listed: dict[str, str] | None
) -> None:
    assert states(monkeypatch, {"1": "TIMEOUT"}, listed) == {"1": "TIMEOUT"}


def test_the_record_decides_about_all_others(monkeypatch: pytest.MonkeyPatch) -> None:
    recorded = {"1": "COMPLETED", "2": "FAILED", "3": "PREEMPTED"}
    listed = {"1": "COMPLETING", "2": "COMPLETING", "3": "PENDING"}
    assert states(monkeypatch, recorded, listed) == recorded


def test_an_accounting_that_does_not_answer_stays_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    assert states(monkeypatch, None, {"1": "RUNNING"}) is None
