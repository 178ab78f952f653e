"""The audit log of a store: who did what and when, each line chained to the one before.

    audit.jsonl   one JSON object a line; `before` is the blake3 digest of the line before
    audit.head    number and digest of the last line, so that lines cut off at the end are missed

Who is a user number; no host and no user name, since the log may be published. A change of any
line breaks the chain behind it; whoever rewrites everything has to be told by the head's digest,
noted elsewhere.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from milepost.checkpoint.environment import current_environment
from milepost.clock import utc_now
from milepost.durable import new_hasher, read_json, storage_errors, write_json
from milepost.errors import DataError

LOG, HEAD = "audit.jsonl", "audit.head"
_LINE_BYTES = 8192
NOTHING = "blake3:" + "0" * 64
WITH_CONTENT = ("created", "found", "rekeyed")
"""What is recorded together with the digest of the manifest."""


@dataclass(frozen=True, slots=True)
class Audit:
    """What the log says; `problems` are sentences, none when the chain is unbroken. `head` is the
    digest of the last line, `content` the manifest digest last recorded of each generation."""

    records: tuple[Mapping[str, Any], ...]
    head: str
    problems: tuple[str, ...]
    content: Mapping[str, str]


def note(
    folder: Path,
    what: str,
    generation: str,
    manifest: str | None = None,
    tier: str | None = None,
) -> None:
    """Append a record, durably. `tier` is where it happened, None for this folder. A log that was
    tampered with is continued and stays broken."""
    environment = current_environment()
    with _locked(folder), storage_errors(folder / LOG):
        number, before = _resume(folder)
        record = {
            "n": number + 1,
            "time": utc_now(),
            "uid": os.getuid(),
            "what": what,
            "generation": generation,
            "tier": tier,
            "manifest": manifest,
            "container": environment.container,
            "code": environment.code,
            "milepost": environment.libraries.get("milepost"),
            "before": before,
        }
        line = json.dumps(record, separators=(",", ":")).encode()
        with (folder / LOG).open("ab") as stream:
            stream.write(line + b"\n")
            stream.flush()
            os.fsync(stream.fileno())
        write_json(folder / HEAD, {"n": number + 1, "digest": digest_of(line)})


def read_audit(folder: Path) -> Audit:
    """Read the log and check every link."""
    records: list[Mapping[str, Any]] = []
    problems: list[str] = []
    content: dict[str, str] = {}
    before, digests = NOTHING, [NOTHING]
    for number, line in enumerate(_lines(folder)[0], 1):
        record = _parse(line)
        if record is None:
            problems.append(f"line {number} is not a record")
        else:
            if record.get("before") != before:
                problems.append(f"line {number} does not follow from the line before it")
            if record.get("n") != number:
                problems.append(f"line {number} has the number {record.get('n')}")
            records.append(record)
            _note_content(content, record)
        before = digest_of(line)
        digests.append(before)
    problems += _check_head(folder, digests)
    return Audit(tuple(records), before, tuple(problems), content)


def digest_of(line: bytes) -> str:
    """Digest of a line without its end, as `blake3:hex`."""
    hasher = new_hasher()
    hasher.update(line)
    return f"blake3:{hasher.hexdigest()}"


def _note_content(content: dict[str, str], record: Mapping[str, Any]) -> None:
    name = str(record.get("generation"))
    if record.get("tier") is not None:
        return
    if record.get("what") in WITH_CONTENT:
        content[name] = str(record.get("manifest"))
    elif record.get("what") == "pruned":
        content.pop(name, None)


def _check_head(folder: Path, digests: list[str]) -> Iterator[str]:
    head = _head(folder)
    if head is None:
        if len(digests) > 2:
            yield f"{HEAD} is missing"
        return
    number = head["n"]
    if number >= len(digests):
        yield f"the last lines are missing: {len(digests) - 1} of {number} are there"
    elif digests[number] != head["digest"]:
        yield f"line {number} is not the one that {HEAD} names"


def _resume(folder: Path) -> tuple[int, str]:
    """Number and digest that the next line follows; a line torn by a crash is cut.

    A log that ends as its head says is not read any further: a commit costs the same however long
    the log is.
    """
    known = _head(folder)
    if known is not None and digest_of(_end_of(folder)) == known["digest"]:
        return known["n"], known["digest"]
    lines, whole_bytes = _lines(folder)
    path = folder / LOG
    if path.exists() and path.stat().st_size > whole_bytes:
        os.truncate(path, whole_bytes)
    head = _head(folder)
    if head is not None and head["n"] > len(lines):
        return head["n"], head["digest"]
    return len(lines), digest_of(lines[-1]) if lines else NOTHING


def _end_of(folder: Path) -> bytes:
    """The last line, if it is whole and not longer than any that is written here."""
    try:
        with (folder / LOG).open("rb") as stream:
            stream.seek(max(stream.seek(0, os.SEEK_END) - _LINE_BYTES, 0))
            data = stream.read()
    except FileNotFoundError:
        return b""
    return data[:-1].rpartition(b"\n")[2] if data.endswith(b"\n") else b""


def _lines(folder: Path) -> tuple[list[bytes], int]:
    """The whole lines, and how many bytes they take."""
    try:
        data = (folder / LOG).read_bytes()
    except FileNotFoundError:
        return [], 0
    end = data.rfind(b"\n") + 1
    return data[:end].split(b"\n")[:-1], end


def _parse(line: bytes) -> Mapping[str, Any] | None:
    try:
        value = json.loads(line)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _head(folder: Path) -> dict[str, Any] | None:
    try:
        head = read_json(folder / HEAD)
    except FileNotFoundError:
        return None
    if not isinstance(head, dict) or type(head.get("n")) is not int or "digest" not in head:
        raise DataError("is not the head of an audit log", where=folder / HEAD)
    return head


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """One writer at a time, where the file system offers locks."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with contextlib.suppress(OSError):  # some network file systems have no locks
            fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)
