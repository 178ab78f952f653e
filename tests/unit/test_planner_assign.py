"""The assignment of shards to offers, against brute force on small cases."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from milepost.planner.assign import Assignment, Group, Limits, Offer, assign, fits
from milepost.planner.relax import find_relaxations

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:pulp")

CHEAP = Offer("cheap", 1, 24.0)
FAST = Offer("fast", 2, 80.0)


def group(count: int = 4, vram_gb: float | None = None) -> Group:
    return Group("g", count, {"cheap": 100.0, "fast": 50.0}, {"cheap": 1.0, "fast": 3.0}, vram_gb)


def splits(count: int, names: Sequence[str]) -> Iterator[dict[str, int]]:
    for numbers in itertools.product(range(count + 1), repeat=len(names)):
        if sum(numbers) == count:
            yield dict(zip(names, numbers, strict=True))


def brute_force(
    groups: Sequence[Group], offers: Sequence[Offer], limits: Limits, soonest: bool
) -> tuple[float, float] | None:
    """Best (first, second) objective over every assignment."""
    best: tuple[float, float] | None = None
    choices = [list(splits(one.count, [o.name for o in offers if fits(one, o)])) for one in groups]
    for pick in itertools.product(*choices):
        cost = sum(
            n * g.cost[name]
            for g, part in zip(groups, pick, strict=True)
            for name, n in part.items()
        )
        busy = dict.fromkeys((o.name for o in offers), 0.0)
        places = {o.name: o.places for o in offers}
        for one, part in zip(groups, pick, strict=True):
            for name, n in part.items():
                side = places[name] or one.count
                busy[name] += -(-n // side) * one.seconds[name]
        time = max(busy.values())
        if limits.deadline_s is not None and time > limits.deadline_s:
            continue
        if limits.budget is not None and cost > limits.budget:
            continue
        score = (time, cost) if soonest else (cost, time)
        best = score if best is None else min(best, score)
    return best


def score(found: Assignment, soonest: bool) -> tuple[float, float]:
    return (found.time_s, found.cost) if soonest else (found.cost, found.time_s)


def test_cheapest_without_limits() -> None:
    found = assign([group()], [CHEAP, FAST], Limits())
    assert found == Assignment({("g", "cheap"): 4}, 4.0, 400.0)


def test_a_deadline_moves_only_what_it_must() -> None:
    found = assign([group()], [CHEAP, FAST], Limits(deadline_s=200.0))
    assert found == Assignment({("g", "cheap"): 2, ("g", "fast"): 2}, 8.0, 200.0)


def test_soonest_within_a_budget() -> None:
    found = assign([group()], [CHEAP, FAST], Limits(budget=10.0), soonest=True)
    assert found is not None
    assert (found.time_s, found.cost) == (100.0, 10.0)


def test_memory_decides_what_fits() -> None:
    found = assign([group(vram_gb=48.0)], [CHEAP, FAST], Limits())
    assert found is not None and found.shares == {("g", "fast"): 4}
    assert assign([group(vram_gb=96.0)], [CHEAP, FAST], Limits()) is None


def test_no_limit_of_places_is_one_round() -> None:
    found = assign([group()], [Offer("cheap"), Offer("fast")], Limits())
    assert found is not None and found.time_s == 100.0


@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_assignment_is_the_best_one(data: st.DataObject) -> None:
    number = st.integers(1, 9)
    offers = [
        Offer(name, data.draw(st.one_of(st.none(), st.integers(1, 3))), data.draw(number) * 10.0)
        for name in ("a", "b", "c")[: data.draw(st.integers(1, 3))]
    ]
    groups = [
        Group(
            f"g{index}",
            data.draw(st.integers(1, 4)),
            {o.name: float(data.draw(number)) for o in offers},
            {o.name: float(data.draw(number)) for o in offers},
            data.draw(st.one_of(st.none(), number.map(lambda n: n * 10.0))),
        )
        for index in range(data.draw(st.integers(1, 2)))
    ]
    limits = Limits(
        data.draw(st.one_of(st.none(), st.integers(3, 30).map(float))),
        data.draw(st.one_of(st.none(), st.integers(3, 40).map(float))),
    )
    soonest = data.draw(st.booleans())
    expected = brute_force(groups, offers, limits, soonest)
    found = assign(groups, offers, limits, soonest=soonest)
    if expected is None:
        assert found is None
    else:
        assert found is not None
        assert score(found, soonest) == pytest.approx(expected)


def test_the_binding_wish_is_named_with_its_least_change() -> None:
    limits = Limits(deadline_s=150.0, budget=9.0)
    assert assign([group()], [CHEAP, FAST], limits) is None
    found = {one.what: one.text for one in find_relaxations([group()], [CHEAP, FAST], limits)}
    assert found["budget"] == "budget: 10"
    assert found["deadline"] == "deadline_h: 0.0556"
    assert found["capacity"] == "2 places for cheap"


def test_relaxations_work_and_come_smallest_first() -> None:
    limits = Limits(deadline_s=150.0, budget=9.0)
    found = find_relaxations([group()], [CHEAP, FAST], limits)
    assert [one.relative for one in found] == sorted(one.relative for one in found)
    assert assign([group()], [CHEAP, FAST], Limits(150.0, 10.0)) is not None
    assert assign([group()], [CHEAP, FAST], Limits(200.2, 9.0)) is not None


def test_memory_that_no_profile_has() -> None:
    (found,) = find_relaxations([group(vram_gb=96.0)], [CHEAP, FAST], Limits())
    assert found.what == "memory"
    assert "96 GB" in found.text and "80 GB" in found.text


def test_two_wishes_that_only_give_way_together() -> None:
    limits = Limits(deadline_s=10.0, budget=1.0)
    (found,) = find_relaxations([group()], [Offer("cheap"), Offer("fast")], limits)
    assert found.what == "deadline and budget"
