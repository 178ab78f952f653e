"""Times, durations and sizes as Slurm prints them; what was not recorded is None, never 0."""

import datetime as dt
import math

import pytest

from milepost.errors import SchedulerError
from milepost.slurm.exitcode import ExitCode, parse_exit_code
from milepost.slurm.jobids import JobId, batches, checked, expand, parse_job_id
from milepost.slurm.units import (
    parse_count,
    parse_duration,
    parse_minutes,
    parse_size,
    parse_time,
    print_time,
)
from milepost.slurm.version import parse_version


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("00:00:00", 0.0),
        ("01:02:03", 3723.0),
        ("2-03:04:05", 183845.0),
        ("35:45.828", 2145.828),
        ("00:00.021", 0.021),
        ("1:00", 60.0),
        ("3-12", 302400.0),
        ("UNLIMITED", math.inf),
        ("infinite", math.inf),
        ("Partition_Limit", None),
        ("NOT_SET", None),
        ("INVALID", None),
        ("", None),
    ],
)
def test_durations(text: str, seconds: float | None) -> None:
    assert parse_duration(text) == seconds


def test_minutes_are_a_number_or_a_duration() -> None:
    assert parse_minutes("90") == 5400.0
    assert parse_minutes("01:30:00") == 5400.0
    assert parse_minutes("UNLIMITED") == math.inf
    assert parse_minutes("") is None


def test_times_are_utc_whatever_the_clock_of_this_host() -> None:
    moment = dt.datetime(2026, 10, 25, 2, 30, tzinfo=dt.UTC).timestamp()
    assert parse_time("2026-10-25T02:30:00") == moment
    assert parse_time(print_time(moment)) == moment
    assert parse_time(f"{moment:.0f}") == moment
    assert parse_time("2026-10-25T04:30:00+02:00") == moment


@pytest.mark.parametrize("text", ["Unknown", "None", "N/A", "", "0", "(null)", "next week"])
def test_no_time_is_none(text: str) -> None:
    assert parse_time(text) is None


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("8G", 8 << 30),
        ("312.50G", 335544320000),
        ("112000M", 112000 << 20),
        ("3816K", 3816 << 10),
        ("0", 0),
        ("128", 128),
        ("1.5T", 3 << 39),
        ("", None),
        ("?", None),
    ],
)
def test_sizes(text: str, size: int | None) -> None:
    assert parse_size(text) == size


def test_a_size_without_suffix_counts_its_unit() -> None:
    assert parse_size("4000", unit="M") == 4000 << 20
    assert parse_size("UNLIMITED", unit="M") is None


def test_counts() -> None:
    assert parse_count("30 sec") == 30
    assert parse_count("UNLIMITED") is None
    assert parse_count("") is None


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("123", JobId(123, None, None, None)),
        ("123.batch", JobId(123, None, None, "batch")),
        ("123_4", JobId(123, "4", None, None)),
        ("123_4.0", JobId(123, "4", None, "0")),
        ("123_[5-9,12%2]", JobId(123, "[5-9,12%2]", None, None)),
        ("123+1", JobId(123, None, 1, None)),
        ("123+1.extern", JobId(123, None, 1, "extern")),
        ("123.0+1", JobId(123, None, None, "0+1")),
    ],
)
def test_job_ids(text: str, parts: JobId) -> None:
    assert parse_job_id(text) == parts


@pytest.mark.parametrize("text", ["", "abc", "1 2", "123;scancel 5", "-1", "123_"])
def test_what_is_no_job_id_is_refused(text: str) -> None:
    with pytest.raises(SchedulerError, match="is not a Slurm job id"):
        parse_job_id(text)


def test_waiting_tasks_of_an_array_are_named_one_by_one() -> None:
    assert expand("7_[1-3,9%2]") == ("7_1", "7_2", "7_3", "7_9")
    assert expand("7_[0-8:4]") == ("7_0", "7_4", "7_8")
    assert expand("7_[1,2,...]") == ("7_1", "7_2")
    assert expand("7_5.batch") == ("7_5",)


def test_ids_are_asked_for_once_and_in_batches() -> None:
    assert checked(["5", "6.batch", "5"]) == ("5", "6")
    assert [list(batch) for batch in batches(["1", "2", "3"], size=2)] == [["1", "2"], ["3"]]


def test_exit_codes() -> None:
    assert parse_exit_code("9:0") == ExitCode(9, 0)
    assert parse_exit_code("0:125") == ExitCode(0, 125)
    assert parse_exit_code("") is None
    assert ExitCode(0, 0).is_success
    assert not ExitCode(0, 15).is_success


@pytest.mark.parametrize(
    ("text", "version"),
    [("slurm-wlm 22.05.8\n", (22, 5)), ("slurm 25.11.0-1", (25, 11)), ("nothing", None)],
)
def test_versions(text: str, version: tuple[int, int] | None) -> None:
    assert parse_version(text) == version
