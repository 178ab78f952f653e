"""Is the run closed? Every item must turn false for its own reason, and say what comes next."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
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


def generation(folder: RunFolder, name: str, shard: str = "beta-1") -> Path:
    """A generation in scratch, as its writer leaves it."""
    from milepost import Checkpointer

    place = folder.paths.root / "work" / "scratch" / folder.run / shard / "ckpt"
    with Checkpointer(place, rotation=9) as checkpoint:
        checkpoint.save(int(name), {"x": numpy.arange(4)}, {})
    return place


def test_scratch_may_be_empty_or_kept_by_the_rotation(tmp_path: Path) -> None:
    folder = finished_simulation(tmp_path)
    (tmp_path / "work" / "scratch").mkdir()
    found = item(closing(folder), "scratch_settled")
    assert (found.holds, found.evidence) == (True, "nothing of the run is left there")
    for name in "123":
        generation(folder, name)
    found = item(closing(folder), "scratch_settled")
    assert found.holds is True
    assert found.evidence.startswith("3 generations (")
    assert found.evidence.endswith(") kept by checkpoint.rotation 3")


def test_scratch_with_more_than_the_rotation_keeps_is_not_settled(tmp_path: Path) -> None:
    folder = finished_simulation(tmp_path)
    for name in "1234":
        place = generation(folder, name)
    found = item(closing(folder), "scratch_settled")
    assert found.holds is False and str(place) in found.evidence
    assert f"milepost ckpt prune {place}" in found.next_action


@pytest.mark.parametrize(
    ("kind", "path"),
    [
        ("draft", "work/scratch/ising/beta-1/ckpt/.draft-a1-n1-77-x/rank_0.bin"),
        ("private", "work/ising/shards/beta-1/out/1/energy.json"),
    ],
)
def test_scratch_with_what_killed_attempts_left(tmp_path: Path, kind: str, path: str) -> None:
    folder = finished_simulation(tmp_path)
    left = tmp_path / path
    left.parent.mkdir(parents=True)
    left.write_text("half", encoding="ascii")
    found = item(closing(folder), "scratch_settled")
    assert found.holds is False and str(left.parent) in found.evidence
    assert f"rm -r {left.parent}" in found.next_action


def test_scratch_on_the_nodes_cannot_be_looked_at(tmp_path: Path) -> None:
    folder = finished_simulation(tmp_path)
    contract = json.loads(folder.paths.frozen_contract.read_text(encoding="utf-8"))
    contract["accepted"]["tiers"]["scratch"] = "$TMPDIR/ckpt"
    folder.paths.frozen_contract.write_text(json.dumps(contract), encoding="utf-8")
    found = item(closing(folder), "scratch_settled")
    assert (found.holds, found.evidence) == (
        None,
        "$TMPDIR/ckpt/ising is not to be seen from this machine",
    )


def test_a_lease_beside_the_table_keeps_the_run_open(tmp_path: Path) -> None:
    folder = finished_sweep(tmp_path)
    me = psutil.Process()
    here = {"host": socket.gethostname(), "pid": me.pid, "process_start": me.create_time()}
    folder.attempt("0009", 1, ended=None, exit_code=None, stop=None, **here)
    found = item(closing(folder), "nothing_running")
    assert found.holds is False
    assert found.evidence.startswith("shard 0009, not in the table, is held by attempt 1 (process")


def test_a_final_verdict_is_done_or_failed(tmp_path: Path) -> None:
    folder = finished_sweep(tmp_path)
    folder.table({"0001": {"a1": {}, "a2": {}}, "0002": {"b1": {}, "x1": {}}})
    folder.failed("0002", "x1")
    found = closing(folder)
    assert (item(found, "shards_judged").holds, item(found, "shards_done").holds) == (True, False)
    folder.table({"0001": {"a1": {}, "a2": {}}, "0002": {"b1": {}, "y1": {}}})
    found = closing(folder)
    judged = item(found, "shards_judged")
    assert judged.holds is False
    assert "0002 (" in judged.evidence


def test_hours_of_work_whose_attempts_are_gone_are_not_accounted_for(tmp_path: Path) -> None:
    folder = finished_sweep(tmp_path)
    shutil.rmtree(folder.paths.shard("0001").attempts)
    found = item(closing(folder), "cost_accounted")
    assert found.holds is False and found.evidence.endswith("no attempt is recorded: shards 0001")


def test_a_record_that_cannot_be_written_is_named_in_those_that_can(tmp_path: Path) -> None:
    folder = finished_sweep(tmp_path)
    (folder.paths.closeout / "public.md").mkdir(parents=True)
    found = item(closing(folder), "record_written")
    assert found.holds is False and "public.md cannot be written" in found.evidence
    record = json.loads((folder.paths.closeout / "record.json").read_text(encoding="utf-8"))
    assert record["closed"] is False
    page = (folder.paths.closeout / "report.html").read_text(encoding="utf-8")
    assert "public.md cannot be written: a folder has its name" in page


def without_a_table(root: Path) -> RunFolder:
    return RunFolder(root).contract(stop="smoke-only").smoke()


def without_artifacts(root: Path) -> RunFolder:
    return finished_sweep(root).without_submission().contract(artifacts=[]).submission(2, 4)


def with_the_uploader_off(root: Path) -> RunFolder:
    folder = finished_simulation(root)
    return folder.amend(checkpoint={"uploader": {"enable": False}})


def with_somebody_at_work(root: Path) -> RunFolder:
    folder = finished_sweep(root)
    held(folder)
    return folder


@pytest.mark.parametrize(
    ("key", "make", "why"),
    [
        ("shards_judged", without_a_table, "the contract stops after the smoke test"),
        ("shards_done", without_a_table, "the contract stops after the smoke test"),
        ("artifacts_verified", without_artifacts, "the contract expects no artifacts"),
        ("tasks_terminal", without_a_table, "there is no shard table"),
        ("failures_classified", finished_sweep, "nothing failed"),
        ("control_metric", finished_sweep, "the contract names none"),
        ("checkpoint_durable", finished_sweep, "no checkpoint was written"),
        ("checkpoint_durable", with_the_uploader_off, "the uploader is off"),
        ("scratch_settled", with_somebody_at_work, "shards are still at work in it"),
        ("cost_accounted", without_a_table, "not measured"),
        ("planned_observed", without_a_table, "no plan, or nothing measured"),
    ],
)
def test_not_applicable(
    tmp_path: Path, key: str, make: Callable[[Path], RunFolder], why: str
) -> None:
    found = item(closing(make(tmp_path)), key)
    assert found.holds is None
    assert found.evidence.startswith(why)


def test_what_is_false_leads_to_reconcile_and_never_to_a_fresh_launch(tmp_path: Path) -> None:
    """Everything false at once that can be."""
    folder = RunFolder(tmp_path).table({"0001": {"a1": {}, "a2": {}}, "0002": {"b1": {}}})
    folder.done("0001", "a1", {"accuracy": 0.9}).unlink()
    folder.failed("0001", "a2", finding=None)
    folder.checkpoint("0001", "000001", time=15)
    (folder.paths.closeout / "public.md").mkdir(parents=True)
    held(folder)
    shutil.rmtree(folder.paths.shard("0001").attempts)
    folder.attempt("0002", 1, host="elsewhere", ended=None, slurm_job_id="77")
    false = {i.key: i for i in closing(folder).closeout.false_items}
    assert set(false) == {
        "contract_unchanged",
        "smoke_passed",
        "shards_judged",
        "shards_done",
        "artifacts_verified",
        "tasks_terminal",
        "failures_classified",
        "checkpoint_durable",
        "nothing_running",
        "cost_accounted",
        "record_written",
    }
    for one in false.values():
        assert "milepost reconcile sweep" in one.next_action, one
        assert "submit" not in one.next_action, one
    record = json.loads((folder.paths.closeout / "record.json").read_text(encoding="utf-8"))
    assert record["next"] == "milepost reconcile sweep"
    empty = RunFolder(tmp_path / "empty")
    empty.paths.work.mkdir(parents=True)
    for one in closing(empty).closeout.false_items:
        assert "milepost reconcile sweep" in one.next_action, one


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


def test_the_documentation_lists_every_item_in_this_order(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "closeout.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| `([a-z_]+)` \|", page, re.MULTILINE)
    assert listed == [i.key for i in closing(finished_sweep(tmp_path)).closeout.items]
