"""The p95 of task durations."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from milepost.runner.durations import SAMPLE, Durations


def test_nothing_is_known_before_the_first_task() -> None:
    assert Durations().p95_s == 0.0


@given(st.lists(st.floats(0.001, 1000.0), min_size=1, max_size=300))
def test_it_lies_near_the_exact_p95_of_what_was_seen(seconds: list[float]) -> None:
    durations = Durations()
    for value in seconds:
        durations.add(value)
    ordered = sorted(seconds)
    # at most a twentieth of the values may be missing from it
    assert ordered[int(0.85 * (len(ordered) - 1))] <= durations.p95_s <= ordered[-1]


def test_old_tasks_are_forgotten() -> None:
    durations = Durations()
    for _ in range(SAMPLE):
        durations.add(100.0)
    for _ in range(SAMPLE):
        durations.add(1.0)
    assert durations.p95_s == 1.0
