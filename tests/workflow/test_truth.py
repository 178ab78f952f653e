"""Exit code 0 is one witness of three: what does not verify is not done, now or later."""

from __future__ import annotations

from pathlib import Path

from helpers.project import Project, ok, said, started_jobs
from milepost.config.tasks import task_key

NUMBERS = [1, 2, 3, 4, 5, 6]


def key(number: int) -> str:
    return task_key({"n": str(number)})


def artifact(project: Project, number: int) -> Path:
    return project.paths("sq").artifact(key(number)) / "score.json"


def verdicts(project: Project) -> dict[str, dict[str, str]]:
    return {row["shard"]: row for row in project.csv("results/sq/reconcile.csv")}


def test_a_task_that_exits_0_with_a_truncated_artifact_is_not_done(troubled: Project) -> None:
    assert not artifact(troubled, 5).exists()
    assert "0003" not in troubled.markers("sq")
    row = verdicts(troubled)["0003"]
    assert row["verdict"] == "FAILED"
    assert row["failed"] == "1"
    assert f"task {key(5)} (n=5)" in row["next_action"]
    assert "bad_artifact" in row["next_action"]
    record = troubled.json("results/sq/closeout/record.json")
    assert record["verdict"] == "NOT CLOSED"
    table = {row["n"]: row["square"] for row in troubled.csv("results/sq/results.csv")}
    assert table.get("5", "") == ""
    # with the other failure mended it is all that is left, and the next action names it
    (troubled.root / "broken/3").unlink()
    ok(troubled.milepost("shard", "sq", "0002"))
    closed = troubled.milepost("closeout", "sq")
    assert closed.returncode == 21
    assert f"task {key(5)} (n=5)" in said(closed)
    assert "run sq: NOT CLOSED" in said(closed)


def test_what_was_truncated_afterwards_is_found_by_its_size_and_made_again(
    finished: Project,
) -> None:
    path = artifact(finished, 3)
    path.write_bytes(path.read_bytes()[:-4])
    done = finished.milepost("reconcile", "sq", "--strict")
    assert done.returncode == 21
    row = verdicts(finished)["0002"]
    assert row["verdict"] == "SUSPECT"
    assert f"task {key(3)} (n=3)" in row["next_action"]
    assert row["command"].startswith("snakemake")
    again = ok(finished.snakemake())
    assert started_jobs(again).count("shard") == 1
    ran = finished.executions("sq")
    assert ran == finished.squares("sq", NUMBERS) | finished.squares("sq", [3], times=2)
    ok(finished.milepost("reconcile", "sq", "--deep", "--strict"))
    assert finished.json("results/sq/closeout/record.json")["verdict"] == "CLOSED"


def test_other_bytes_of_the_same_size_are_found_by_digest(finished: Project) -> None:
    path = artifact(finished, 3)
    before = path.read_bytes()
    path.write_bytes(before.replace(b"9", b"8"))
    ok(finished.milepost("reconcile", "sq", "--strict"))  # sizes agree
    deep = finished.milepost("reconcile", "sq", "--deep", "--strict")
    assert deep.returncode == 21
    row = verdicts(finished)["0002"]
    assert row["verdict"] == "SUSPECT"
    assert f"task {key(3)} (n=3)" in row["next_action"]
    ok(finished.milepost("shard", "sq", "0002"))
    assert path.read_bytes() == before
    ran = finished.executions("sq")
    assert ran == finished.squares("sq", NUMBERS) | finished.squares("sq", [3], times=2)
    ok(finished.milepost("reconcile", "sq", "--deep", "--strict"))
    # what was wrong is kept aside for a look
    (aside,) = finished.paths("sq").artifacts.glob(f".{key(3)}.unproven-*")
    assert b'"square": 8' in (aside / "score.json").read_bytes()
