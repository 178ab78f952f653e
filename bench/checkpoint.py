"""Checkpoints: milepost beside the floor of the machine and beside what people use."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench import figure
from bench.measure import alternate
from bench.part import Bar, Options, bars_table
from bench.saved import Saved, median
from bench.states import KINDS, Kind
from bench.ways import COPY, DCP, OURS, RAW, RESTIC, WAYS, Way
from bench.ways_here import MIB

TITLE = "Checkpoints"
SIZES = (64 * MIB, 512 * MIB, 2048 * MIB)
QUICK = (32 * MIB,)
ROUNDS = 3
LARGE = 1024 * MIB
"""From this size on one round is usual: a run of every way takes minutes."""


@dataclass(frozen=True, slots=True)
class Row:
    """One measured checkpoint of a way."""

    kind: str
    size: int
    name: str
    saved: Saved


def measure(
    sizes: Sequence[int], repeats: int | None, folder: Path | None, say: Callable[[str], None]
) -> list[Row]:
    """All kinds and sizes, the ways taking turns."""
    here = [way for way in WAYS if way.is_here()]
    for way in WAYS:
        if way not in here:
            say(f"{way.name} is not installed; left out")
    rows = []
    for size in sizes:
        rounds = repeats or (ROUNDS if size < LARGE else 1)
        for kind in KINDS:
            for way in alternate(here, rounds):
                rows.append(_once(way, kind, size, folder))
                say(_line(rows[-1]))
    return rows


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
            found = medians(rows, kind.name, size)
            for name, saved in found.items():
                yield _row(size, name, saved, found.get(OURS))
        yield ""
    named = {row.name for row in rows}
    if named:
        yield from ("What each does:", "")
        yield from (f"- {name}: {text}" for name, text in does.items() if name in named)
        yield ""


def medians(rows: Sequence[Row], kind: str, size: int) -> dict[str, Saved]:
    """Way -> the medians of its rounds, the quickest to be durable first."""
    found = {
        way.name: median(chosen) for way in WAYS if (chosen := _chosen(rows, kind, size, way.name))
    }
    return dict(sorted(found.items(), key=lambda item: _order(item[1])))


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
    rows = measure(sizes, options.repeats, options.folder, options.say)
    yield from bars_table(list(bars(rows)))
    yield from (HOW, "")
    yield from _figure(rows, options)
    yield from table(rows)


def bars(rows: Sequence[Row]) -> Iterator[Bar]:
    """The bars of checkpoints, by the largest size of each kind of state."""
    for size in sorted({row.size for row in rows}):
        ways, changed = medians(rows, "random", size), medians(rows, "changed", size)
        of = f"{size // MIB} MiB"
        waits = _times(ways, OURS, COPY, "blocked_s")
        yield Bar(f"{of}, waits against one memory copy", waits, 1.2)
        rate = _times(ways, RAW, OURS, "durable_s")
        yield Bar(f"{of}, durable rate against raw direct writing", rate, 0.8, at_least=True)
        rate = _times(ways, DCP, OURS, "durable_s")
        yield Bar(f"{of}, durable rate against torch DCP", rate, 2.5, at_least=True)
        rate = _times(changed, RESTIC, OURS, "durable_s")
        yield Bar(f"{of}, 2 % changed, rate against restic", rate, 10, at_least=True)
        rate = _times(ways, RESTIC, OURS, "restore_s")
        yield Bar(f"{of}, verified restore against restic", rate, 3, at_least=True)


def _times(ways: Mapping[str, Saved], of: str, to: str, field: str) -> float | None:
    """How many times the seconds of `to` those of `of` are."""
    values = [getattr(ways.get(name, Saved()), field) for name in (of, to)]
    return None if None in values else values[0] / values[1]


def _figure(rows: Sequence[Row], options: Options) -> Iterator[str]:
    if options.figures is None or not rows:
        return
    size = max(row.size for row in rows)
    found = {kind.name: medians(rows, kind.name, size) for kind in KINDS}
    titles = {kind.name: kind.short for kind in KINDS}
    path = options.figures / "benchmarks-checkpoint.svg"
    if not figure.draw(path, {kind: ways for kind, ways in found.items() if ways}, OURS, titles):
        options.say("matplotlib is not installed; the picture stays as it was")
    if path.is_file():
        yield from (f"![Checkpoints of {size // MIB} MiB: seconds of each way]({path.name})", "")


HOW = (
    "A first checkpoint is not timed, then the state changes and the next one is: how long the "
    "application waits, until when all is durable, what that adds to the disk in per cent of "
    "the state, and the processor time of all threads and children. GB/s count the whole state, "
    "also where a part of it changed. A restore (the median of three) reads from the disk with the "
    "page cache empty, and counts only when it gives back the same bytes. In brackets: how many "
    "times milepost's. What cp, rclone and restic save has been written to a file before their "
    "clock starts."
)
