"""Is the run closed? Every item must turn false for its own reason, and say what comes next."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path
from typing import Any

import psutil
import pytest
from click.testing import CliRunner

from helpers.run_folder import RunFolder, finished_simulation, finished_sweep
from milepost.cli.closeout import command
from milepost.errors import Refused, Suspect
from milepost.evidence.closeout import Item
from milepost.evidence.closing import Closing, close

NOW = "2026-03-02T00:00:00.000Z"


def closing(folder: RunFolder, **options: Any) -> Closing:
    return close(folder.paths, now=NOW, partial=options.pop("partial", False), **options)


def item(found: Closing, key: str) -> Item:
    return next(i for i in found.closeout.items if i.key == key)


def test_a_finished_sweep_is_closed(tmp_path: Path) -> None:
    found = closing(finished_sweep(tmp_path))
    assert found.closeout.verdict == "CLOSED"
    assert found.closeout.false_items == ()
    assert "digests of 4 done tasks" in item(found, "artifacts_verified").evidence
    assert item(found, "failures_classified").holds is None


def test_a_finished_simulation_is_closed(tmp_path: Path) -> None:
    found = closing(finished_simulation(tmp_path))
    assert found.closeout.is_closed, found.closeout.open_items
    control = item(found, "control_metric")
    assert control.holds is True
    assert "1 of 1 agree" in control.evidence and "1.00 at most" in control.evidence
    assert item(found, "checkpoint_durable").holds is True


def test_changed_input(tmp_path: Path) -> None:
    folder = finished_sweep(tmp_path)
    (tmp_path / "fit.py").write_text("print('fits better')\n", encoding="utf-8")
    found = item(closing(folder), "contract_unchanged")
    assert found.holds is False and "fit.py" in found.evidence


def test_accepted_changes_are_told_and_do_no_harm(tmp_path: Path) -> None:
    folder = finished_sweep(tmp_path)
    folder.contract(purpose="Which one separates them best?")
    found = closing(folder)
    assert "1 accepted change" in item(found, "contract_unchanged").evidence
    page = (folder.paths.closeout / "report.html").read_text(encoding="utf-8")
    assert "Accepted changes since the launch" in page and "<td>purpose</td>" in page


def test_shards_of_another_contract(tmp_path: Path) -> None:
    folder = finished_sweep(tmp_path)
    folder.digest = "sha256:" + "0" * 64
    folder.submission(shards=2, tasks=4)
    found = item(closing(folder), "contract_unchanged")
    assert found.holds is False and "another contract" in found.evidence


def test_contract_edited_after_the_freeze(tmp_path: Path) -> None:
    folder = finished_sweep(tmp_path)
    contract = json.loads(folder.paths.frozen_contract.read_text(encoding="utf-8"))
    contract["frozen"]["resume"] = "fresh"
    folder.paths.frozen_contract.write_text(json.dumps(contract), encoding="utf-8")
    found = item(closing(folder), "contract_unchanged")
    assert found.holds is False and "changed by hand" in found.evidence


@pytest.mark.parametrize(
    ("passed", "digest", "why"),
    [(False, None, "did not pass"), (True, "sha256:" + "0" * 64, "another contract")],
)
def test_smoke(tmp_path: Path, passed: bool, digest: str | None, why: str) -> None:
    folder = finished_sweep(tmp_path).smoke(passed, digest)
    found = item(closing(folder), "smoke_passed")
    assert found.holds is False and why in found.evidence


def test_truncated_artifact(tmp_path: Path) -> None:
    folder = finished_sweep(tmp_path)
    os.truncate(folder.paths.artifact("a2") / "score.json", 3)
    found = closing(folder)
    assert not found.closeout.is_closed
    assert "0001" in item(found, "shards_done").evidence
    assert "task a2" in item(found, "shards_done").next_action
    assert "score.json has 3 bytes" in item(found, "artifacts_verified").evidence


def test_same_size_other_bytes_is_found(tmp_path: Path) -> None:
    folder = finished_sweep(tmp_path)
    path = folder.paths.artifact("a2") / "score.json"
    path.write_bytes(path.read_bytes()[::-1])
    assert item(closing(folder), "artifacts_verified").holds is False
    assert item(closing(folder, partial=True), "artifacts_verified").holds is True


def test_missing_row_and_unclassified_failure(tmp_path: Path) -> None:
    folder = finished_sweep(tmp_path)
    folder.table({"0001": {"a1": {}, "a2": {}, "a3": {}}, "0002": {"b1": {}, "x1": {}}})
    folder.failed("0001", "a3")
    found = closing(folder)
    assert "1 task, in shards 0002 (1)" in item(found, "tasks_terminal").evidence
    assert item(found, "failures_classified").holds is True
    assert item(found, "artifacts_verified").holds is False
    assert item(found, "artifacts_verified").evidence.endswith("; 2 tasks are not done")
    assert "1 runtime/python_exception" in item(found, "failures_classified").evidence
    folder.failed("0002", "x1", finding=None)
    found = closing(folder)
    assert item(found, "tasks_terminal").holds is True
    assert item(found, "failures_classified").holds is False


def test_control_metric_far_from_its_reference(tmp_path: Path) -> None:
    folder = finished_simulation(tmp_path, energy=-1.2)
    found = item(closing(folder), "control_metric")
    assert found.holds is False
    assert "beta-1: -1.2, reference -1.41, 21.0 sigma away" in found.evidence


@pytest.mark.parametrize(
    "change", [{"verified": False}, {"generation": "000001"}, {"generation": None}, None]
)
def test_checkpoint_that_does_not_outlive_the_node(
    tmp_path: Path, change: dict[str, Any] | None
) -> None:
    folder = finished_simulation(tmp_path)
    if change is None:
        folder.paths.shard("beta-1").upload.unlink()
    else:
        folder.upload("beta-1", **({"generation": "000002"} | change))
    found = item(closing(folder), "checkpoint_durable")
    assert found.holds is False
    assert found.next_action == "milepost upload ising beta-1, then milepost reconcile ising"


def held(folder: RunFolder) -> None:
    me = psutil.Process()
    here = {"host": socket.gethostname(), "pid": me.pid, "process_start": me.create_time()}
    folder.attempt("0001", 2, ended=None, exit_code=None, stop=None, **here)


def test_somebody_still_works_and_that_cannot_be_accepted(tmp_path: Path) -> None:
    folder = finished_sweep(tmp_path)
    held(folder)
    assert item(closing(folder), "nothing_running").holds is False
    with pytest.raises(Refused, match="still works"):
        closing(folder, accept="never mind")


def test_a_running_attempt_is_no_interruption(tmp_path: Path) -> None:
    folder = finished_sweep(tmp_path)
    held(folder)
    account = closing(folder, partial=True).facts.account
    assert (account.interruption_count, account.blind_count) == (0, 0)
    assert account.stops == {"done": 2, "running": 1}


def test_nothing_submitted_is_not_closed_and_smoke_only_is(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path).contract().smoke()
    found = item(closing(folder), "shards_done")
    assert found.holds is False and "milepost reconcile sweep" in found.next_action
    other = RunFolder(tmp_path / "other").contract(stop="smoke-only").smoke()
    assert closing(other).closeout.is_closed


def test_accepted_for_ever_but_only_what_was_accepted(tmp_path: Path) -> None:
    folder = finished_sweep(tmp_path)
    (folder.paths.artifact("a2") / "score.json").unlink()
    accepted = closing(folder, accept="a2 is an outlier that we leave out")
    assert accepted.closeout.verdict == "CLOSED WITH ACCEPTED FAILURES"
    assert closing(folder).closeout.is_closed
    page = (folder.paths.closeout / "report.html").read_text(encoding="utf-8")
    assert "a2 is an outlier that we leave out" in page
    (folder.paths.artifact("b1") / "score.json").unlink()
    assert not closing(folder).closeout.is_closed
    kept = json.loads((folder.paths.work / "accepted.json").read_text(encoding="utf-8"))
    assert [a["reason"] for a in kept] == ["a2 is an outlier that we leave out"]


def test_interruptions_and_lost_work_are_accounted_for(tmp_path: Path) -> None:
    facts = closing(finished_simulation(tmp_path)).facts
    assert facts.account.interruption_count == 1
    assert facts.account.lost_core_s == 2 * 4.0
    assert facts.account.checkpoint_count == 2
    assert facts.account.blind_count == 1


def test_nothing_measured_is_not_applicable_and_never_0(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path).contract().table({"0001": {"a1": {}}})
    found = closing(folder)
    assert item(found, "cost_accounted").holds is None
    assert item(found, "planned_observed").holds is None
    assert found.facts.account.cpu_s is None


def test_same_run_same_bytes(tmp_path: Path) -> None:
    folder = finished_simulation(tmp_path)
    closing(folder)
    first = {p.name: p.read_bytes() for p in folder.paths.closeout.iterdir()}
    closing(folder)
    assert {p.name: p.read_bytes() for p in folder.paths.closeout.iterdir()} == first


def test_command_line_exit_codes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = finished_sweep(tmp_path)
    monkeypatch.chdir(tmp_path)
    ran = CliRunner().invoke(command, ["sweep"], catch_exceptions=False)
    assert ran.exit_code == 0
    assert "run sweep: CLOSED" in ran.output and "best by accuracy: C=2, kernel=poly" in ran.output
    (folder.paths.artifact("a2") / "score.json").unlink()
    error = CliRunner().invoke(command, ["sweep"]).exception
    assert isinstance(error, Suspect) and error.exit_code == 21
    assert error.fix is not None and "shard 0001" in error.fix
    ran = CliRunner().invoke(command, ["sweep", "--partial", "--json"], catch_exceptions=False)
    assert ran.exit_code == 0 and json.loads(ran.stdout)["closed"] is False
