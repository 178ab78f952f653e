"""The check of a table: rows, columns, and a last row that is whole. Bounded memory."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from milepost.artifacts.contents import Artifact


def check_table(artifact: Artifact) -> None:
    """Raise DataError unless the table is as `contents.csv_rows` describes."""
    import zlib

    try:
        with _opened(artifact.path) as stream:
            lines = _Lines(stream)
            count = _count(artifact, lines)
    except csv.Error as error:
        artifact.fail(f"is not a table: {error} in line {lines.number}")
    except UnicodeDecodeError as error:
        artifact.fail(f"is not UTF-8 ({error.reason} after line {lines.number})")
    except (EOFError, zlib.error) as error:
        artifact.fail(f"is cut or damaged ({error})")
    if not lines.is_whole and artifact.options.get("final_newline", True):
        artifact.fail(
            f"its last row (line {lines.number}) has no newline: it may be torn",
            "run the task again, or set `final_newline: false` if its program never writes one",
        )
    _enough(artifact, count)


class _Lines:
    """Iterates over lines, remembering the number of the last one and whether it ended."""

    def __init__(self, stream: IO[str]) -> None:
        self.stream, self.number, self.is_whole = stream, 0, True

    def __iter__(self) -> Iterator[str]:
        for line in self.stream:
            self.number += 1
            self.is_whole = line.endswith(("\n", "\r"))
            if "\0" in line:
                raise csv.Error("NUL bytes, as a crash leaves them,")
            yield line


def _opened(path: str) -> IO[str]:
    if path.endswith(".gz"):
        import gzip

        return gzip.open(path, "rt", encoding="utf-8-sig", newline="")
    return Path(path).open(encoding="utf-8-sig", newline="")


def _count(artifact: Artifact, lines: _Lines) -> int:
    delimiter = str(artifact.options.get("delimiter", "\t" if _is_tsv(artifact.path) else ","))
    width, count = 0, 0
    for row in csv.reader(iter(lines), delimiter=delimiter, strict=True):
        if not row:
            continue
        if count == 0:
            width = len(row)
            _has_columns(artifact, row)
        elif len(row) != width:
            artifact.fail(f"line {lines.number} has {len(row)} columns, {width} expected")
        count += 1
    return count - 1 if count and artifact.options.get("header", True) else count


def _is_tsv(path: str) -> bool:
    return os.path.basename(path).removesuffix(".gz").endswith(".tsv")


def _has_columns(artifact: Artifact, header: list[str]) -> None:
    missing = [name for name in artifact.options.get("columns", ()) if name not in header]
    if missing:
        artifact.fail(f"has no column {missing[0]!r}; its header is {', '.join(header)[:200]}")


def _enough(artifact: Artifact, count: int) -> None:
    exact, minimum = artifact.options.get("rows"), int(artifact.options.get("min_rows", 1))
    if exact is not None and count != int(exact):
        artifact.fail(f"has {count} rows, {exact} expected")
    if exact is None and count < minimum:
        artifact.fail(f"has {count} rows, at least {minimum} expected")
