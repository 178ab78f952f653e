"""Numbers for people."""

from __future__ import annotations

import pytest

from milepost.evidence.words import duration, plural


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, "n/a"), (0.0, "0 s"), (90, "90 s"), (600, "10 min"), (9000, "2.5 h"), (5e5, "5.79 d")],
)
def test_durations(seconds: float | None, text: str) -> None:
    assert duration(seconds) == text


def test_plural() -> None:
    assert [plural(n, "task") for n in (0, 1, 10_000)] == ["0 tasks", "1 task", "10,000 tasks"]
