"""What a part of the benchmark is: a section of the page, and the bars that it is held to."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Options:
    """How to measure. `repeats` None: as many rounds as the part thinks right; `folder` chooses
    the file system (None: /tmp); pictures go into `figures`; `say` tells the progress."""

    size: str = "usual"
    """quick | usual | full"""
    repeats: int | None = None
    folder: Path | None = None
    figures: Path | None = None
    say: Callable[[str], None] = print

    def rounds(self, usual: int, quick: int = 2) -> int:
        """Rounds of each measurement."""
        return self.repeats or (quick if self.size == "quick" else usual)


class Part(Protocol):
    """A module of this package. `TITLE` heads its section; `section` measures and gives the lines
    below the heading, the bars first."""

    TITLE: str

    def section(self, options: Options) -> Iterator[str]: ...


@dataclass(frozen=True, slots=True)
class Bar:
    """What we hold ourselves to: `what` is measured as `value` (None: not measured), which must be
    at most, or at least, `limit`."""

    what: str
    value: float | None
    limit: float
    at_least: bool = False
    unit: str = ""

    def is_met(self) -> bool | None:
        if self.value is None:
            return None
        return self.value >= self.limit if self.at_least else self.value <= self.limit


def bars_table(bars: Sequence[Bar]) -> Iterator[str]:
    """Markdown: each bar, what was measured, and whether it is met."""
    yield "| what we hold ourselves to | bar | measured | met |"
    yield "|---|--:|--:|---|"
    for bar in bars:
        side = "at least" if bar.at_least else "at most"
        measured = "n/a" if bar.value is None else f"{bar.value:.3g}{bar.unit}"
        met = {True: "yes", False: "**no**", None: "n/a"}[bar.is_met()]
        yield f"| {bar.what} | {side} {bar.limit:g}{bar.unit} | {measured} | {met} |"
    yield ""
