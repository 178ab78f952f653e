"""The journal: what survives a torn tail, damage in the middle, and a late writer."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from milepost.errors import DataError
from milepost.journal import (
    CHECKPOINT,
    COMMITTED,
    DONE,
    FAILED,
    HEADER,
    LOST,
    TASK,
    JournalWriter,
    decode_row,
    encode_row,
    read_journal,
    read_rows,
    write_marker,
)


def write(path: Path, names: list[str], attempt: int = 1, status: str = DONE) -> None:
    with JournalWriter(path, attempt) as journal:
        for name in names:
            journal.append(TASK, name, status, seconds=0.5, data={"result": {"x": name}})


def test_rows_come_back_as_they_were_written(tmp_path: Path) -> None:
    path = tmp_path / "journal.csv"
    with JournalWriter(path, 1) as journal:
        journal.append(TASK, "k1", DONE, seconds=1.25, data={"text": 'a "quoted", line\nnext'})
        journal.append(TASK, "k2", FAILED, data={"finding": {"class": "runtime"}})
        journal.append(CHECKPOINT, "000001-a1", COMMITTED, data={"step": 7})
    state = read_journal(path)
    assert state.done["k1"].seconds == 1.25
    assert state.done["k1"].data == {"text": 'a "quoted", line\nnext'}
    assert state.failed["k2"].seconds is None
    assert [row.data["step"] for row in state.checkpoints] == [7]
    assert (state.rows, state.damaged, state.torn) == (3, (), False)


def test_pandas_and_grep_can_read_it(tmp_path: Path) -> None:
    path = tmp_path / "journal.csv"
    write(path, ["k1", "k2"])
    table = pd.read_csv(path)
    assert list(table.columns)[:5] == ["time", "attempt", "event", "name", "status"]
    assert list(table["name"]) == ["k1", "k2"]
    assert sum(",k1,done," in line for line in path.read_text().splitlines()) == 1


def test_a_missing_journal_is_empty(tmp_path: Path) -> None:
    assert read_journal(tmp_path / "none.csv").rows == 0


@pytest.mark.parametrize("keep", [1, 10, 40])
def test_a_torn_last_row_is_cut_and_reported(tmp_path: Path, keep: int) -> None:
    path = tmp_path / "journal.csv"
    write(path, ["k1", "k2", "k3"])
    whole = path.read_bytes()
    last = whole.rstrip(b"\n").rfind(b"\n") + 1
    path.write_bytes(whole[: last + keep])
    assert read_journal(path).torn
    assert set(read_journal(path).done) == {"k1", "k2"}
    write(path, ["k4"], attempt=2)
    state = read_journal(path)
    assert set(state.done) == {"k1", "k2", "k4"}
    assert (state.torn, state.damaged) == (False, ())


def test_a_row_that_only_lost_its_newline_counts(tmp_path: Path) -> None:
    path = tmp_path / "journal.csv"
    write(path, ["k1", "k2"])
    path.write_bytes(path.read_bytes()[:-1])
    assert set(read_journal(path).done) == {"k1", "k2"}
    write(path, ["k3"], attempt=2)
    assert set(read_journal(path).done) == {"k1", "k2", "k3"}


def test_zeros_that_a_crash_left_at_the_end_are_cut(tmp_path: Path) -> None:
    path = tmp_path / "journal.csv"
    write(path, ["k1"])
    path.write_bytes(path.read_bytes() + bytes(4096))
    assert read_journal(path).torn
    write(path, ["k2"], attempt=2)
    assert set(read_journal(path).done) == {"k1", "k2"}
    assert b"\0" not in path.read_bytes()


def test_every_flipped_byte_in_the_middle_is_found(tmp_path: Path) -> None:
    path = tmp_path / "journal.csv"
    write(path, ["k1", "k2", "k3"])
    whole = bytearray(path.read_bytes())
    start = len(HEADER)
    end = whole.index(b"\n", start)
    for at in range(start, end):
        damaged = whole.copy()
        damaged[at] ^= 0x04
        path.write_bytes(damaged)
        state = read_journal(path)
        assert 2 in state.damaged
        assert set(state.done) == {"k2", "k3"}, f"byte {at}"


def test_a_damaged_header_does_not_lose_rows(tmp_path: Path) -> None:
    path = tmp_path / "journal.csv"
    write(path, ["k1"])
    damaged = bytearray(path.read_bytes())
    damaged[3] ^= 0x10
    path.write_bytes(damaged)
    assert set(read_journal(path).done) == {"k1"}


def test_a_newer_format_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "journal.csv"
    path.write_bytes(HEADER.replace(b"crc32.v1", b"crc32.v2"))
    with pytest.raises(DataError, match=r"format crc32\.v2"):
        read_journal(path)


def test_rows_of_a_superseded_attempt_do_not_count(tmp_path: Path) -> None:
    path = tmp_path / "journal.csv"
    late = JournalWriter(path, 1)
    late.append(TASK, "k1", DONE)
    with JournalWriter(path, 2) as now:
        now.append(TASK, "k2", DONE)
        late.append(TASK, "k3", DONE)
    late.close()
    state = read_journal(path)
    assert set(state.done) == {"k1", "k2"}
    assert state.superseded == 1


def test_an_older_attempt_may_not_open_the_journal(tmp_path: Path) -> None:
    path = tmp_path / "journal.csv"
    write(path, ["k1"], attempt=3)
    with pytest.raises(DataError, match="attempt 2 may not write after attempt 3"):
        JournalWriter(path, 2)


def test_done_after_failed_is_done_and_failed_after_done_stays_done(tmp_path: Path) -> None:
    path = tmp_path / "journal.csv"
    write(path, ["k1"], 1, FAILED)
    write(path, ["k1"], 2, DONE)
    write(path, ["k1"], 3, FAILED)
    state = read_journal(path)
    assert set(state.done) == {"k1"}
    assert state.failed == {}
    assert state.failures == {"k1": 2}


def test_a_marker_reads_as_a_journal(tmp_path: Path) -> None:
    path, marker = tmp_path / "journal.csv", tmp_path / "out" / "journal.csv"
    write(path, ["k1", "k2"])
    write_marker(marker, list(read_rows(path)))
    assert marker.read_bytes() == path.read_bytes()


def test_a_name_that_would_break_the_row_is_refused(tmp_path: Path) -> None:
    with JournalWriter(tmp_path / "journal.csv", 1) as journal:
        for name in ("a,b", 'a"b', "a\nb"):
            with pytest.raises(DataError):
                journal.append(TASK, name, DONE)


def test_encode_and_decode_are_inverse(tmp_path: Path) -> None:
    path = tmp_path / "journal.csv"
    write(path, ["k1"])
    (row,) = read_rows(path)
    assert decode_row(encode_row(row).rstrip(b"\n")) == row


def test_the_next_writer_sets_a_damaged_journal_aside(tmp_path: Path) -> None:
    path = tmp_path / "journal.csv"
    write(path, ["k1", "k2", "k3"])
    damaged = bytearray(path.read_bytes())
    damaged[len(HEADER) + 5] ^= 0x04
    path.write_bytes(damaged)
    with JournalWriter(path, 2) as journal:
        assert journal.state.damaged == (2,)
        journal.append(TASK, "k1", DONE)
    state = read_journal(path)
    assert set(state.done) == {"k1", "k2", "k3"}
    assert state.damaged == ()
    assert (tmp_path / "journal.csv.damaged-2").read_bytes() == damaged


def test_lost_opens_a_task_again(tmp_path: Path) -> None:
    path = tmp_path / "journal.csv"
    write(path, ["k1", "k2"])
    with JournalWriter(path, 2) as journal:
        journal.append(TASK, "k1", LOST, data={"problems": ["gone"]})
    assert set(read_journal(path).done) == {"k2"}
    write(path, ["k1"], attempt=3)
    assert set(read_journal(path).done) == {"k1", "k2"}
