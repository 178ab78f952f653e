"""Aligned plain text for a terminal of 80 columns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

WIDTH = 80


def tabulate(header: Sequence[str], rows: Iterable[Sequence[str]], *, width: int = WIDTH) -> str:
    """Align the columns two blanks apart; the last column is wrapped to what is left of `width`."""
    import textwrap

    table = [list(header), *([str(cell) for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in list(zip(*table, strict=True))[:-1]]
    margin = sum(w + 2 for w in widths)
    room = max(16, width - margin)
    lines = []
    for row in table:
        head = "".join(cell.ljust(w + 2) for cell, w in zip(row[:-1], widths, strict=True))
        first, *more = textwrap.wrap(row[-1], room) or [""]
        lines.append((head + first).rstrip())
        lines.extend(" " * margin + line for line in more)
    return "\n".join(lines)
