"""Executions of jobs as time at risk: from when to when, on how many nodes, and how each ended."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

FEWEST_GAPS = 3
"""Fewer gaps than this say nothing about bursts."""
FEWEST_FOR_SHAPE = 20
"""A Weibull shape from fewer failures is noise."""


class End(StrEnum):
    """How an execution ended, as far as the machine is concerned.

    CENSORED is every end that is not the machine's fault: it ended well, was cancelled, ran out
    of its time or memory, failed by its own fault, or still runs.
    """

    FAILURE = "failure"
    PREEMPTION = "preemption"
    CENSORED = "censored"


@dataclass(frozen=True, slots=True)
class Span:
    """One execution; times are seconds since the epoch.

    `place` is the partition and QOS, on which preemption depends; `gpus` is None when not known.
    """

    start_s: float
    end_s: float
    nodes: int = 1
    end: End = End.CENSORED
    place: str = ""
    gpus: int | None = None

    @property
    def seconds(self) -> float:
        return self.end_s - self.start_s


def clip(spans: Iterable[Span], since_s: float, until_s: float = math.inf) -> tuple[Span, ...]:
    """The parts of the spans within a window. An end before it is gone with its failure."""
    kept = []
    for span in spans:
        start_s, end_s = max(span.start_s, since_s), min(span.end_s, until_s)
        if end_s > start_s or (span.end is not End.CENSORED and since_s <= span.end_s <= until_s):
            end = span.end if span.end_s <= until_s else End.CENSORED
            kept.append(replace(span, start_s=start_s, end_s=max(start_s, end_s), end=end))
    return tuple(kept)


def gaps(spans: Sequence[Span], kind: End) -> list[float]:
    """Node seconds at risk before the first end of `kind`, and between one and the next.

    Measured in exposure, not by the calendar: a month without jobs is no quiet month.
    """
    import numpy as np

    ends = sorted(span.end_s for span in spans if span.end is kind)
    if not ends:
        return []
    moments, total = _exposure(spans)
    at = np.interp(ends, moments, total)
    return [float(gap) for gap in np.diff(np.concatenate(([0.0], at)))]


def _exposure(spans: Sequence[Span]) -> tuple[Any, Any]:
    """Moments, and the node seconds at risk up to each of them."""
    import numpy as np

    edges = [(span.start_s, span.nodes) for span in spans]
    edges += [(span.end_s, -span.nodes) for span in spans]
    edges.sort()
    moments = np.array([moment for moment, _ in edges])
    nodes = np.cumsum([change for _, change in edges])
    steps = np.diff(moments) * nodes[:-1]
    return moments, np.concatenate(([0.0], np.cumsum(steps)))


def burstiness(found: Sequence[float]) -> float | None:
    """C2 of the gaps: their variance over their squared mean. 1 for a constant rate, more for
    bursts; None with fewer than three gaps."""
    if len(found) < FEWEST_GAPS:
        return None
    mean = math.fsum(found) / len(found)
    if mean <= 0.0:
        return None
    return math.fsum((gap - mean) ** 2 for gap in found) / (len(found) - 1) / mean**2


def weibull_shape(found: Sequence[float], rest: float = 0.0) -> float | None:
    """Shape of a Weibull distribution of the gaps; below 1 failures come in clusters.

    Maximum likelihood with the time since the last failure, `rest`, censored: the k that solves
    sum(x^k ln x)/sum(x^k) - 1/k = mean(ln gap), the left side over gaps and rest (Cohen 1965).
    None with fewer than twenty gaps. It hardly moves the interval, so nothing is planned with it.
    """
    if len(found) < FEWEST_FOR_SHAPE or sum(found) <= 0.0:
        return None
    tiny = 1e-6 * math.fsum(found) / len(found)
    logs = [math.log(max(gap, tiny)) for gap in found]
    every = [*logs, math.log(rest)] if rest > 0.0 else logs
    mean, top = math.fsum(logs) / len(logs), max(every)

    def surplus(shape: float) -> float:
        weights = [math.exp(shape * (one - top)) for one in every]
        weighted = math.fsum(w * one for w, one in zip(weights, every, strict=True))
        return weighted / math.fsum(weights) - 1.0 / shape - mean

    low, high = 0.02, 50.0
    for _ in range(60):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if surplus(middle) < 0.0 else (low, middle)
    return math.sqrt(low * high)
