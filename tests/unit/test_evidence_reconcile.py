"""A verdict for every shard, whatever is left of the run's files."""

from __future__ import annotations

import csv
import json
import os
import shutil
from pathlib import Path

import psutil
import pytest
from click.testing import CliRunner

from helpers.run_folder import RunFolder, finished_sweep
from milepost.cli.reconcile import command
from milepost.errors import ConfigError, Suspect
from milepost.evidence.closing import close
from milepost.evidence.gather import gather
from milepost.evidence.reconcile import ShardVerdict, reconcile, write
from milepost.evidence.states import Scheduler
from milepost.model import Verdict


def verdicts(folder: RunFolder, deep: bool = False) -> dict[str, ShardVerdict]:
    return {v.shard.name: v for v in reconcile(gather(folder.paths, deep=deep))}


def test_everything_done_is_done(tmp_path: Path) -> None:
    found = verdicts(finished_sweep(tmp_path), deep=True)
    assert {n: v.verdict for n, v in found.items()} == {"0001": Verdict.DONE, "0002": Verdict.DONE}
    assert found["0001"].shard.done == 2
    assert found["0001"].command == ""


def test_truncated_artifact_of_a_task_that_exited_0_is_not_done(tmp_path: Path) -> None:
    folder = finished_sweep(tmp_path)
    path = folder.done("0001", "a2", {"accuracy": 0.5})
    os.truncate(path, 3)
    found = verdicts(folder)["0001"]
    assert found.verdict is Verdict.SUSPECT
    assert found.shard.done == 1
    assert "task a2 (C=2 kernel=rbf)" in found.next_action
    assert str(path) in found.next_action and "has 3 bytes" in found.next_action
    assert "results/sweep/shards/0001/journal.csv" in found.command


def test_same_size_other_bytes_needs_deep(tmp_path: Path) -> None:
    folder = finished_sweep(tmp_path)
    path = folder.done("0001", "a2", {"accuracy": 0.5})
    path.write_bytes(path.read_bytes()[::-1])
    assert verdicts(folder)["0001"].verdict is Verdict.DONE
    assert verdicts(folder, deep=True)["0001"].verdict is Verdict.SUSPECT


def test_missing_artifact(tmp_path: Path) -> None:
    folder = finished_sweep(tmp_path)
    shutil.rmtree(folder.paths.artifact("b1"))
    found = verdicts(folder)["0002"]
    assert found.verdict is Verdict.SUSPECT
    assert "task b1" in found.next_action and "is missing" in found.next_action


def test_failed_task_is_named_with_its_parameters_and_class(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path).contract().table({"0001": {"a1": {"C": 1}, "a2": {"C": -2}}})
    folder.done("0001", "a1", {"accuracy": 0.9})
    folder.failed("0001", "a2")
    folder.attempt("0001", 1, exit_code=1, stop="failed")
    found = verdicts(folder)["0001"]
    assert found.verdict is Verdict.FAILED
    assert "task a2 (C=-2) failed in attempt 1, exit 1" in found.next_action
    assert "python_exception" in found.next_action


def test_done_in_an_older_sharding_counts(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path).contract().table({"0001": {"a1": {"C": 1}, "a2": {"C": 2}}})
    folder.done("0001", "a1", {"accuracy": 0.9})
    folder.done("0009", "a2", {"accuracy": 0.8})
    folder.failed("0001", "a2")
    assert verdicts(folder)["0001"].verdict is Verdict.DONE


def test_never_started_is_pending_and_killed_is_interrupted(tmp_path: Path) -> None:
    tasks = {"0001": {"a1": {"C": 1}}, "0002": {"b1": {"C": 1}, "b2": {"C": 2}}}
    folder = RunFolder(tmp_path).contract().table(tasks)
    folder.done("0002", "b1", {"accuracy": 0.9})
    folder.attempt("0002", 1, ended=None, exit_code=None, stop=None)
    found = verdicts(folder)
    assert found["0001"].verdict is Verdict.PENDING
    assert found["0002"].verdict is Verdict.INTERRUPTED
    assert found["0002"].shard.missing == ("b2",)


