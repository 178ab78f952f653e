"""The journal of a shard: append-only CSV, one row per finished piece of work.

It is the source of truth about work. Each row ends with the CRC-32 of what stands before it, so
that a torn tail is told from damage in the middle:

* torn tail: the last line has no newline, or is zeros that a crashed file system left. The
  writer cuts it; the row was never acknowledged.
* damaged row: a wrong CRC before the tail. It is reported by line number and does not count, so
  its task runs again. The next writer keeps the damaged file beside the journal and goes on with
  the rows that verify.
* superseded row: written under a lower attempt number than a row above it. A process that lost
  its lease cannot change the state any more.

One process writes a journal at a time: the holder of the shard's lease.
"""

from __future__ import annotations

import binascii
import json
import os
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from milepost.clock import utc_now
from milepost.durable import atomic_file, fsync_directory, storage_errors
from milepost.errors import DataError

COLUMNS = "time,attempt,event,name,status,seconds,data"
CRC_COLUMN = "crc32.v1"
"""Carries the format's version; a reader that meets another version refuses it by name."""
HEADER = f"{COLUMNS},{CRC_COLUMN}\n".encode()

ATTEMPT, TASK, STAGE, CHECKPOINT = "attempt", "task", "stage", "checkpoint"
DONE, FAILED, LOST = "done", "failed", "lost"
STARTED, ENDED, COMMITTED = "started", "ended", "committed"


@dataclass(frozen=True, slots=True)
class Row:
    """One event. `raw` is its JSON object as text; `data` parses it."""

    time: str
    attempt: int
    event: str
    name: str
    status: str
    seconds: float | None
    raw: str = "{}"

    @property
    def data(self) -> dict[str, Any]:
        value: dict[str, Any] = json.loads(self.raw)
        return value


@dataclass(slots=True)
class JournalState:
    """What the rows add up to. `done` and `failed` hold the last row of each task or stage."""

    done: dict[str, Row] = field(default_factory=dict)
    failed: dict[str, Row] = field(default_factory=dict)
    failures: dict[str, int] = field(default_factory=dict)
    """How often each task or stage failed, over all attempts."""
    checkpoints: list[Row] = field(default_factory=list)
    attempts: list[Row] = field(default_factory=list)
    rows: int = 0
    last_attempt: int = 0
    damaged: tuple[int, ...] = ()
    torn: bool = False
    superseded: int = 0


def encode_row(row: Row) -> bytes:
    """The line of a row, with its CRC and newline."""
    if any(c in row.name for c in ',"\r\n') or not row.name.isprintable():
        raise DataError(f"a journal name may not hold commas, quotes or newlines: {row.name!r}")
    seconds = "" if row.seconds is None else f"{row.seconds:.6f}"
    data = row.raw.replace('"', '""')
    body = (
        f'{row.time},{row.attempt},{row.event},{row.name},{row.status},{seconds},"{data}"'.encode()
    )
    return _with_crc(body)


def _with_crc(body: bytes) -> bytes:
    return b"%s,%08x\n" % (body, zlib.crc32(body))


def decode_row(line: bytes) -> Row | None:
    """The row of a line without its newline; None when its CRC is wrong."""
    body = _body(line)
    return None if body is None else decode_body(body)


def decode_body(body: bytes) -> Row:
    """The row of a line whose CRC was found right, without that CRC."""
    time, attempt, event, name, status, seconds, data = body.decode().split(",", 6)
    return Row(
        time,
        int(attempt),
        event,
        name,
        status,
        float(seconds) if seconds else None,
        data[1:-1].replace('""', '"'),
    )


def _body(line: bytes) -> bytes | None:
    body, _, crc = line.rpartition(b",")
    try:
        return body if len(crc) == 8 and zlib.crc32(body) == int(crc, 16) else None
    except ValueError:
        return None


def _bodies(lines: Sequence[bytes]) -> list[bytes | None]:
    """Each line without its CRC; None where that is wrong. All at once when all are right."""
    bodies = [line[:-9] for line in lines]
    try:
        said = binascii.unhexlify(b"".join([line[-8:] for line in lines]))
    except binascii.Error:
        said = b""
    commas = b"".join([line[-9:-8] for line in lines])
    is_whole = len(said) == 4 * len(lines) and commas == b"," * len(lines)
    if is_whole and struct.unpack(f">{len(lines)}I", said) == tuple(map(zlib.crc32, bodies)):
        return list(bodies)
    return [_body(line) for line in lines]


@dataclass(frozen=True, slots=True)
class Lines:
    """The lines of a journal that verify, without their CRCs, and what was wrong with others.

    `damaged` are line numbers. `good_bytes` is where a writer may go on; `newline_missing` when
    only the newline tore.
    """

    bodies: list[bytes]
    damaged: tuple[int, ...]
    good_bytes: int
    torn: bool
    newline_missing: bool


def read_lines(path: Path) -> Lines:
    """Check every line of a journal and decode none; a missing file has no lines."""
    return _check(_content(path), path)


