"""A run whose place another one took: closed for ever, told everywhere, and never launched again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from helpers.run_folder import RunFolder, finished_sweep
from milepost.cli.closeout import command
from milepost.cli.status import command as status
from milepost.config.needs import closed_needs
from milepost.errors import ConfigError, Refused
from milepost.evidence.closing import Closing, close
from milepost.evidence.superseded import Superseded, read_superseded, supersede
from milepost.launch.submission import submit
from milepost.paths import RunPaths
from milepost.runner.shard import ShardOptions, run_shard

NOW = "2026-03-02T00:00:00.000Z"


def closing(folder: RunFolder, by: str | None = None, why: str | None = None) -> Closing:
    return close(folder.paths, now=NOW, partial=False, superseded_by=by, accept=why)


def two_runs(root: Path) -> RunFolder:
    """`sweep` with an artifact lost, and `better`, which is to take its place."""
    folder = finished_sweep(root)
    (folder.paths.artifact("a2") / "score.json").unlink()
    RunFolder(root, "better").contract()
    return folder


def test_it_closes_what_is_false_and_says_so_in_every_record(tmp_path: Path) -> None:
    folder = two_runs(tmp_path)
    assert not closing(folder).closeout.is_closed
    found = closing(folder, "better", "the kernel was wrong").closeout
    assert (found.verdict, found.is_closed) == ("CLOSED AS SUPERSEDED", True)
    assert "artifacts_verified" in [item.key for item in found.false_items]
    record = json.loads((folder.paths.closeout / "record.json").read_text(encoding="utf-8"))
    assert record["superseded"] == {"by": "better", "time": NOW, "reason": "the kernel was wrong"}
    assert record["closed"] is True
    page = (folder.paths.closeout / "report.html").read_text(encoding="utf-8")
    assert "Superseded by better" in page and "the kernel was wrong" in page
    for name in ("public.json", "public.md"):
        told = (folder.paths.closeout / name).read_text(encoding="utf-8")
        assert "CLOSED AS SUPERSEDED" in told and "better" not in told


def test_it_holds_for_ever(tmp_path: Path) -> None:
    folder = two_runs(tmp_path)
    closing(folder, "better")
    (folder.paths.artifact("b1") / "score.json").unlink()  # was not false at that time
    assert closing(folder).closeout.verdict == "CLOSED AS SUPERSEDED"
    again = supersede(folder.paths, Superseded("better", "2027-01-01T00:00:00.000Z", "too late"))
    assert again == Superseded("better", NOW, None)
    RunFolder(tmp_path, "third").contract()
    with pytest.raises(Refused, match="superseded by better since 2026-03-02") as error:
        closing(folder, "third")
    assert "milepost closeout better --superseded-by third" in str(error.value.fix)


def test_the_successor_must_be_a_known_run(tmp_path: Path) -> None:
    folder = two_runs(tmp_path)
    with pytest.raises(ConfigError, match="there is no run 'bettr'") as error:
        closing(folder, "bettr")
    assert error.value.fix == "did you mean 'better'?"
    with pytest.raises(ConfigError) as error:
        closing(folder, "xyz")
    assert error.value.fix == "known are: better"
    with pytest.raises(ConfigError, match="cannot supersede itself"):
        closing(folder, "sweep")
    assert read_superseded(folder.paths) is None


def test_runs_never_supersede_each_other_in_a_circle(tmp_path: Path) -> None:
    folder = two_runs(tmp_path)
    RunFolder(tmp_path, "third").contract()
    supersede(folder.paths, Superseded("better", NOW))
    supersede(RunPaths("better", tmp_path), Superseded("third", NOW))
    with pytest.raises(ConfigError, match="third -> sweep -> better -> third"):
        supersede(RunPaths("third", tmp_path), Superseded("sweep", NOW))
    assert read_superseded(RunPaths("third", tmp_path)) is None


def test_somebody_at_work_cannot_be_superseded(tmp_path: Path) -> None:
    folder = two_runs(tmp_path)
    folder.attempt("0001", 2, host="elsewhere", ended=None, slurm_job_id="77")
    with pytest.raises(Refused, match="still works"):
        closing(folder, "better")
    assert read_superseded(folder.paths) is None


def test_it_is_not_launched_again_and_names_the_last_successor(tmp_path: Path) -> None:
    folder = two_runs(tmp_path)
    RunFolder(tmp_path, "third").contract()
    supersede(folder.paths, Superseded("better", NOW))
    supersede(RunPaths("better", tmp_path), Superseded("third", NOW))
    with pytest.raises(Refused, match="superseded by better") as error:
        submit(folder.paths, print)
    assert "go on with third" in str(error.value.fix)
    with pytest.raises(Refused, match="superseded by better"):
        run_shard(folder.paths, "0001", ShardOptions(), print)


def test_a_new_run_cannot_need_it(tmp_path: Path) -> None:
    folder = two_runs(tmp_path)
    closing(folder, "better")
    with pytest.raises(Refused, match="needs run sweep, which is superseded by better"):
        closed_needs("next", ["sweep"], tmp_path)
    launched = RunFolder(tmp_path, "next").contract().submission(1, 1)
    assert closed_needs("next", ["sweep"], launched.paths.root)["sweep"] == folder.digest


def test_the_successor_says_whose_place_it_took(tmp_path: Path) -> None:
    folder = two_runs(tmp_path)
    closing(folder, "better")
    found = close(RunPaths("better", tmp_path), now=NOW, partial=True)
    record = json.loads((RunPaths("better", tmp_path).closeout / "record.json").read_text())
    assert record["supersedes"] == ["sweep"] and found.closeout.superseded is None


def test_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    two_runs(tmp_path)
    monkeypatch.chdir(tmp_path)
    words = ["sweep", "--superseded-by", "better", "--accept", "the kernel was wrong"]
    ran = CliRunner().invoke(command, words, catch_exceptions=False)
    assert ran.exit_code == 0
    assert "run sweep: CLOSED AS SUPERSEDED" in ran.output
    assert "superseded by better" in ran.output and "the kernel was wrong" in ran.output
    shown = CliRunner().invoke(status, ["sweep"], catch_exceptions=False).output
    assert "sweep: superseded by better, not launched again" in shown
    assert "sweep: closed: results/sweep/closeout/report.html" in shown
