"""The task table may change at any time: what is done stays done, wherever its row is now."""

from __future__ import annotations

from helpers.project import Project, ok, said, started_jobs

NUMBERS = [1, 2, 3, 4, 5, 6]


def test_added_rows_land_in_new_shards_and_the_order_means_nothing(finished: Project) -> None:
    markers = finished.snapshot("results/sq/shards")
    finished.numbers("sq", [7, 6, 5, 8, 4, 3, 9, 2, 1])
    done = ok(finished.snakemake())
    assert started_jobs(done).count("shard") == 2
    assert finished.executions("sq") == finished.squares("sq", [*NUMBERS, 7, 8, 9])
    assert {name: sorted(numbers) for name, numbers in finished.shards("sq").items()} == {
        "0001": [1, 2],
        "0002": [3, 4],
        "0003": [5, 6],
        "0004": [7, 8],
        "0005": [9],
    }
    after = finished.snapshot("results/sq/shards")
    assert {name: after[name] for name in markers} == markers
    assert len(finished.csv("results/sq/results.csv")) == 9
    assert finished.json("results/sq/closeout/record.json")["verdict"] == "CLOSED"


def test_removed_rows_leave_the_results_and_come_back_for_nothing(finished: Project) -> None:
    finished.numbers("sq", [1, 2, 4])
    done = ok(finished.snakemake())
    assert "shard" not in started_jobs(done)
    assert finished.shards("sq") == {"0001": [1, 2], "0002": [4]}
    assert sorted(int(row["n"]) for row in finished.csv("results/sq/results.csv")) == [1, 2, 4]
    finished.numbers("sq", NUMBERS)
    ok(finished.snakemake())
    assert finished.executions("sq") == finished.squares("sq", NUMBERS)
    assert sorted(int(row["n"]) for row in finished.csv("results/sq/results.csv")) == NUMBERS


def test_resharding_a_finished_run_runs_nothing(finished: Project) -> None:
    finished.run("sq", shards={"tasks_per_shard": 5})
    done = ok(finished.snakemake())
    assert "shard" not in started_jobs(done)
    assert finished.executions("sq") == finished.squares("sq", NUMBERS)
    assert finished.json("results/sq/closeout/record.json")["verdict"] == "CLOSED"


def test_resharding_moves_only_what_is_not_done(mended: Project) -> None:
    mended.run("sq", shards={"tasks_per_shard": 5})
    ok(mended.snakemake())
    ran = mended.executions("sq")
    assert ran == mended.squares("sq", NUMBERS) | mended.squares("sq", [3, 5], times=2)
    assert mended.shards("sq") == {"0001": [1, 2], "0002": [4], "0003": [6], "0004": [3, 5]}
    assert mended.json("results/sq/closeout/record.json")["verdict"] == "CLOSED"
    assert sorted(int(row["n"]) for row in mended.csv("results/sq/results.csv")) == NUMBERS


def test_a_row_that_is_there_twice_is_refused_with_both_lines(finished: Project) -> None:
    finished.numbers("sq", [*NUMBERS, 3])
    before = finished.snapshot("results/sq/shards", "results/sq/artifacts", "executions")
    done = finished.snakemake()
    assert done.returncode != 0
    assert "line 8 repeats line 4" in said(done)
    after = finished.snapshot("results/sq/shards", "results/sq/artifacts", "executions")
    assert after == before
    assert finished.milepost("contract", "sq").returncode == 2
