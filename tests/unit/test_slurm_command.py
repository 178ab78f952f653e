"""A command that fails, hangs or is missing is never an answer."""

import os
import time
from pathlib import Path

import pytest

from helpers.slurm_answers import Recorded
from milepost.errors import SchedulerError
from milepost.slurm import command
from milepost.slurm.command import NotHeard, ask, environment, replaced_by, run, run_process


def script(folder: Path, text: str) -> str:
    path = folder / "squeue"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


@pytest.fixture(autouse=True)
def no_slurm() -> None:
    """These tests run commands of their own."""


def test_answer_is_stdout(tmp_path: Path) -> None:
    assert ask(script(tmp_path, 'echo "$1"; echo noise >&2'), "a b; exit 9") == "a b; exit 9\n"


def test_failure_says_what_was_run_and_what_it_said(tmp_path: Path) -> None:
    path = script(tmp_path, "echo 'Unable to contact slurm controller' >&2; exit 1")
    with pytest.raises(NotHeard, match=r"-j 7` ended with 1: Unable to contact") as caught:
        ask(path, "-j", "7")
    assert isinstance(caught.value, SchedulerError)
    assert caught.value.exit_code == 10
    assert caught.value.said is not None
    assert caught.value.said.exit_code == 1
    assert "scontrol ping" in str(caught.value)


def test_missing_command_is_not_heard(tmp_path: Path) -> None:
    with pytest.raises(NotHeard, match="could not be run: No such file"):
        run(str(tmp_path / "nowhere"))


def test_hanging_command_is_ended_with_its_children(tmp_path: Path) -> None:
    path = script(tmp_path, f"echo $$ >{tmp_path}/group; sleep 1000 & sleep 1000")
    with pytest.raises(NotHeard, match=r"did not answer within 1\.5 s"):
        run(path, timeout_s=1.5)
    group = int((tmp_path / "group").read_text())
    deadline = time.monotonic() + 20.0
    with pytest.raises(ProcessLookupError):
        while time.monotonic() < deadline:
            os.killpg(group, 0)
            time.sleep(0.01)


def test_output_that_is_no_utf8_is_read(tmp_path: Path) -> None:
    assert "\ufffd" in ask(script(tmp_path, r"printf 'caf\351\n'"))


def test_environment_has_no_habits_of_the_user() -> None:
    outer = {
        "PATH": "/bin",
        "LC_ALL": "de_DE.UTF-8",
        "TZ": "Europe/Berlin",
        "SLURM_TIME_FORMAT": "relative",
        "SQUEUE_FORMAT": "%i",
        "SACCT_FORMAT": "jobid",
        "SLURM_CONF": "/opt/slurm.conf",
        "SBATCH_ACCOUNT": "chemistry",
    }
    assert environment(outer) == {
        "PATH": "/bin",
        "LC_ALL": "C",
        "TZ": "UTC",
        "SLURM_BITSTR_LEN": "0",
        "SLURM_CONF": "/opt/slurm.conf",
        "SBATCH_ACCOUNT": "chemistry",
    }


def test_another_runner_answers_and_is_put_back() -> None:
    recorded = Recorded({"sinfo": "idle\n", "sinfo -s": TimeoutError()})
    with replaced_by(recorded):
        assert ask("sinfo") == "idle\n"
        with pytest.raises(NotHeard, match="did not answer"):
            ask("sinfo", "-s")
        with pytest.raises(NotHeard, match="could not be run"):
            ask("squeue")
    assert recorded.asked == [("sinfo",), ("sinfo", "-s"), ("squeue",)]
    assert command._runner is run_process
    assert recorded.environments[0]["PATH"] == os.environ["PATH"]
