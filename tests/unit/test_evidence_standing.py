"""How a run stands: numbers, and the one command that brings it on."""

from __future__ import annotations

import json
import shutil
import socket
from pathlib import Path

import psutil
import pytest
from click.testing import CliRunner

from helpers.run_folder import RunFolder, finished_sweep
from milepost.cli.status import command
from milepost.clock import utc_now
from milepost.evidence.standing import standing


def test_finished_run_wants_its_closeout(tmp_path: Path) -> None:
    found = standing(finished_sweep(tmp_path).paths)
    assert (found.tasks, found.done, found.failed, found.left) == (4, 4, 0, 0)
    assert found.shards == {"DONE": 2}
    assert found.next == "milepost closeout sweep"
    assert (found.rate, found.eta_s) == (None, None)


def test_worst_shard_comes_first(tmp_path: Path) -> None:
    folder = finished_sweep(tmp_path)
    shutil.rmtree(folder.paths.artifact("b1"))
    found = standing(folder.paths)
    assert (found.done, found.failed) == (3, 1)
    assert found.next.endswith("results/sweep/shards/0002/journal.csv")


def test_running_run_has_a_rate_and_an_eta(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path).contract().table({"0001": {"a": {}, "b": {}, "c": {}}})
    folder.done("0001", "a", {"accuracy": 0.5})
    me = psutil.Process()
    folder.attempt(
        "0001",
        1,
        host=socket.gethostname(),
        pid=me.pid,
        process_start=me.create_time(),
        started=utc_now(),
        ended=None,
    )
    found = standing(folder.paths)
    assert found.running == 1 and found.left == 2
    assert found.rate is not None and found.rate > 0
    assert found.eta_s == pytest.approx(2 / found.rate)


def test_nothing_submitted_wants_the_workflow(tmp_path: Path) -> None:
    assert standing(RunFolder(tmp_path).contract().paths).next == "snakemake -c2"


def test_command_line_shows_every_run_on_80_columns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    finished_sweep(tmp_path)
    RunFolder(tmp_path, "other").contract()
    monkeypatch.chdir(tmp_path)
    ran = CliRunner().invoke(command, [], catch_exceptions=False)
    assert max(map(len, ran.output.splitlines())) <= 80
    assert "sweep: next: milepost closeout sweep" in ran.output
    told = json.loads(CliRunner().invoke(command, ["--json"]).output)
    assert [run["run"] for run in told] == ["other", "sweep"]