def _check(content: bytes, path: Path) -> Lines:
    kept = content.rstrip(b"\0")
    end = kept.rfind(b"\n") + 1
    tail = kept[end:]
    torn, newline_missing = kept != content, False
    lines = kept[:end].split(b"\n")[:-1]
    if tail:
        newline_missing = len(lines) > 0 and _body(tail) is not None
        torn = not newline_missing
        if newline_missing:
            lines.append(tail)
    if lines:
        _check_header(lines[0], path)
    bodies = _bodies(lines[1:])
    good = [body for body in bodies if body is not None]
    damaged = () if len(good) == len(bodies) else _where_none(bodies)
    return Lines(good, damaged, len(kept) if newline_missing else end, torn, newline_missing)


def _where_none(bodies: Sequence[bytes | None]) -> tuple[int, ...]:
    """Line numbers of the bodies that are None; the first row stands in line 2."""
    return tuple(number for number, body in enumerate(bodies, start=2) if body is None)


def _check_header(line: bytes, path: Path) -> None:
    version = line.rpartition(b",")[2].decode("ascii", "replace")
    if line + b"\n" == HEADER or not version.startswith("crc32.v"):
        return  # damage inside the header is harmless: every row carries its own CRC
    if version != CRC_COLUMN:
        raise DataError(
            f"is a journal of format {version}; this milepost reads {CRC_COLUMN}",
            where=path,
            fix="use the milepost that wrote it, or a newer one",
        )


def read_rows(path: Path) -> Iterator[Row]:
    """The rows of a journal that verify, in order of writing, superseded ones included."""
    return map(decode_body, read_lines(path).bodies)


def read_journal(path: Path) -> JournalState:
    """Fold a journal into its state; a missing file is an empty one."""
    return _state(read_lines(path))


def _state(lines: Lines) -> JournalState:
    state = fold([decode_body(body) for body in lines.bodies])
    state.damaged, state.torn = lines.damaged, lines.torn
    return state


def fold(rows: list[Row]) -> JournalState:
    """State after `rows`. A pure function.

    A row under a superseded attempt does not count. `lost` takes a `done` back: the artifacts that
    it speaks of are gone or damaged, so the task is open again.
    """
    state = JournalState()
    for row in rows:
        if row.attempt < state.last_attempt:
            state.superseded += 1
            continue
        state.last_attempt = row.attempt
        state.rows += 1
        if row.event in (TASK, STAGE):
            if row.status == DONE:
                state.done[row.name] = row
                state.failed.pop(row.name, None)
            elif row.status == LOST:
                state.done.pop(row.name, None)
            else:
                state.failures[row.name] = state.failures.get(row.name, 0) + 1
                if row.name not in state.done:
                    state.failed[row.name] = row
        elif row.event == CHECKPOINT:
            state.checkpoints.append(row)
        elif row.event == ATTEMPT:
            state.attempts.append(row)
    return state


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""


class JournalWriter:
    """Append rows under one attempt. `append` survives kill -9; `sync` survives a power cut."""

    def __init__(self, path: Path, attempt: int) -> None:
        self.path = path
        self.attempt = attempt
        with storage_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            lines = read_lines(path)
            self.state = _state(lines)
            if lines.bodies and self.state.last_attempt > attempt:
                raise DataError(
                    f"attempt {attempt} may not write after attempt {self.state.last_attempt}",
                    where=path,
                    fix="look who holds the lease beside the journal",
                )
            if lines.damaged:
                lines = self._set_damage_aside(lines)
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)
            os.ftruncate(self._fd, lines.good_bytes)
            if lines.newline_missing:
                self._write(b"\n")
            if lines.good_bytes == 0:
                self._write(HEADER)
                os.fsync(self._fd)
                fsync_directory(path.parent)
        self.dirty = False

    def _set_damage_aside(self, lines: Lines) -> Lines:
        """Keep the damaged file under another name and make one of the rows that verify."""
        aside = self.path.with_name(f"{self.path.name}.damaged-{self.attempt}")
        if not aside.exists():
            os.link(self.path, aside)
        with atomic_file(self.path, "wb") as stream:
            stream.write(HEADER + b"".join(map(_with_crc, lines.bodies)))
        return read_lines(self.path)

    def append(
        self,
        event: str,
        name: str,
        status: str,
        *,
        seconds: float | None = None,
        data: Mapping[str, Any] | None = None,
    ) -> Row:
        """Hand one row to the kernel: a later kill of this process does not lose it."""
        text = json.dumps(data or {}, separators=(",", ":"), ensure_ascii=False)
        row = Row(utc_now(), self.attempt, event, name, status, seconds, text)
        self._write(encode_row(row))
        self.dirty = True
        return row

    def _write(self, line: bytes) -> None:
        with storage_errors(self.path):
            written = os.write(self._fd, line)
            while written < len(line):
                written += os.write(self._fd, line[written:])

    def sync(self) -> None:
        """Make all rows durable; rows appended meanwhile may be durable too."""
        self.dirty = False
        with storage_errors(self.path):
            os.fsync(self._fd)

    def close(self) -> None:
        if self._fd >= 0:
            self.sync()
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> JournalWriter:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def write_marker(path: Path, rows: list[Row]) -> None:
    """Publish `rows` as a finished journal: the output of a shard whose work is verified."""
    with atomic_file(path, "wb") as stream:
        stream.write(HEADER)
        for row in rows:
            stream.write(encode_row(row))
