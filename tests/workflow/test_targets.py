"""What a user types: `all`, one file, `failed`, and the targets that never wait for shards."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from helpers.project import Project, ok, said, started_jobs, wait_for_reader

NUMBERS = [1, 2, 3, 4, 5, 6]


def test_all_takes_a_run_from_its_table_to_a_closed_report(
    finished_once: tuple[Project, subprocess.CompletedProcess[str]],
) -> None:
    project, done = finished_once
    assert started_jobs(done)[:4] == ["contract", "smoke_test_run", "plan_run", "submit"]
    assert started_jobs(done)[-2:] == ["closeout_run", "all"]
    assert project.executions("sq") == project.squares("sq", NUMBERS)
    assert project.shards("sq") == {"0001": [1, 2], "0002": [3, 4], "0003": [5, 6]}
    assert project.json("results/sq/closeout/record.json")["verdict"] == "CLOSED"
    assert {row["verdict"] for row in project.csv("results/sq/reconcile.csv")} == {"DONE"}
    ok(project.milepost("closeout", "sq"))


def test_results_of_all_tasks_are_merged(finished_once: tuple[Project, object]) -> None:
    rows = finished_once[0].csv("results/sq/results.csv")
    assert {int(row["n"]): int(row["square"]) for row in rows} == {n: n * n for n in NUMBERS}
    assert {row["shard"] for row in rows} == {"0001", "0002", "0003"}


def test_the_smoke_test_ran_apart_from_the_run(finished_once: tuple[Project, object]) -> None:
    project = finished_once[0]
    smoke = project.json("results/sq/smoke/smoke.json")
    assert smoke["passed"] and smoke["killed"]["signal"] == "KILL"
    # undisturbed once; in the other slice what was done before the kill did not run again
    rehearsed = project.executions("sq", "rehearsals")
    # undisturbed, then killed or resumed; the kill may find the second one in flight: then both
    assert len(rehearsed) == 2 and set(rehearsed.values()) <= {2, 3}


def test_the_same_command_again_does_nothing(finished: Project) -> None:
    before = finished.snapshot("results", "executions")
    done = ok(finished.snakemake())
    assert started_jobs(done) == []
    assert "Nothing to be done" in said(done)
    assert finished.snapshot("results", "executions") == before


def test_a_run_that_failed_gets_its_report_too(
    troubled_once: tuple[Project, subprocess.CompletedProcess[str]],
) -> None:
    project, done = troubled_once
    assert done.returncode != 0
    assert project.markers("sq") == ["0001"]  # --keep-going of the profile: the others went on
    record = project.json("results/sq/closeout/record.json")
    assert record["verdict"] != "CLOSED"
    report = (project.root / "results/sq/closeout/report.html").read_text()
    assert "n=3" in report and "n=5" in report
    assert f"run sq: {record['verdict']}" in said(done)
    rows = project.csv("results/sq/results.csv")
    assert {int(row["n"]) for row in rows if row["square"]} == {1, 2, 4, 6}


def test_one_file_as_target_runs_just_what_is_not_done_of_it(mended: Project) -> None:
    done = ok(mended.snakemake("results/sq/shards/0002/journal.csv"))
    assert started_jobs(done) == ["shard"]
    assert mended.markers("sq") == ["0001", "0002"]
    ran = mended.executions("sq")
    assert ran == mended.squares("sq", NUMBERS) | mended.squares("sq", [3], times=2)


def test_failed_runs_what_is_not_done_and_no_closeout(mended: Project) -> None:
    record = mended.snapshot("results/sq/closeout")
    done = ok(mended.snakemake("failed"))
    assert sorted(started_jobs(done)) == ["failed", "shard", "shard"]
    assert mended.markers("sq") == ["0001", "0002", "0003"]
    ran = mended.executions("sq")
    assert ran == mended.squares("sq", NUMBERS) | mended.squares("sq", [3, 5], times=2)
    assert mended.snapshot("results/sq/closeout") == record


def test_smoke_test_and_plan_launch_nothing(tmp_path: Path) -> None:
    project = Project(tmp_path)
    project.batch("sq", NUMBERS)
    assert started_jobs(ok(project.snakemake("smoke_test"))) == [
        "contract",
        "smoke_test_run",
        "smoke_test",
    ]
    assert not project.paths("sq").plan.exists()
    assert started_jobs(ok(project.snakemake("plan"))) == ["plan_run", "plan"]
    assert project.paths("sq").plan.exists()
    ok(project.snakemake("reconcile", "closeout"))  # nothing to judge yet, and no error
    assert not project.paths("sq").frozen_submission.exists()
    assert project.executions("sq") == {}


def test_reconcile_and_closeout_do_not_wait_for_a_shard_at_work(tmp_path: Path) -> None:
    project = Project(tmp_path)
    project.batch("sq", [1])
    project.prepare("sq")
    fifo = project.hold(1)
    runner = project.start("shard", "sq", "0001", stderr=subprocess.PIPE)
    held = wait_for_reader(fifo)
    try:
        ok(project.snakemake("reconcile", "closeout"))
        (row,) = project.csv("results/sq/reconcile.csv")
        assert row["verdict"] == "RUNNING"
        assert project.json("results/sq/closeout/record.json")["verdict"] == "NOT CLOSED"
    finally:
        os.close(held)
        _, err = runner.communicate(timeout=60)
    assert runner.returncode == 0, err


def test_a_dry_run_writes_nothing_but_the_record_of_its_head(mended: Project) -> None:
    before = mended.snapshot("results", "work", "executions", "config")
    done = ok(mended.snakemake("-n"))
    assert "shard:" in done.stdout
    assert mended.snapshot("results", "work", "executions", "config") == before


def test_a_superseded_run_is_left_alone(troubled: Project) -> None:
    troubled.batch("better", [1, 2])
    ok(troubled.milepost("contract", "better"))
    ok(troubled.milepost("closeout", "sq", "--superseded-by", "better"))
    before = troubled.snapshot("results/sq", "work/sq")
    told = said(ok(troubled.snakemake("--dry-run")))
    assert "results/better/closeout/report.html" in told
    assert "results/sq/" not in told
    refused = troubled.milepost("shard", "sq", "0002")
    assert refused.returncode == 20 and "go on with better" in said(refused)
    assert troubled.snapshot("results/sq", "work/sq") == before
    assert "sq: superseded by better, not launched again" in ok(troubled.milepost("status")).stdout
