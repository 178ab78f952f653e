"""Axes of the report's drawings: from numbers to places in an SVG, with ticks at round values."""

from __future__ import annotations

import math
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 480.0, 300.0
LEFT, RIGHT, TOP, BOTTOM = 62.0, 14.0, 26.0, 46.0
UNITS = ((86400.0, "d"), (3600.0, "h"), (60.0, "min"), (1.0, "s"))

_MARKED_S = (1.0, 10.0, 60.0, 600.0, 3600.0, 36000.0, 86400.0 * 4, 86400.0 * 40)
_LESS_S = (0.01, 0.1)


def place_x(share: float) -> float:
    """From a share of the width of the plot to a place in the drawing."""
    return LEFT + share * (WIDTH - LEFT - RIGHT)


def place_y(share: float) -> float:
    """From a share of the height, counted from the bottom."""
    return HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)


@dataclass(frozen=True, slots=True)
class Linear:
    """Values from `first` to `last`, both finite and apart."""

    first: float
    last: float

    def share(self, value: float) -> float:
        return (value - self.first) / (self.last - self.first)

    def ticks(self) -> list[float]:
        """Three to seven round values."""
        raw = (self.last - self.first) / 6.0
        size = 10.0 ** math.floor(math.log10(raw))
        step = next(size * k for k in (1.0, 2.0, 2.5, 5.0, 10.0) if size * k >= raw * (1 - 1e-9))
        begin = math.ceil(self.first / step - 1e-9)
        return [k * step for k in range(begin, math.floor(self.last / step + 1e-9) + 1)]


@dataclass(frozen=True, slots=True)
class LogSeconds:
    """Times from `first` to `last` seconds, each factor as wide as any other."""

    first: float
    last: float

    def share(self, seconds: float) -> float:
        return math.log(seconds / self.first) / math.log(self.last / self.first)

    def ticks(self) -> list[float]:
        """Round times: seconds, minutes, hours and days in steps of about ten."""
        return [one for one in (*_LESS_S, *_MARKED_S) if self.first <= one <= self.last]

    def small_ticks(self) -> list[float]:
        """Twice, five times … a tick, without text."""
        found = []
        for unit, most in ((0.01, 100.0), (1.0, 60.0), (60.0, 60.0), (3600.0, 24.0)):
            found += [unit * k for k in (2.0, 5.0, 20.0, 50.0) if k < most]
            found += [unit * 30.0] if most == 60.0 else []
        found += [86400.0 * k for k in (1.0, 2.0, 10.0, 20.0)]
        return [one for one in found if self.first <= one <= self.last]


def unit_of(seconds: float) -> tuple[float, str]:
    """The unit in which a time of this length is a number above 2 or so."""
    return next((one for one in UNITS if seconds >= 2.0 * one[0]), UNITS[-1])


def short(seconds: float) -> str:
    """A round time as its tick says it."""
    size, unit = next((one for one in UNITS if seconds >= one[0]), UNITS[-1])
    return f"{seconds / size:g} {unit}"


def upright(at: float, text: str, *, is_small: bool = False) -> str:
    """A tick of the lower axis, with its text below."""
    base = HEIGHT - BOTTOM
    mark = f'<path class="tick" d="M{at:.1f} {base:g}v{3 if is_small else 6}"/>'
    return (
        mark
        if is_small
        else f'{mark}<text class="mid" x="{at:.1f}" y="{base + 20:g}">{text}</text>'
    )


def level(at: float, text: str) -> str:
    """A line across the plot, with its text on the left."""
    return (
        f'<path class="grid" d="M{LEFT:g} {at:.1f}H{WIDTH - RIGHT:g}"/>'
        f'<text class="end" x="{LEFT - 7:g}" y="{at + 4:.1f}">{text}</text>'
    )


def caption(text: str) -> str:
    """What the lower axis counts, below its ticks."""
    middle = (LEFT + WIDTH - RIGHT) / 2
    return f'<text class="mid axis" x="{middle:g}" y="{HEIGHT - 5:g}">{text}</text>'


def heading(text: str) -> str:
    """What the upright axis counts, above its ticks."""
    return f'<text class="axis" x="8" y="13">{text}</text>'


def picture(name: str, title: str, description: str, parts: list[str]) -> str:
    """The drawing, with a title and a description (plain texts) for those who cannot see it."""
    clip = (
        f'<clipPath id="{name}-plot"><rect x="{LEFT:g}" y="{TOP:g}" '
        f'width="{WIDTH - LEFT - RIGHT:g}" height="{HEIGHT - TOP - BOTTOM:g}"/></clipPath>'
    )
    return (
        f'<svg class="plot" viewBox="0 0 {WIDTH:g} {HEIGHT:g}" role="img" '
        f'aria-labelledby="{name}-title {name}-desc"><title id="{name}-title">{escape(title)}</title>'
        f'<desc id="{name}-desc">{escape(description)}</desc>{clip}{"".join(parts)}</svg>'
    )
