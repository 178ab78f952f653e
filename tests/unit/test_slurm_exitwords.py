"""What an exit code means depends on who printed it, by which version, and how soon it came."""

import pytest

from milepost.slurm.exitcode import ExitCode, parse_exit_code
from milepost.slurm.exitwords import explain_exit, signal_name

OLD, NEW = (25, 5), (25, 11)


def explain(text: str, **more: object) -> str:
    code = parse_exit_code(text)
    assert code is not None
    return explain_exit(code, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("0:0", "success"),
        ("1:0", "the program said that it failed"),
        ("0:9", "ended by signal 9 (KILL)"),
        ("0:125", "killed for using more memory than it had asked for"),
        ("137:0", "128 + 9: a process was ended by signal KILL"),
        ("140:0", "128 + 12: a process was ended by signal USR2"),
        ("126:0", "the command is not executable"),
        ("255:0", "the program said that it failed"),
        ("0:99", "ended by signal 99"),
    ],
)
def test_printed_as_it_is(text: str, words: str) -> None:
    assert explain(text) == words
    assert explain(text, version=NEW) == words


def test_old_sacct_takes_128_off() -> None:
    assert "or 137 (ended by signal KILL)" in explain("9:0", version=OLD)
    assert "or 255, as Slurm before 25.11" in explain("127:0", version=OLD)
    assert "or" not in explain("9:0", version=NEW).split()
    assert explain("1:0", version=OLD) == "the program said that it failed"  # 129 is too rare
    assert explain("0:9", version=OLD) == "ended by signal 9 (KILL)"  # a signal is never lessened


def test_an_exact_reading_settles_it() -> None:
    words = explain("9:0", version=OLD, exact=ExitCode(137, 0))
    assert words.startswith("137 in truth") and "KILL" in words
    assert explain("9:0", version=OLD, exact=ExitCode(9, 0)) == "the program said that it failed"


def test_launch_errors_of_slurmd_are_no_signals() -> None:
    assert "output file could not be opened" in explain("0:53")
    assert "slurmd error 4021" in explain("0:53")
    assert "slurmd error 4020" in explain("0:52", is_short=True)
    assert "could not be launched (slurmd error 4009)" in explain("0:41", is_short=True)
    assert "signal 52" in explain("0:52")  # a job that ran for long was launched


def test_codes_of_a_shard_are_milepost_own() -> None:
    assert explain("75:0", is_shard=True) == "milepost: stopped at a checkpoint, resumable"
    assert explain("13:0", is_shard=True, version=OLD) == "milepost: storage"
    assert explain("75:0") == "the program said that it failed"


def test_signal_names() -> None:
    assert (signal_name(15), signal_name(0), signal_name(999)) == ("TERM", None, None)
