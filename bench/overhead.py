"""Overhead for each task: milepost with its durable journal beside tools that do less.

Every tool makes one empty file for each name, two at a time. A run counts only when all files
are there at its end.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from bench.measure import Sample, Summary, alternate, ratio, summarise
from bench.milepost import MilepostCallables, MilepostProcesses
from bench.part import Bar, Options, bars_table
from bench.peers import CALLABLES, PROCESSES, WORKERS, Peer

TITLE = "Overhead for each task"
GROUPS: dict[str, tuple[Peer, ...]] = {
    "processes": (MilepostProcesses(), *PROCESSES),
    "callables": (MilepostCallables(), *CALLABLES),
}
SIZES: Mapping[str, Sequence[int]] = {
    "processes": (1, 1_000, 10_000),
    "callables": (1, 1_000, 10_000, 100_000),
}
QUICK: Mapping[str, Sequence[int]] = {"processes": (1, 1_000), "callables": (1, 1_000)}
FULL: Mapping[str, Sequence[int]] = {
    "processes": (1, 1_000, 10_000, 100_000),
    "callables": (1, 1_000, 10_000, 100_000),
}
OURS = "milepost"


def measure(
    sizes: Mapping[str, Sequence[int]],
    repeats: int,
    folder: Path | None,
    say: Callable[[str], None],
) -> list[Sample]:
    """All groups and sizes, peers alternating; `folder` chooses the file system (None: /tmp)."""
    samples = []
    for group, peers in GROUPS.items():
        here = [peer for peer in peers if peer.is_here()]
        for peer in set(peers) - set(here):
            say(f"{peer.name} is not installed and is left out")
        for size in sizes[group]:
            for peer in alternate(here, repeats):
                sample = Sample(group, peer.name, size, once(peer, size, folder))
                say(f"{group:>9} {size:>7} {peer.name:<32} {per_task_ms(sample):7.3f} ms/task")
                samples.append(sample)
    return samples


def once(peer: Peer, size: int, folder: Path | None) -> float:
    """Wall seconds of one run in an empty folder; every task must have left its file."""
    names = [f"{number:07d}" for number in range(size)]
    with tempfile.TemporaryDirectory(prefix="milepost-bench-", dir=folder) as root:
        place, scratch = Path(root, "files"), Path(root, "scratch")
        place.mkdir()
        scratch.mkdir()
        seconds = peer.run(names, place, scratch)
        made = sorted(path.name for path in place.iterdir())
    if made != names:
        raise SystemExit(f"bench: {peer.name} made {len(made)} of {size} files")
    return seconds


def per_task_ms(measured: Sample | Summary) -> float:
    seconds = measured.seconds if isinstance(measured, Sample) else measured.median_s
    return 1000 * seconds / measured.size


def table(samples: Sequence[Sample]) -> Iterator[str]:
    """Markdown: one table for each group; a ratio above 1 says that the row is slower."""
    summaries = summarise(samples)
    for group in GROUPS:
        rows = [summary for summary in summaries if summary.group == group]
        if not rows:
            continue
        yield f"### {group.capitalize()}"
        yield ""
        yield "| tasks | tool | remembers after a crash | ms per task | range | after start-up | against milepost |"
        yield "|--:|---|---|--:|--:|--:|--:|"
        for row in sorted(rows, key=lambda row: (row.size, row.median_s)):
            yield _row(row, summaries)
        yield ""


def _row(row: Summary, summaries: Sequence[Summary]) -> str:
    durable = next(peer.durable for peer in GROUPS[row.group] if peer.name == row.name)
    cells = [
        f"{row.size:,}",
        row.name,
        durable,
        f"{per_task_ms(row):.3f}",
        f"{1000 * row.least_s / row.size:.3f} - {1000 * row.greatest_s / row.size:.3f}",
        number(marginal_ms(row, summaries), 3),
        number(ratio(summaries, row, OURS), 2),
    ]
    return f"| {' | '.join(cells)} |"


def marginal_ms(row: Summary, summaries: Sequence[Summary]) -> float | None:
    """Milliseconds of each further task: without what a run of a single task takes."""
    for one in summaries:
        if (one.group, one.name, one.size) == (row.group, row.name, 1) and row.size > 1:
            return 1000 * (row.median_s - one.median_s) / (row.size - 1)
    return None


def number(value: float | None, digits: int) -> str:
    return "n/a" if value is None else f"{value:.{digits}f}"


def section(options: Options) -> Iterator[str]:
    """Measure, and tell it."""
    sizes = {"quick": QUICK, "full": FULL}.get(options.size, SIZES)
    samples = measure(sizes, options.rounds(5), options.folder, options.say)
    yield from bars_table(bars(samples))
    yield from (HOW, "")
    yield from table(samples)


def bars(samples: Sequence[Sample]) -> Iterator[Bar]:
    """Milepost with its durable journal against each tool, by the largest number of processes."""
    summaries = [one for one in summarise(samples) if one.group == "processes"]
    ours = [one for one in summaries if one.name == OURS and one.size > 1]
    for own in ours:
        tasks = f"{own.size:,} processes"
        yield Bar(f"{tasks}, time against `xargs -P`", ratio(summaries, own, "xargs -P"), 1.5)
        for name in ("GNU parallel --joblog", "HyperQueue"):
            slower = ratio(summaries, own, name)
            faster = None if slower is None else 1 / slower
            yield Bar(f"{tasks}, speed against {name}", faster, 2, at_least=True)


HOW = (
    f"Each task makes one empty file, {WORKERS} at a time: as a process (`touch`) or as a "
    "Python callable. Times are whole runs, start-up included, on the same file system; "
    "a run counts only when every file is there. Tools take turns, and each round starts "
    "with another one. Medians with the least and the greatest; the run of a single task is "
    "the start-up, and `after start-up` is what each further task costs. HyperQueue's server and "
    "worker stand before its clock starts, and its end is the time of its last file, since "
    "its client looks only once a second."
)
