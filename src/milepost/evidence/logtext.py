"""The lines of a log that can matter: head and tail of any size and encoding, bounded memory."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import IO

HEAD_BYTES = 64 << 10
TAIL_BYTES = 256 << 10
LINE_CHARS = 4000
_KEPT = HEAD_BYTES + TAIL_BYTES
_BLOCK_BYTES = 1 << 20

_ESCAPE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_BOMS = ((b"\xff\xfe", "utf-16-le"), (b"\xfe\xff", "utf-16-be"), (b"\xef\xbb\xbf", "utf-8"))


def lines_of(log: Path | str | bytes | None) -> list[str]:
    """Non-blank lines of a log, without colours; a carriage return ends a line too.

    A Path is read (a file that is not there is an empty log), str and bytes are the log itself.
    Of a long log the first 64 KiB and the last 256 KiB count, and 4000 characters of a line.
    """
    if log is None:
        return []
    if isinstance(log, str):
        return _split(log if len(log) <= _KEPT else f"{log[:HEAD_BYTES]}\n{log[-TAIL_BYTES:]}")
    if isinstance(log, bytes):
        return _split(decode(_read_ends(io.BytesIO(log))))
    try:
        with log.open("rb") as stream:
            return _split(decode(_read_ends(stream)))
    except FileNotFoundError:
        return []


def read_stream(stream: IO[bytes]) -> bytes:
    """Head and tail of a stream that cannot seek."""
    head = stream.read(_KEPT)
    tail = b""
    while block := stream.read(_BLOCK_BYTES):
        tail = (tail + block)[-TAIL_BYTES:]
    if not tail:
        return head
    tail = (head[HEAD_BYTES:] + tail)[-TAIL_BYTES:]
    return head[:HEAD_BYTES] + b"\n" + tail


def decode(data: bytes) -> str:
    """Text of a log: by its mark, else UTF-8, else line by line UTF-8 or Latin-1."""
    for mark, encoding in _BOMS:
        if data.startswith(mark):
            return data[len(mark) :].decode(encoding, "replace")
    if data[:400].count(0) > len(data[:400]) // 3:
        return data.decode("utf-16-le" if data[:1] != b"\0" else "utf-16-be", "replace")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return "\n".join(_decode_line(line) for line in data.split(b"\n"))


def _decode_line(line: bytes) -> str:
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError:
        return line.decode("latin-1")


def _split(text: str) -> list[str]:
    if "\x1b" in text:
        text = _ESCAPE.sub("", text)
    lines = text.replace("\0", "").replace("\r", "\n").split("\n")
    return [line[:LINE_CHARS].rstrip() for line in lines if line and not line.isspace()]


def _read_ends(stream: IO[bytes]) -> bytes:
    size = stream.seek(0, 2)
    stream.seek(0)
    if size <= _KEPT:
        return stream.read(_KEPT)
    head = stream.read(HEAD_BYTES)
    stream.seek(size - TAIL_BYTES)
    return head + b"\n" + stream.read(TAIL_BYTES)