def test_killed_before_its_first_row_is_interrupted(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path).contract().table({"0001": {"a1": {"C": 1}}})
    folder.attempt("0001", 1, ended=None, exit_code=None, stop=None)
    assert verdicts(folder)["0001"].verdict is Verdict.INTERRUPTED


def test_living_holder_is_running(tmp_path: Path) -> None:
    import socket

    folder = RunFolder(tmp_path).contract().table({"0001": {"a1": {"C": 1}}})
    me = psutil.Process()
    folder.attempt(
        "0001",
        1,
        host=socket.gethostname(),
        pid=me.pid,
        process_start=me.create_time(),
        ended=None,
    )
    assert verdicts(folder)["0001"].verdict is Verdict.RUNNING


def test_silent_holder_on_another_host_is_unknown(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path).contract().table({"0001": {"a1": {"C": 1}}})
    folder.attempt("0001", 1, host="elsewhere", ended=None, slurm_job_id="77")
    assert verdicts(folder)["0001"].verdict is Verdict.UNKNOWN


def test_holder_on_another_host_silent_for_very_long_is_gone(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path).contract().table({"0001": {"a1": {"C": 1}}})
    folder.attempt("0001", 1, host="elsewhere", ended=None, started="2001-01-01T00:00:00.000Z")
    assert verdicts(folder)["0001"].verdict is Verdict.INTERRUPTED


def test_scheduler_witness_is_an_argument(tmp_path: Path) -> None:
    folder = finished_sweep(tmp_path)
    run = gather(folder.paths)
    heard = reconcile(run, lambda shard: Scheduler.NOT_HEARD)
    assert {v.verdict for v in heard} == {Verdict.UNKNOWN}
    failed = reconcile(run, lambda shard: Scheduler.FAILED)
    assert {v.verdict for v in failed} == {Verdict.SUSPECT}


@pytest.mark.parametrize("gone", ["work", "results/sweep/shards", "results/sweep/shards.csv"])
def test_half_of_the_files_gone(tmp_path: Path, gone: str) -> None:
    folder = finished_sweep(tmp_path)
    victim = tmp_path / gone
    shutil.rmtree(victim) if victim.is_dir() else victim.unlink()
    assert {v.verdict for v in verdicts(folder).values()} == {Verdict.DONE}


def test_lost_shard_table_is_never_done(tmp_path: Path) -> None:
    folder = finished_sweep(tmp_path)
    folder.paths.frozen_shards.unlink()
    folder.paths.shards.unlink()
    run = gather(folder.paths)
    assert any("shard table" in note for note in run.notes)
    assert Verdict.DONE not in {v.verdict for v in reconcile(run)}


def test_lost_journal_with_artifacts_is_suspect(tmp_path: Path) -> None:
    folder = finished_sweep(tmp_path)
    folder.paths.shard("0001").journal.unlink()
    folder.paths.shard("0001").marker.unlink()
    shutil.rmtree(folder.paths.shard("0001").attempts)
    found = verdicts(folder)["0001"]
    assert (found.shard.strays, found.verdict) == (2, Verdict.SUSPECT)


def test_damaged_row_is_suspect_until_its_task_was_done_again(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path).contract().table({"0001": {"a1": {"C": 1}}})
    folder.done("0001", "a1", {"accuracy": 0.9})
    journal = folder.paths.shard("0001").journal
    journal.write_bytes(journal.read_bytes().replace(b"task,a1", b"task,aX"))
    assert verdicts(folder)["0001"].verdict is Verdict.SUSPECT
    folder.done("0001", "a1", {"accuracy": 0.9}, attempt=2)
    found = verdicts(folder)["0001"]
    assert found.verdict is Verdict.DONE
    assert "1 damaged journal row not counted" in found.evidence


def test_journal_of_a_newer_format_is_suspect_and_named(tmp_path: Path) -> None:
    folder = finished_sweep(tmp_path)
    path = folder.paths.shard("0001").journal
    path.write_bytes(path.read_bytes().replace(b"crc32.v1", b"crc32.v9"))
    folder.paths.shard("0001").marker.unlink()
    found = verdicts(folder)["0001"]
    assert found.verdict is Verdict.SUSPECT
    assert "crc32.v9" in found.evidence


