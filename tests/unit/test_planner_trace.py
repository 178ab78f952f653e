"""Recorded failures: columns, units, compression, and what is wrong with a file."""

from __future__ import annotations

import bz2
import gzip
import lzma
from pathlib import Path

import pytest

from milepost.errors import ConfigError, DataError, MilepostError
from milepost.planner.simulation.trace import read_trace

TIMES = "time,node\n2026-01-01T00:00:00Z,a\n2026-01-01T01:00:00Z,b\n2026-01-01T03:00:00Z,a\n"


def write(folder: Path, text: str, name: str = "trace.csv") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    "text",
    [
        TIMES,
        "node,Time\nb,3600\na,0\na,10800\n",
        "started\n2026-01-01\n2026-01-01 03:00\n2026-01-01T02:00:00+01:00\n",
        "Prob Started\n6/21/2005 10:54\n6/21/2005 11:54\n6/21/2005 13:54\n",
        "gap_s\n5400\n3600\n7200\n",
    ],
)
def test_times_and_gaps_of_every_kind(tmp_path: Path, text: str) -> None:
    found = read_trace(write(tmp_path, text))
    assert found.times_s.tolist() == [0.0, 3600.0, 10800.0]
    assert found.gaps_s.tolist() == [3600.0, 7200.0, 5400.0]
    assert found.mtbf_s == pytest.approx(5400.0)
    assert not found.from_start


def test_compressed_files(tmp_path: Path) -> None:
    for suffix, pack in ((".gz", gzip.compress), (".xz", lzma.compress), (".bz2", bz2.compress)):
        path = tmp_path / f"trace.csv{suffix}"
        path.write_bytes(pack(TIMES.encode()))
        assert read_trace(path, from_start=True).times_s.tolist() == [0.0, 3600.0, 10800.0]


def test_only_some_rows_and_a_named_column(tmp_path: Path) -> None:
    path = write(tmp_path, "System,at,seen\n2,0,5\n3,50,6\n2,100,7\n2,100.5,8\n")
    found = read_trace(path, "at", {"System": "2"})
    assert found.times_s.tolist() == [0.0, 100.0], "failures within a second are one event"
    assert read_trace(path, "seen").times_s.tolist() == [0.0, 1.0, 2.0, 3.0]


@pytest.mark.parametrize(
    ("text", "column", "only", "kind", "named"),
    [
        ("a,b\n1,2\n", None, {}, ConfigError, "no column is called gap_s or time; there are a, b"),
        ("time\n1\n2\n", "tiem", {}, ConfigError, "did you mean 'time'"),
        ("time,node\n1,a\n2,b\n", None, {"nod": "a"}, ConfigError, "has no column 'nod'"),
        ("time\n1\nyesterday\n", None, {}, DataError, "time is 'yesterday', not a time"),
        ("gap_s\n1\n-2\n", None, {}, DataError, "gap_s is '-2', not seconds"),
        ("gap_s\n1\nnan\n", None, {}, DataError, "gap_s is 'nan'"),
        (
            "time,node\n1,a\n2,b\n",
            None,
            {"node": "a"},
            DataError,
            "1 failures with node a, too few",
        ),
        ("time\n", None, {}, DataError, "has 0 failures"),
        ("", None, {}, ConfigError, "no column is called"),
    ],
)
def test_what_is_wrong_is_named(
    tmp_path: Path,
    text: str,
    column: str | None,
    only: dict[str, str],
    kind: type[MilepostError],
    named: str,
) -> None:
    path = write(tmp_path, text)
    with pytest.raises(kind) as caught:
        read_trace(path, column, only)
    assert named in str(caught.value)
    assert str(path) in str(caught.value)


def test_the_line_of_a_bad_cell_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="line 3"):
        read_trace(write(tmp_path, "time\n1\nx\n"))


def test_no_such_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such trace"):
        read_trace(tmp_path / "none.csv.xz")


def test_a_damaged_archive_is_named(tmp_path: Path) -> None:
    for suffix in (".gz", ".xz", ".bz2"):
        path = tmp_path / f"trace.csv{suffix}"
        path.write_bytes(b"not compressed at all")
        with pytest.raises(DataError, match="cannot be read"):
            read_trace(path)
