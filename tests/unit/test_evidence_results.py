"""One table of what every done task gave, in the order of the shard table."""

from __future__ import annotations

import csv
import os
from pathlib import Path
from typing import Any

import pytest

from helpers.run_folder import RunFolder, finished_simulation, finished_sweep
from milepost.evidence import results
from milepost.evidence.gather import gather


def merged(folder: RunFolder) -> tuple[results.Merged, list[dict[str, str]]]:
    found = results.merge(gather(folder.paths))
    with folder.paths.table.open(encoding="utf-8", newline="") as stream:
        return found, list(csv.DictReader(stream))


def test_rows_stand_in_the_order_of_the_table_with_parameters_and_results(tmp_path: Path) -> None:
    found, rows = merged(finished_sweep(tmp_path))
    assert found.columns == ("task", "shard", "C", "kernel", "accuracy")
    assert [r["task"] for r in rows] == ["a1", "a2", "b1", "b2"]
    assert rows[3] == {
        "task": "b2",
        "shard": "0002",
        "C": "2",
        "kernel": "poly",
        "accuracy": "0.92",
    }
    assert found.row_count == 4


@pytest.mark.parametrize(("mode", "task"), [("max", "b2"), ("min", "a1")])
def test_best_row(tmp_path: Path, mode: str, task: str) -> None:
    folder = finished_sweep(tmp_path)
    work: dict[str, Any] = {
        "kind": "batch",
        "tasks": "config/tasks.csv",
        "command": "python fit.py --C {C} --out {out}",
        "result": {"file": "score.json", "best": {"metric": "accuracy", "mode": mode}},
    }
    folder.paths.frozen_submission.unlink()
    found, _ = merged(folder.contract(work=work))
    assert found.best is not None and found.best["task"] == task
    assert found.best_by == "accuracy"


def test_ties_with_the_best_are_counted(tmp_path: Path) -> None:
    tasks = {key: {"C": n} for n, key in enumerate("abcd")}
    folder = RunFolder(tmp_path).contract().table({"0001": tasks})
    for key, accuracy in zip(tasks, (0.9, 0.8, 0.9, 0.9), strict=True):
        folder.done("0001", key, {"accuracy": accuracy})
    found, _ = merged(folder)
    assert found.best is not None and found.best["task"] == "a"
    assert found.tied_count == 2


def test_only_verified_work_counts(tmp_path: Path) -> None:
    folder = finished_sweep(tmp_path)
    os.truncate(folder.paths.artifact("b2") / "score.json", 2)
    found, rows = merged(folder)
    assert [r["task"] for r in rows] == ["a1", "a2", "b1"]
    assert found.best is not None and found.best["task"] == "a2"


def test_a_later_column_fills_the_earlier_rows(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path).contract().table({"0001": {"a": {"C": 1}, "b": {"C": 2}}})
    folder.done("0001", "a", {"accuracy": 0.5})
    folder.done("0001", "b", {"accuracy": 0.6, "support": [1, 2], "converged": True})
    found, rows = merged(folder)
    assert found.columns == ("task", "shard", "C", "accuracy", "support", "converged")
    assert (rows[0]["support"], rows[1]["support"], rows[1]["converged"]) == ("", "[1,2]", "true")


def test_a_repeated_parameter_is_one_column_and_a_different_one_two(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path).contract().table({"0001": {"a": {"C": "1.0"}, "b": {"C": "2"}}})
    folder.done("0001", "a", {"C": 1, "accuracy": 0.5})
    folder.done("0001", "b", {"C": 3, "accuracy": 0.6})
    found, rows = merged(folder)
    assert found.columns == ("task", "shard", "C", "accuracy", "result_C")
    assert [(r["C"], r["result_C"]) for r in rows] == [("1.0", ""), ("2", "3")]


def test_results_of_an_older_sharding_and_of_the_marker_alone(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path).contract().table({"0005": {"a": {"C": 1}, "b": {"C": 2}}})
    folder.done("0001", "a", {"accuracy": 0.5})
    folder.done("0002", "b", {"accuracy": 0.6})
    folder.marker("0002")
    folder.paths.shard("0002").journal.unlink()
    _, rows = merged(folder)
    assert [(r["shard"], r["accuracy"]) for r in rows] == [("0005", "0.5"), ("0005", "0.6")]


def test_a_simulation_gives_its_result(tmp_path: Path) -> None:
    folder = finished_simulation(tmp_path)
    rows = folder.rows["beta-1"]
    assert rows[-1].data["result"]
    found, table = merged(folder)
    assert found.columns == ("task", "shard", "C", "energy", "exact", "error")
    assert table[0]["energy"] == "-1.4"


def test_result_from_the_artifact_when_the_journal_has_none(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path, "ising", "resumable").contract(
        work={"kind": "resumable", "members": "config/tasks.csv", "command": "python fit.py {C}"},
        artifacts=[{"path": "energy.json", "check": "json"}],
    )
    folder.table({"one": {"m": {"C": 1}}})
    folder.done("one", "m", {"energy": -1.5}, file="energy.json", in_journal=False)
    _, rows = merged(folder)
    assert rows == [{"task": "m", "shard": "one", "C": "1", "energy": "-1.5"}]


def test_nothing_done_leaves_a_header(tmp_path: Path) -> None:
    found, rows = merged(RunFolder(tmp_path).contract().table({"0001": {"a": {"C": 1}}}))
    assert (rows, found.best, found.row_count) == ([], None, 0)


def test_numbers_that_are_none_are_not_the_best(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path).contract()
    folder.table({"0001": {"a": {"C": 1}, "b": {"C": 2}, "c": {"C": 3}}})
    folder.done("0001", "a", {"accuracy": None})
    folder.done("0001", "b", {"accuracy": 0.1})
    folder.done("0001", "c", {"accuracy": float("nan")})
    found, _ = merged(folder)
    assert found.best is not None and found.best["task"] == "b"
