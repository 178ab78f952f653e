"""Numbers for people."""

from __future__ import annotations

import pytest

from milepost.evidence.words import core_hours, duration, plural, size, some


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, "n/a"), (0.0, "0 s"), (90, "90 s"), (600, "10 min"), (9000, "2.5 h"), (5e5, "5.79 d")],
)
def test_durations(seconds: float | None, text: str) -> None:
    assert duration(seconds) == text


def test_plural() -> None:
    assert [plural(n, "task") for n in (0, 1, 10_000)] == ["0 tasks", "1 task", "10,000 tasks"]


@pytest.mark.parametrize(
    ("value", "text"), [(None, "n/a"), (0.0, "0"), (0.01427, "0.0143"), (12.5, "12.5")]
)
def test_core_hours(value: float | None, text: str) -> None:
    assert core_hours(value) == text


def test_many_core_hours_have_commas() -> None:
    assert core_hours(12_345.6) == "12,346"


@pytest.mark.parametrize(
    ("count", "text"), [(None, "n/a"), (512, "512 B"), (2_097_152, "2.1 MB"), (5e12, "5 TB")]
)
def test_sizes(count: float | None, text: str) -> None:
    assert size(count) == text


def test_of_many_names_the_first_are_named() -> None:
    assert some(["a", "b"]) == "a, b"
    assert some([str(n) for n in range(1203)]) == "0, 1, 2 and 1,200 more"