def test_damaged_attempt_record_is_unknown_and_named(tmp_path: Path) -> None:
    folder = finished_sweep(tmp_path)
    folder.paths.shard("0001").attempt(1).write_text("{", encoding="utf-8")
    found = verdicts(folder)["0001"]
    assert found.verdict is Verdict.UNKNOWN
    assert "1.json" in found.evidence


def test_reconcile_csv_has_the_agreed_columns_and_is_stable(tmp_path: Path) -> None:
    folder = finished_sweep(tmp_path)
    write(folder.paths, reconcile(gather(folder.paths)))
    first = folder.paths.reconcile.read_bytes()
    rows = list(csv.DictReader(first.decode().splitlines()))
    header = (
        "run,shard,verdict,journal,scheduler,artifacts,done,failed,missing,attempts,"
        "next_action,command,evidence"
    )
    assert first.decode().splitlines()[0] == header
    assert [r["shard"] for r in rows] == ["0001", "0002"]
    write(folder.paths, reconcile(gather(folder.paths)))
    assert folder.paths.reconcile.read_bytes() == first


def test_unknown_run_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="'nope'"):
        gather(RunFolder(tmp_path, "nope").paths)


def test_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = finished_sweep(tmp_path)
    os.truncate(folder.done("0001", "a2", {"accuracy": 0.5}), 3)
    monkeypatch.chdir(tmp_path)
    ran = CliRunner().invoke(command, ["sweep"], catch_exceptions=False)
    assert ran.exit_code == 0
    assert max(map(len, ran.output.splitlines())) <= 80
    assert "1 DONE, 1 SUSPECT" in ran.output
    told = json.loads(CliRunner().invoke(command, ["sweep", "--json"]).stdout)
    assert told["counts"] == {"DONE": 1, "SUSPECT": 1}
    assert isinstance(CliRunner().invoke(command, ["sweep", "--strict"]).exception, Suspect)


def test_a_contract_of_an_older_milepost_lacks_newer_keys(tmp_path: Path) -> None:
    folder = finished_sweep(tmp_path)
    contract = json.loads(folder.paths.frozen_contract.read_text(encoding="utf-8"))
    del contract["accepted"]["checkpoint"]["signal"]
    folder.paths.frozen_contract.write_text(json.dumps(contract), encoding="utf-8")
    run = gather(folder.paths)
    assert run.spec is not None and run.spec.checkpoint.signal == "URG"
    assert {v.verdict for v in reconcile(run)} == {Verdict.DONE}


def test_a_contract_whose_keys_are_damaged_is_named(tmp_path: Path) -> None:
    folder = finished_sweep(tmp_path)
    for path in (folder.paths.frozen_contract, folder.paths.contract):
        if path.exists():
            path.write_text(path.read_text().replace('"signal"', '"sigmal"'), encoding="utf-8")
    run = gather(folder.paths)
    assert run.spec is None
    assert any("checkpoint.sigmal: unknown key; did you mean signal?" in n for n in run.notes)


def test_an_attempt_that_the_scheduler_calls_ended_is_an_interruption(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path).contract().table({"0001": {"a1": {"C": 1}}})
    folder.attempt("0001", 1, host="elsewhere", ended=None, stop=None, slurm_job_id="77")
    run = gather(folder.paths)
    assert run.shards[0].attempts[0].running
    (unheard,) = reconcile(run, lambda shard: Scheduler.NOT_HEARD)
    (ended,) = reconcile(run, lambda shard: Scheduler.NODE_FAIL)
    assert unheard.shard.attempts[0].running and not ended.shard.attempts[0].running
    closing = close(
        folder.paths,
        now="2026-03-02T00:00:00.000Z",
        partial=True,
        ask=lambda shard: Scheduler.NODE_FAIL,
    )
    assert closing.facts.account.interruption_count == 1
