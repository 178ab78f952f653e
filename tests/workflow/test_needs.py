"""A run that needs another one starts behind its closeout, and not at all when that fails."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from helpers.project import PYTHON, Project, ok, said, started_jobs
from milepost.config.tasks import task_key

NUMBERS = [1, 2, 3]
SECOND_TASK = """\
import json, pathlib, sys

out, square = pathlib.Path(sys.argv[1]), int(sys.argv[2])
(out / "root.json").write_text(json.dumps({"root": square ** 0.5}))
"""


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """`roots` takes its tasks from the merged results of `squares`."""
    project = Project(tmp_path)
    project.write("root.py", SECOND_TASK)
    work = {
        "kind": "batch",
        "tasks": "results/squares/results.csv",
        "command": f"{PYTHON} root.py {{out}} {{square}}",
        "result": {"file": "root.json"},
    }
    artifacts = [{"path": "root.json", "check": "json"}]
    smoke, retry = {"tasks": 1}, {"limit": 0}
    needs = ["squares"]
    rest = {"artifacts": artifacts, "smoke": smoke, "retry": retry, "shards": {"count": 1}}
    project.run("roots", needs=needs, work=work, **rest)
    project.batch("squares", NUMBERS)
    return project


def roots(project: Project) -> list[float]:
    return sorted(float(row["root"]) for row in project.csv("results/roots/results.csv"))


def test_one_call_does_both_in_order_and_the_next_one_nothing(project: Project) -> None:
    ok(project.milepost("contract", "--check"))
    done = ok(project.snakemake())
    jobs = started_jobs(done)
    assert jobs.count("contract") == jobs.count("closeout_run") == 2
    assert jobs.index("closeout_run") < len(jobs) - 1 - jobs[::-1].index("contract")
    assert roots(project) == NUMBERS
    contract = project.json("results/roots/contract.json")
    assert contract["needs"] == {"squares": project.json("results/squares/contract.json")["digest"]}
    assert project.json("results/roots/closeout/record.json")["verdict"] == "CLOSED"
    assert started_jobs(ok(project.snakemake())) == []


def test_new_rows_of_the_first_become_new_tasks_of_the_second(project: Project) -> None:
    ok(project.snakemake())
    project.numbers("squares", [*NUMBERS, 4])
    ok(project.snakemake())
    assert roots(project) == [*NUMBERS, 4]
    assert project.executions("squares") == project.squares("squares", [*NUMBERS, 4])


def test_a_first_run_that_fails_keeps_the_second_from_starting(project: Project) -> None:
    project.flag("broken/3")
    done = project.snakemake("--keep-going")
    assert done.returncode != 0, said(done)
    assert started_jobs(done).count("contract") == 1
    # a partial report of the first one is there, and it is no closeout
    assert not project.json("results/squares/closeout/record.json")["closed"]
    assert not project.paths("roots").work.exists()
    refused = project.milepost("contract", "roots")
    assert refused.returncode == 20
    assert "run roots needs run squares, which is NOT CLOSED" in said(refused)
    assert started_jobs(ok(project.snakemake("smoke_test"))) == []  # ready runs only

    shutil.rmtree(project.root / "broken")
    ok(project.snakemake())
    assert roots(project) == NUMBERS


def test_an_accepted_closeout_sets_the_second_free(project: Project) -> None:
    project.flag("broken/3")
    assert project.snakemake("--keep-going").returncode != 0
    ok(project.milepost("closeout", "squares", "--accept", "two of three are enough"))
    ok(project.snakemake("results/roots/closeout/report.html"))
    assert roots(project) == [1, 2]
    assert project.executions("squares")[task_key({"n": "3"})] == 1
