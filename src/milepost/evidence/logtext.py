"""The lines of a log that can matter: head and tail of any size and encoding, bounded memory."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import IO

HEAD_BYTES = 64 << 10
TAIL_BYTES = 256 << 10
LINE_CHARS = 4000
_SAMPLE_BYTES = 400
_KEPT = HEAD_BYTES + TAIL_BYTES
_BLOCK_BYTES = 1 << 20

_ESCAPE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_BOMS = ((b"\xff\xfe", "utf-16-le"), (b"\xfe\xff", "utf-16-be"), (b"\xef\xbb\xbf", "utf-8"))


def lines_of(log: Path | str | bytes | None) -> list[str]:
    """Non-blank lines of a log, without colours; a carriage return ends a line too.

    A Path is read (a file that is not there is an empty log), str and bytes are the log itself.
    Of a long log the first 64 KiB and the last 256 KiB count, and both ends of a line of more than
    4000 characters.
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
    if wide := _wide(data[:_SAMPLE_BYTES]):
        return data.decode(wide, "replace")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return "\n".join(_decode_line(line) for line in data.split(b"\n"))


def _wide(sample: bytes) -> str | None:
    """UTF-16 without a mark: NUL in nearly every second byte and in few of the others.

    NUL alone proves nothing: a log that was truncated under its writer begins with them.
    """
    even, odd = sample[0::2].count(0), sample[1::2].count(0)
    most, few = 0.4 * len(sample), 0.1 * len(sample)
    if odd > most and even < few:
        return "utf-16-le"
    return "utf-16-be" if even > most and odd < few else None


def _decode_line(line: bytes) -> str:
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError:
        return line.decode("latin-1")


def _split(text: str) -> list[str]:
    if "\x1b" in text:
        text = _ESCAPE.sub("", text)
    lines = text.replace("\0", "").replace("\r", "\n").split("\n")
    return [_shortened(line.rstrip()) for line in lines if line and not line.isspace()]


def _shortened(line: str) -> str:
    if len(line) <= LINE_CHARS:
        return line
    return f"{line[: LINE_CHARS // 2]} … {line[-LINE_CHARS // 2 :]}"


def _read_ends(stream: IO[bytes]) -> bytes:
    size = stream.seek(0, 2)
    stream.seek(0)
    if size <= _KEPT:
        return stream.read(_KEPT)
    head = stream.read(HEAD_BYTES)
    stream.seek(size - TAIL_BYTES)
    return head + b"\n" + stream.read(TAIL_BYTES)
