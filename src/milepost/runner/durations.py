"""How long tasks take: the p95 that decides whether another one fits into the walltime."""

from __future__ import annotations

from collections import deque

SAMPLE = 1000
FRESH_SHARE = 0.05


class Durations:
    """The last `SAMPLE` durations. The p95 is sorted out anew when a twentieth of them is new."""

    def __init__(self) -> None:
        self._seconds: deque[float] = deque(maxlen=SAMPLE)
        self._p95 = 0.0
        self._fresh = 0

    def add(self, seconds: float) -> None:
        self._seconds.append(seconds)
        self._fresh += 1
        if self._fresh > FRESH_SHARE * len(self._seconds):
            self._fresh = 0
            self._p95 = sorted(self._seconds)[int(0.95 * (len(self._seconds) - 1))]

    @property
    def p95_s(self) -> float:
        """Seconds; 0 before the first task ended."""
        return self._p95
