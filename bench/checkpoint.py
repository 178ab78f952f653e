"""Checkpoints: milepost beside the floor of the machine and beside what people use."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.measure import alternate
from bench.part import Options
from bench.saved import Saved, median
from bench.states import KINDS, Kind
from bench.ways import MIB, OURS, WAYS, Way

TITLE = "Checkpoints"
SIZES = (64 * MIB, 1024 * MIB)
QUICK = (32 * MIB,)
LARGE = 512 * MIB
"""From this size on there is one round, without the atoms: a run of every way takes long."""
MAX_ROUNDS = 2


@dataclass(frozen=True, slots=True)
class Row:
    """One measured checkpoint of a way."""

    kind: str
    size: int
    name: str
    saved: Saved


def measure(
    sizes: Sequence[int], repeats: int, folder: Path | None, say: Callable[[str], None]
) -> list[Row]:
    """All kinds and sizes, the ways taking turns."""
    here = [way for way in WAYS if way.is_here()]
    for way in WAYS:
        if way not in here:
            say(f"{way.name} is not installed; left out")
    rows = []
    for size in sizes:
        rounds = 1 if size >= LARGE else min(repeats, MAX_ROUNDS)
        for kind in _kinds(size):
            for way in alternate(here, rounds):
                rows.append(_once(way, kind, size, folder))
                say(_line(rows[-1]))
    return rows


def _kinds(size: int) -> list[Kind]:
    return [kind for kind in KINDS if size < LARGE or kind.name != "atoms"]


def _once(way: Way, kind: Kind, size: int, folder: Path | None) -> Row:
    with tempfile.TemporaryDirectory(prefix="milepost-bench-", dir=folder) as place:
        return Row(kind.name, size, way.name, way.run(kind, size, Path(place)))


def _line(row: Row) -> str:
    saved = row.saved
    waits, durable = _number(saved.blocked_s, ".4f"), _number(saved.durable_s, ".4f")
    return f"{row.kind:>8} {row.size // MIB:>5} MiB {row.name:<17} waits {waits} durable {durable}"


def table(rows: Sequence[Row]) -> Iterator[str]:
    """Markdown: a table for each kind of state, with ratios to milepost in brackets."""
    does = {way.name: way.does for way in WAYS}
    for kind in KINDS:
        sizes = sorted({row.size for row in rows if row.kind == kind.name})
        if not sizes:
            continue
        yield from (f"### {kind.title}", "")
        yield "| state | tool | waits s | durable s | GB/s | stored | processor s | restore s |"
        yield "|--:|---|--:|--:|--:|--:|--:|--:|"
        for size in sizes:
            found = {
                way.name: median(chosen)
                for way in WAYS
                if (chosen := _chosen(rows, kind.name, size, way.name))
            }
            for name, saved in sorted(found.items(), key=lambda item: _order(item[1])):
                yield _row(size, name, saved, found.get(OURS))
        yield ""
    named = {row.name for row in rows}
    if named:
        yield from ("What each does:", "")
        yield from (f"- {name}: {text}" for name, text in does.items() if name in named)
        yield ""


def _chosen(rows: Sequence[Row], kind: str, size: int, name: str) -> list[Saved]:
    return [row.saved for row in rows if (row.kind, row.size, row.name) == (kind, size, name)]


def _order(saved: Saved) -> float:
    return saved.durable_s if saved.durable_s is not None else 0.0


def _row(size: int, name: str, saved: Saved, ours: Saved | None) -> str:
    ours = ours or Saved()
    rate = None if saved.durable_s is None else size / saved.durable_s / 1e9
    stored = None if saved.stored_bytes is None else 100 * saved.stored_bytes / size
    cells = [
        f"{size // MIB} MiB",
        name,
        _against(saved.blocked_s, ours.blocked_s),
        _against(saved.durable_s, ours.durable_s),
        _number(rate, ".2f"),
        "n/a" if stored is None else f"{stored:.1f} %",
        _against(saved.cpu_s, ours.cpu_s),
        _against(saved.restore_s, ours.restore_s),
    ]
    return f"| {' | '.join(cells)} |"


def _against(value: float | None, ours: float | None) -> str:
    if value is None:
        return "n/a"
    ratio = "" if not ours else f" ({value / ours:.2g})"
    return f"{value:.3f}{ratio}"


def _number(value: float | None, form: str) -> str:
    return "n/a" if value is None else format(value, form)


def section(options: Options) -> Iterator[str]:
    """Measure, and tell it."""
    sizes = QUICK if options.size == "quick" else SIZES
    rows = measure(sizes, options.rounds(MAX_ROUNDS), options.folder, options.say)
    yield from (HOW, "")
    yield from table(rows)


HOW = (
    "A first checkpoint is not timed, then the state changes and the next one is: how long the "
    "application waits, until when all is durable, what that adds to the disk in per cent of "
    "the state, and the processor time of all threads and children. GB/s count the whole state, "
    "also where a part of it changed. A restore reads from the disk with the page cache empty, "
    "and counts only when it gives back the same bytes. In brackets: how many times milepost's. "
    "What cp and restic save has been written to a file before their clock starts."
)
