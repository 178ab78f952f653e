"""After the launch: a change that decides results stops everything, any other one is recorded."""

from __future__ import annotations

import json

import pytest

from helpers.project import PYTHON, TASK, Project, ok, said

NUMBERS = [1, 2, 3, 4, 5, 6]


def amendments(project: Project) -> list[dict[str, object]]:
    text = project.paths("sq").amendments.read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def change_command(project: Project) -> None:
    work = project.runs["sq"]["work"]
    project.run("sq", work=work | {"command": f"{PYTHON} -O task.py {{out}} n={{n}}"})


def change_script(project: Project) -> None:
    project.write("task.py", TASK + "\n# another program\n")


def change_artifacts(project: Project) -> None:
    project.run("sq", artifacts=[{"path": "score.json", "check": "nonempty"}])


def revert(project: Project) -> None:
    """Back to the block and the script that the contract was frozen with."""
    work = project.runs["sq"]["work"]
    project.write("task.py", TASK)
    project.run(
        "sq",
        work=work | {"command": f"{PYTHON} task.py {{out}} n={{n}}"},
        artifacts=[{"path": "score.json", "check": "json"}],
    )


@pytest.mark.parametrize(
    ("change", "field"),
    [
        (change_command, "work.command"),
        (change_script, "input task.py"),
        (change_artifacts, "artifacts"),
    ],
)
def test_a_change_that_decides_results_stops_everything(
    mended: Project, change: object, field: str
) -> None:
    assert callable(change)
    change(mended)
    # the marker of a shard, its live journal, and what it published
    before = mended.snapshot("results/sq/shards", "results/sq/artifacts", "work/sq", "executions")
    done = mended.snakemake()
    assert done.returncode != 0
    told = said(done)
    assert field in told
    assert "take the change back" in told and "new name" in told
    after = mended.snapshot("results/sq/shards", "results/sq/artifacts", "work/sq", "executions")
    assert after == before
    assert mended.milepost("contract", "sq").returncode == 20


def test_after_the_change_is_taken_back_the_run_goes_on(mended: Project) -> None:
    change_command(mended)
    change_script(mended)
    change_artifacts(mended)
    refused = mended.milepost("contract", "sq")
    assert refused.returncode == 20
    assert all(field in said(refused) for field in ("work.command", "task.py", "artifacts"))
    revert(mended)
    ok(mended.snakemake())
    ran = mended.executions("sq")
    assert ran == mended.squares("sq", NUMBERS) | mended.squares("sq", [3, 5], times=2)
    assert not mended.paths("sq").amendments.exists()


def test_a_new_name_is_the_other_way_out(mended: Project) -> None:
    change_command(mended)
    mended.runs = {"again": mended.runs["sq"]}
    mended.numbers("again", [1, 2])
    mended.run("again", work=mended.runs["again"]["work"] | {"tasks": "config/again.csv"})
    before = mended.snapshot("results/sq", "work/sq")
    mended.prepare("again")
    assert mended.snapshot("results/sq", "work/sq") == before


def test_a_change_that_decides_nothing_is_accepted_and_recorded(finished: Project) -> None:
    finished.run("sq", purpose="Which number has the largest square?", retry={"limit": 5})
    ok(finished.snakemake())
    assert finished.executions("sq") == finished.squares("sq", NUMBERS)
    found = {line["field"]: (line["old"], line["new"]) for line in amendments(finished)}
    assert found["purpose"][1] == "Which number has the largest square?"
    assert found["retry.limit"] == (0, 5)
    assert len(found) == 2
    assert finished.json("results/sq/closeout/record.json")["verdict"] == "CLOSED"
