"""The scheduler as a witness of a run on disk: what it says, what it said, and when it is silent."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from helpers.run_folder import RunFolder, finished_sweep
from helpers.slurm_answers import Answer, Recorded
from milepost.evidence.closing import close
from milepost.evidence.gather import gather
from milepost.evidence.reconcile import ShardVerdict, reconcile
from milepost.model import Verdict
from milepost.slurm.command import SEPARATOR, replaced_by

AWAY = (1, "", "sacct: error: slurm_persist_conn_open: failed to connect to slurmdbd\n")
FORGOTTEN = (1, "", "slurm_load_jobs error: Invalid job id specified\n")
COLUMNS = ("JobID", "State", "ExitCode", "Submit", "Eligible", "Start", "End", "ElapsedRaw")


def sacct(*rows: tuple[str, ...]) -> str:
    return "\n".join(SEPARATOR.join(row) for row in (COLUMNS, *rows)) + "\n"


def execution(job: str, submit: int, eligible: int, start: int, end: int) -> tuple[str, ...]:
    """A row of a completed execution; times are minutes after eight."""
    times = [f"2026-03-01T08:{m:02d}:00" for m in (submit, eligible, start, end)]
    return (job, "COMPLETED", "0:0", *times, str(60 * (end - start)))


ENDED = sacct(execution("71", 0, 1, 5, 9), execution("72", 0, 0, 2, 9))


def on_slurm(root: Path) -> RunFolder:
    """A finished sweep whose two shards ran as the jobs 71 and 72."""
    folder = finished_sweep(root)
    for shard, job in (("0001", "71"), ("0002", "72")):
        folder.attempt(shard, 1, slurm_job_id=job)
    return folder


def verdicts(
    folder: RunFolder, accounting: Answer, listed: Answer = FORGOTTEN, submitted: str = ""
) -> list[ShardVerdict]:
    answers: dict[str, Answer | list[Answer]] = {
        "sacct": accounting,
        "sacct --version": "slurm-wlm 22.05.8",
        "squeue": listed,
        "squeue -h -r -u": submitted,
    }
    with replaced_by(Recorded(answers)):
        return reconcile(gather(folder.paths))


def test_slurmdbd_away_proves_nothing(tmp_path: Path) -> None:
    found = verdicts(on_slurm(tmp_path), AWAY)
    assert {v.verdict for v in found} == {Verdict.UNKNOWN}
    assert "slurmdbd" in found[0].evidence
    assert "resubmit nothing" in found[0].next_action
    assert found[0].command == "milepost reconcile sweep"


def test_what_slurmdbd_said_before_it_went_away_still_holds(tmp_path: Path) -> None:
    folder = on_slurm(tmp_path)
    assert {v.verdict for v in verdicts(folder, ENDED)} == {Verdict.DONE}
    assert {v.verdict for v in verdicts(folder, AWAY)} == {Verdict.DONE}


def test_all_of_slurm_away_proves_nothing(tmp_path: Path) -> None:
    down = (1, "", "slurm_load_jobs error: Unable to contact slurm controller\n")
    assert {v.verdict for v in verdicts(on_slurm(tmp_path), AWAY, down)} == {Verdict.UNKNOWN}


def test_a_torn_memory_is_no_memory(tmp_path: Path) -> None:
    folder = on_slurm(tmp_path)
    verdicts(folder, ENDED)
    (folder.paths.work / "scheduler.json").write_text('{"0001": {"jo', encoding="utf-8")
    assert {v.verdict for v in verdicts(folder, AWAY)} == {Verdict.UNKNOWN}


def test_the_wait_is_split_and_kept_after_the_accounting_forgot(tmp_path: Path) -> None:
    folder = on_slurm(tmp_path)
    verdicts(folder, ENDED)
    first, second = verdicts(folder, AWAY)
    assert [(w.held_s, w.pending_s) for w in first.waits] == [(60.0, 240.0)]
    assert [(w.held_s, w.pending_s) for w in second.waits] == [(0.0, 120.0)]


def test_each_execution_of_a_requeued_job_waited(tmp_path: Path) -> None:
    folder = on_slurm(tmp_path)
    folder.attempt("0001", 2, slurm_job_id="71")
    again = sacct(execution("71", 0, 1, 5, 9), execution("71", 9, 9, 12, 20))
    verdicts(folder, sacct(execution("71", 0, 1, 5, 9)))
    found = verdicts(folder, again)[0]
    assert [w.pending_s for w in found.waits] == [240.0, 180.0]


def test_a_wait_that_was_not_recorded_is_not_measured(tmp_path: Path) -> None:
    row = list(execution("71", 0, 1, 5, 9))
    row[4] = "Unknown"
    found = verdicts(on_slurm(tmp_path), sacct(tuple(row)))[0]
    assert [(w.held_s, w.pending_s) for w in found.waits] == [(None, None)]
    assert verdicts(finished_sweep(tmp_path / "local"), AWAY)[0].waits == ()


@pytest.mark.parametrize(
    ("shard", "told"),
    [("0002", "shard 0002 (job 80 waits: JobHeldUser)"), ("0009", "job 80 of shard 0009, not in")],
)
def test_a_held_job_keeps_the_run_open(tmp_path: Path, shard: str, told: str) -> None:
    folder = finished_sweep(tmp_path)
    (tmp_path / ".snakemake" / "slurm_logs").mkdir(parents=True)
    comment = f"rule_shard_wildcards_sweep_{shard}"
    row = ("80", "PENDING", "JobHeldUser", "N/A", str(tmp_path), comment)
    answers: dict[str, Answer | list[Answer]] = {"squeue -h -r -u": SEPARATOR.join(row) + "\n"}
    answers |= {"squeue": FORGOTTEN, "sacct": sacct(), "sacct --version": "slurm-wlm 22.05.8"}
    with replaced_by(Recorded(answers)):
        found = close(folder.paths, now="2026-03-02T00:00:00.000Z", partial=False)
    item = next(i for i in found.closeout.items if i.key == "nothing_running")
    assert item.holds is False and told in item.evidence
    record = json.loads((folder.paths.closeout / "record.json").read_text(encoding="utf-8"))
    assert record["closed"] is False and record["next"] == "milepost reconcile sweep"
