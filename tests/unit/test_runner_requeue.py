"""Why a job is to stop, from what slurmctld shows of it in that moment (as seen on 22.05)."""

import time
from datetime import UTC, datetime

import pytest

from helpers.slurm_answers import Answer, Recorded
from milepost.runner.requeue import After, after_stop, remaining_s, requeue_job
from milepost.slurm.command import replaced_by

START = "StartTime={ago} TimeLimit=00:10:00"


def stamp(seconds_from_now: float) -> str:
    return datetime.fromtimestamp(time.time() + seconds_from_now, UTC).isoformat()[:19]


def job(state: str, rest: str) -> str:
    return f"JobId=7 JobName=x JobState={state} {rest}\n"


CASES = {
    "scancel": (
        job("COMPLETING", f"Reason=None EndTime={stamp(-1)} PreemptTime=None {START}"),
        None,
    ),
    "put back by a requeue or by preemption": (
        job("COMPLETING", f"Reason=None Restarts=1 EndTime={stamp(3600)} {START}"),
        "Slurm has put it back",
    ),
    "put back, its times are gone": (
        job("COMPLETING", "Reason=None Restarts=1 StartTime=Unknown EndTime=Unknown"),
        "Slurm has put it back",
    ),
    "waits already": (job("PENDING", "Reason=BeginTime"), "Slurm has put it back"),
    "preempted in CANCEL mode": (
        job("RUNNING", f"Reason=None PreemptTime={stamp(-1)} EndTime={stamp(9)} {START}"),
        "it was preempted",
    ),
    "time limit": (
        job("COMPLETING", f"Reason=TimeLimit EndTime={stamp(-1)} PreemptTime=None {START}"),
        "its time limit is reached",
    ),
    "time limit by the clock": (
        job(
            "COMPLETING",
            f"Reason=None EndTime={stamp(-1)} StartTime={stamp(-601)} TimeLimit=00:10:00",
        ),
        "its time limit is reached",
    ),
}


@pytest.fixture(autouse=True)
def in_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "7")


@pytest.mark.parametrize("name", CASES)
def test_term_is_explained(name: str) -> None:
    shown, reason = CASES[name]
    answers: dict[str, Answer | list[Answer]] = {
        "scontrol show job": shown.replace("{ago}", stamp(-60))
    }
    with replaced_by(Recorded(answers)):
        after = after_stop("7", "signal TERM", "URG", lambda text: None)
    assert after == After(reason)
    assert after.record() == (
        {"stop": "cancelled"} if reason is None else {"then": f"requeued: {reason}"}
    )


@pytest.mark.parametrize("stop", ["walltime", "signal USR2"])
def test_the_walltime_needs_no_question(stop: str) -> None:
    assert after_stop("7", stop, "USR2", lambda text: None).reason == "its walltime ends"


def test_term_as_the_notice_comes_while_the_job_still_runs() -> None:
    running = job("RUNNING", f"Reason=None PreemptTime=None EndTime={stamp(60)} {START}")
    cancelled = CASES["scancel"][0]
    for shown, reason in ((running, "its walltime ends"), (cancelled, None)):
        with replaced_by(Recorded({"scontrol show job": shown.replace("{ago}", stamp(-60))})):
            assert after_stop("7", "signal TERM", "TERM", lambda text: None) == After(reason)


def test_not_heard_is_neither_cancelled_nor_requeued() -> None:
    said: list[str] = []
    with replaced_by(Recorded({"scontrol show job": (1, "", "Unable to contact")})):
        after = after_stop("7", "signal TERM", "URG", said.append)
    assert not after.is_cancelled and after.record() == {}
    assert not requeue_job("7", after, said.append)
    assert "Slurm does not say why" in said[0]


def test_a_job_that_waits_already_is_not_requeued_twice() -> None:
    said: list[str] = []
    refused = (1, "", "Job is pending execution for job 7")
    with replaced_by(Recorded({"scontrol requeue": refused})):
        assert not requeue_job("7", After("it was preempted"), said.append)
    assert "waits again" in said[0]


def test_the_deadline_is_the_jobs_own() -> None:
    shown = job("RUNNING", f"Reason=None StartTime={stamp(-60)} TimeLimit=00:10:00")
    with replaced_by(Recorded({"scontrol show job": shown})):
        left = remaining_s()
    assert left is not None and 530 < left < 545
    with replaced_by(Recorded({"scontrol show job": job("RUNNING", "TimeLimit=UNLIMITED")})):
        assert remaining_s() is None
