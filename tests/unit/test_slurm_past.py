"""All jobs of a window: what is asked, what is read, and who did not answer."""

from __future__ import annotations

import getpass

import pytest

from helpers.slurm_answers import Answer, Recorded
from milepost.slurm.command import SEPARATOR, replaced_by
from milepost.slurm.past import PastJobs, past_jobs
from milepost.slurm.sacct_text import PAST

AT = 1772359200.0
"""2026-03-01T10:00:00Z."""


def said(*rows: str) -> str:
    lines = ["|".join(PAST), *rows]
    return "\n".join(lines).replace("|", SEPARATOR) + "\n"


def ask(answer: Answer) -> tuple[PastJobs, Recorded]:
    recorded = Recorded({"sacct": answer})
    with replaced_by(recorded):
        return past_jobs(AT - 86400.0, AT), recorded


def test_every_execution_of_the_users_jobs_in_the_window() -> None:
    row = "7|7|NODE_FAIL|2026-02-28T11:00:00|2026-02-28T12:00:00|2026-02-28T13:00:00|3600"
    found, recorded = ask(said(f"{row}|3|cpu=96,gres/gpu:a100=12,node=3|gpu|normal"))
    (argv,) = recorded.asked
    assert argv[:4] == ("sacct", "-D", "-X", "-P")
    wanted = ("-u", getpass.getuser(), "-S", "2026-02-28T10:00:00", "-E", "2026-03-01T10:00:00")
    assert argv[5:11] == wanted
    assert recorded.environments[0]["TZ"] == "UTC"
    assert (found.since_s, found.until_s, found.complaint) == (AT - 86400.0, AT, None)
    (one,) = found.rows
    assert (one.node_count, one.gpu_count, one.partition) == (3, 12, "gpu")
    assert (one.start, one.end) == (AT - 22 * 3600.0, AT - 21 * 3600.0)


def test_gpus_named_by_type_are_the_same_ones() -> None:
    row = "7|7|COMPLETED|2026-02-28T11:00:00|2026-02-28T12:00:00|2026-02-28T13:00:00|3600|1"
    tres = ("gres/gpu=2,gres/gpu:v100=2,node=1", "gres/gpu:a=1,gres/gpu:b=2", "cpu=1", "")
    found, _ = ask(said(*(f"{row}|{one}|gpu|normal" for one in tres)))
    assert [one.gpu_count for one in found.rows] == [2, 3, 0, None]


def test_no_jobs_is_an_answer() -> None:
    found, _ = ask(said())
    assert (found.rows, found.complaint) == ((), None)


@pytest.mark.parametrize(
    ("answer", "complaint"),
    [
        ((1, "", "sacct: error: Unable to connect to slurmdbd"), "Unable to connect to slurmdbd"),
        ((0, "", "Slurm accounting storage is disabled"), "accounting storage is disabled"),
        (FileNotFoundError(2, "No such file or directory"), "sacct could not be run: No such file"),
        (TimeoutError(), "sacct did not answer within 30 s"),
    ],
)
def test_who_does_not_answer_is_no_error(answer: Answer, complaint: str) -> None:
    found, _ = ask(answer)
    assert found.rows == ()
    assert found.complaint is not None and complaint in found.complaint
    assert "2026" not in found.complaint  # the same complaint is the same text
