"""The entry point: verbs, errors and exit codes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from milepost.cli.main import VERBS, cli


def milepost(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "milepost.cli.main", *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_a_command_with_help(verb: str) -> None:
    command = cli.get_command(None, verb)
    assert command.help or command.short_help


def test_a_misspelt_verb_is_named_with_its_neighbour(tmp_path: Path) -> None:
    done = milepost("statsu", cwd=tmp_path)
    assert done.returncode == 2
    assert "there is no verb 'statsu'; did you mean 'status'?" in done.stderr


def test_an_error_is_a_message_and_an_exit_code_and_stands_in_the_log_too(tmp_path: Path) -> None:
    done = milepost("--log", "logs/x.log", "reconcile", "nothing", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("milepost: ")
    assert "next:" in done.stderr
    assert "Traceback" not in done.stderr
    assert (tmp_path / "logs" / "x.log").read_text() == done.stderr
