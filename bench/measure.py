"""Repeat, alternate, check and summarise: the part that all benchmarks share."""

from __future__ import annotations

import os
import platform
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Sample:
    """One measured run: wall seconds of `name` for `size` units of work."""

    group: str
    name: str
    size: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Summary:
    """Median, least and greatest wall seconds of the repeats."""

    group: str
    name: str
    size: int
    median_s: float
    least_s: float
    greatest_s: float
    repeats: int


def alternate(items: Sequence[Item], repeats: int) -> Iterator[Item]:
    """Each item once in a round, each round beginning with another one.

    What warms up or slows down the machine during the measurement meets all items alike.
    """
    for turn in range(repeats):
        first = turn % len(items) if items else 0
        yield from [*items[first:], *items[:first]]


def summarise(samples: Sequence[Sample]) -> list[Summary]:
    """One summary for each group, name and size, in the order of their first appearance."""
    groups: dict[tuple[str, str, int], list[float]] = {}
    for sample in samples:
        groups.setdefault((sample.group, sample.name, sample.size), []).append(sample.seconds)
    return [
        Summary(*key, statistics.median(seconds), min(seconds), max(seconds), len(seconds))
        for key, seconds in groups.items()
    ]


def ratio(summaries: Sequence[Summary], of: Summary, to: str) -> float | None:
    """How many times the median of `to` that of `of` is; None when `to` was not measured."""
    for other in summaries:
        if (other.group, other.name, other.size) == (of.group, to, of.size):
            return of.median_s / other.median_s
    return None


def machine() -> str:
    """The machine in general terms: no name, no address."""
    with_memory = _memory_gib()
    memory = "" if with_memory is None else f", {with_memory:.0f} GiB of memory"
    return (
        f"{len(os.sched_getaffinity(0))} cores of {_processor()}{memory}, "
        f"Linux {platform.release().split('-')[0]}, Python {platform.python_version()}"
    )


def _processor() -> str:
    return _field("/proc/cpuinfo", "model name", str) or platform.machine()


def _memory_gib() -> float | None:
    return _field("/proc/meminfo", "MemTotal", lambda text: int(text.split()[0]) / 2**20)


def _field(path: str, key: str, convert: Callable[[str], Item]) -> Item | None:
    """The first `key: value` of a file below /proc; None where there is no such file or key."""
    try:
        with open(path, encoding="utf-8") as stream:  # noqa: PTH123
            lines = [line for line in stream if line.startswith(key)]
    except FileNotFoundError:
        return None
    return convert(lines[0].partition(":")[2].strip()) if lines else None
