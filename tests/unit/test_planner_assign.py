"""The assignment of shards to offers: each limit where it binds, and brute force on small cases."""

from __future__ import annotations

import itertools
import random
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from milepost.errors import RuntimeFailure
from milepost.planner import solver
from milepost.planner.assign import assign, is_possible
from milepost.planner.problem import Assignment, Group, Limits, Offer, fits
from milepost.planner.relax import Relaxation, find_relaxations

CHEAP = Offer("cheap", 1, 24.0)
FAST = Offer("fast", 2, 80.0)
BOTH = [CHEAP, FAST]
EITHER = pytest.mark.parametrize("name", solver.SOLVERS)


def group(count: int = 4, vram_gb: float | None = None) -> Group:
    return Group("g", count, {"cheap": 100.0, "fast": 50.0}, {"cheap": 1.0, "fast": 3.0}, vram_gb)


def splits(count: int, names: Sequence[str]) -> Iterator[dict[str, int]]:
    for numbers in itertools.product(range(count + 1), repeat=len(names)):
        if sum(numbers) == count:
            yield dict(zip(names, numbers, strict=True))


def seconds_of(lengths: Sequence[float], places: int | None) -> float:
    """Rounds of `places` shards, the longest first, each as long as its longest."""
    ordered = sorted(lengths, reverse=True)
    return sum(ordered[:: places or max(1, len(ordered))])


def brute_force(
    groups: Sequence[Group], offers: Sequence[Offer], limits: Limits, soonest: bool
) -> tuple[float, float] | None:
    """Best (first, second) objective over every assignment."""
    best: tuple[float, float] | None = None
    choices = [list(splits(one.count, [o.name for o in offers if fits(one, o)])) for one in groups]
    for pick in itertools.product(*choices):
        cost = stored = 0.0
        lengths: dict[str, list[float]] = {offer.name: [] for offer in offers}
        for one, part in zip(groups, pick, strict=True):
            for name, n in part.items():
                cost += n * one.cost[name]
                stored += n * one.stored_gb.get(name, 0.0)
                lengths[name] += [one.seconds[name]] * n
        busy: dict[str, float] = {}
        for offer in offers:
            pool = offer.pool or offer.name
            busy[pool] = busy.get(pool, 0.0) + seconds_of(lengths[offer.name], offer.places)
        time = max(busy.values())
        if any(
            limit is not None and value > limit
            for value, limit in (
                (time, limits.deadline_s),
                (cost, limits.budget),
                (stored, limits.storage_gb),
            )
        ):
            continue
        score = (time, cost) if soonest else (cost, time)
        best = score if best is None else min(best, score)
    return best


def score(found: Assignment, soonest: bool) -> tuple[float, float]:
    return (found.time_s, found.cost) if soonest else (found.cost, found.time_s)


def shares(found: Assignment | None) -> dict[tuple[str, str], int]:
    assert found is not None
    return found.shares


def test_cheapest_without_limits() -> None:
    found = assign([group()], BOTH, Limits())
    assert found is not None
    assert (found.shares, found.cost, found.time_s) == ({("g", "cheap"): 4}, 4.0, 400.0)
    assert found.gap == 0.0


@EITHER
def test_a_deadline_moves_only_what_it_must(name: str) -> None:
    found = assign([group()], BOTH, Limits(deadline_s=200.0), solvers=(name,))
    assert shares(found) == {("g", "cheap"): 2, ("g", "fast"): 2}
    assert found is not None
    assert (found.cost, found.time_s, found.solver) == (8.0, 200.0, name)


@EITHER
def test_soonest_within_a_budget(name: str) -> None:
    found = assign([group()], BOTH, Limits(budget=10.0), soonest=True, solvers=(name,))
    assert found is not None
    assert (found.time_s, found.cost) == (100.0, 10.0)


def test_capacity_binds() -> None:
    one_place = [CHEAP, replace(FAST, places=1)]
    assert shares(assign([group()], BOTH, Limits(deadline_s=100.0))) == {
        ("g", "cheap"): 1,
        ("g", "fast"): 3,
    }
    assert assign([group()], one_place, Limits(deadline_s=100.0)) is None
    assert assign([group()], [replace(CHEAP, places=0)], Limits()) is None


def test_memory_decides_what_fits() -> None:
    assert shares(assign([group(vram_gb=48.0)], BOTH, Limits())) == {("g", "fast"): 4}
    assert assign([group(vram_gb=96.0)], BOTH, Limits()) is None


def test_walltime_decides_what_fits() -> None:
    needs = replace(group(), least_s={"cheap": 300.0, "fast": 150.0})
    short = [replace(CHEAP, walltime_s=200.0), replace(FAST, walltime_s=200.0)]
    assert shares(assign([needs], short, Limits())) == {("g", "fast"): 4}
    assert shares(assign([group()], short, Limits())) == {("g", "cheap"): 4}
    assert assign([needs], short[:1], Limits()) is None


def test_storage_binds() -> None:
    stores = replace(group(), stored_gb={"cheap": 30.0, "fast": 10.0})
    found = assign([stores], BOTH, Limits(storage_gb=80.0))
    assert shares(found) == {("g", "cheap"): 2, ("g", "fast"): 2}
    assert found is not None and found.stored_gb == 80.0
    assert assign([stores], BOTH, Limits(storage_gb=39.0)) is None


def test_offers_of_one_pool_use_their_gpus_one_after_the_other() -> None:
    slices = Offer("cheap", 2, 24.0, pool="node")
    whole = Offer("fast", 1, 80.0, pool="node")
    found = assign([group()], [slices, whole], Limits(), soonest=True)
    assert found is not None and found.time_s == 200.0  # apart they would need 150
    apart = [replace(slices, pool=None), replace(whole, pool=None)]
    alone = assign([group()], apart, Limits(), soonest=True)
    assert alone is not None and alone.time_s == 100.0


def test_no_limit_of_places_is_one_round() -> None:
    found = assign([group()], [Offer("cheap"), Offer("fast")], Limits())
    assert found is not None and found.time_s == 100.0


def test_groups_share_rounds() -> None:
    long, short = Group("l", 1, {"a": 9.0}, {"a": 1.0}), Group("s", 3, {"a": 2.0}, {"a": 1.0})
    found = assign([short, long], [Offer("a", 2)], Limits())
    assert found is not None and found.time_s == 11.0  # 9 beside 2, then 2 beside 2


@st.composite
def questions(draw: st.DrawFn) -> tuple[list[Group], list[Offer], Limits]:
    number = st.integers(1, 9)
    maybe_places = st.one_of(st.none(), st.integers(1, 3))
    offers = [
        Offer(
            name,
            draw(maybe_places),
            draw(number) * 10.0,
            draw(st.one_of(st.none(), number.map(float))),
            draw(st.sampled_from([None, "p"])),
        )
        for name in ("a", "b", "c")[: draw(st.integers(1, 3))]
    ]
    names = [offer.name for offer in offers]

    def each() -> dict[str, float]:
        return {name: float(draw(number)) for name in names}

    groups = [
        Group(
            f"g{index}",
            draw(st.integers(1, 4)),
            each(),
            each(),
            draw(st.one_of(st.none(), number.map(lambda n: n * 10.0))),
            each() if draw(st.booleans()) else {},
            each(),
        )
        for index in range(draw(st.integers(1, 2)))
    ]
    limits = Limits(
        draw(st.one_of(st.none(), st.integers(3, 30).map(float))),
        draw(st.one_of(st.none(), st.integers(3, 40).map(float))),
        draw(st.one_of(st.none(), st.integers(3, 60).map(float))),
    )
    return groups, offers, limits


@settings(max_examples=150, deadline=None)
@given(
    question=questions(),
    soonest=st.booleans(),
    name=st.sampled_from(["HiGHS", "HiGHS", "HiGHS", "CBC"]),
)
def test_assignment_is_the_best_one(
    question: tuple[list[Group], list[Offer], Limits], soonest: bool, name: str
) -> None:
    expected = brute_force(*question, soonest)
    found = assign(*question, soonest=soonest, solvers=(name,))
    if expected is None:
        assert found is None
    else:
        assert found is not None and found.solver == name
        assert score(found, soonest) == pytest.approx(expected)
        for one in question[0]:
            assert sum(n for (g, _), n in found.shares.items() if g == one.name) == one.count


class TestManyShards:
    """Where the whole search would explode: an answer near the best one, and how near."""

    def question(self) -> tuple[list[Group], list[Offer]]:
        dice = random.Random(5)
        speeds = {f"o{i}": dice.uniform(0.5, 4.0) for i in range(5)}
        prices = {name: speed * dice.uniform(0.5, 1.5) for name, speed in speeds.items()}
        offers = [Offer(name, dice.randint(4, 40)) for name in speeds]
        groups = []
        for number in range(12):
            length = dice.uniform(100.0, 5000.0)
            seconds = {name: length / speed for name, speed in speeds.items()}
            cost = {name: s * prices[name] / 3600.0 for name, s in seconds.items()}
            groups.append(Group(f"g{number}", 400, seconds, cost))
        return groups, offers

    def test_the_stated_gap_holds_and_is_small(self) -> None:
        groups, offers = self.question()
        fast = assign(groups, offers, Limits(), soonest=True, thorough=False)
        assert fast is not None and 0.0 <= fast.gap < 0.1
        capacity = sum(
            (o.places or 0) / groups[0].seconds[o.name] * groups[0].seconds["o0"] for o in offers
        )
        work = sum(g.count * g.seconds["o0"] for g in groups)
        assert fast.time_s * (1.0 - fast.gap) <= work / capacity * (1.0 + 1e-6) <= fast.time_s
        cheap = assign(groups, offers, Limits(deadline_s=1.3 * fast.time_s))
        assert cheap is not None and 0.0 < cheap.gap < 0.02
        assert cheap.cost < fast.cost and cheap.time_s <= 1.3 * fast.time_s

    def test_a_wider_search_is_not_worse(self) -> None:
        groups, offers = self.question()
        first = assign(groups, offers, Limits(deadline_s=9e4), thorough=False)
        second = assign(groups, offers, Limits(deadline_s=9e4))
        assert first is not None and second is not None
        assert (second.cost, second.gap) <= (first.cost, first.gap)

    def test_the_soonest_keeps_its_own_deadline(self) -> None:
        groups, offers = self.question()
        fast = assign(groups, offers, Limits(), soonest=True, thorough=False)
        assert fast is not None
        assert is_possible(groups, offers, Limits(deadline_s=fast.time_s))
        assert not is_possible(groups, offers, Limits(deadline_s=0.9 * fast.time_s))


class TestSolvers:
    def test_the_choice_falls_back_by_itself_and_says_who_answered(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        import pulp

        assert solver.available() == ("HiGHS", "CBC")
        first = assign([group()], BOTH, Limits(deadline_s=200.0))
        assert first is not None and first.solver == "HiGHS"

        def breaks(*_: object, **__: object) -> None:
            raise pulp.PulpSolverError("out of memory")

        monkeypatch.setattr(pulp.HiGHS, "actualSolve", breaks)
        second = assign([group()], BOTH, Limits(deadline_s=200.0))
        assert second is not None and second.solver == "CBC"
        assert second.shares == first.shares
        with pytest.raises(RuntimeFailure, match="out of memory"):
            assign([group()], BOTH, Limits(), solvers=("HiGHS",))

    def test_without_highs_there_is_cbc(self) -> None:
        script = (
            "import sys; sys.modules['highspy'] = None\n"
            "from milepost.planner import solver\n"
            "from milepost.planner.assign import assign\n"
            "from milepost.planner.problem import Group, Limits, Offer\n"
            "one = Group('g', 4, {'a': 1.0}, {'a': 1.0})\n"
            "print(solver.available(), assign([one], [Offer('a', 2)], Limits()).solver)"
        )
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", script],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        assert done.stdout == "('CBC',) CBC\n"

    def test_stdout_belongs_to_the_result(self) -> None:
        script = (
            "from milepost.planner.assign import assign\n"
            "from milepost.planner.problem import Group, Limits, Offer\n"
            "one = Group('g', 4, {'a': 1.0}, {'a': 1.0})\n"
            "print(assign([one], [Offer('a', 2)], Limits()).solver)"
        )
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", script],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        assert (done.stdout, done.stderr) == ("HiGHS\n", "")


LIMITED = Limits(deadline_s=150.0, budget=9.0)


def named(found: Sequence[Relaxation]) -> dict[str, Relaxation]:
    return {one.what: one for one in found}


def test_the_binding_wish_is_named_with_its_least_change() -> None:
    assert assign([group()], BOTH, LIMITED) is None
    found = named(find_relaxations([group()], BOTH, LIMITED))
    assert found["budget"].text == "budget: 10"
    assert found["deadline"].text == "deadline_h: 0.0556"
    assert found["capacity"].text == "gpus_max: 2 for cheap"


def test_relaxations_come_smallest_first() -> None:
    found = find_relaxations([group()], BOTH, LIMITED)
    assert [one.relative for one in found] == sorted(one.relative for one in found)


@pytest.mark.parametrize(
    ("field", "limits"),
    [
        ("deadline_s", LIMITED),
        ("budget", LIMITED),
        ("storage_gb", Limits(storage_gb=30.0, deadline_s=200.0)),
        ("storage_gb", Limits(storage_gb=50.0, budget=8.0)),
    ],
)
def test_a_wish_relaxed_by_it_works_and_by_a_bit_less_does_not(field: str, limits: Limits) -> None:
    one = replace(group(), stored_gb={"cheap": 30.0, "fast": 10.0})
    assert not is_possible([one], BOTH, limits)
    (found,) = [r for r in find_relaxations([one], BOTH, limits) if field in r.least]
    least = found.least[field]
    assert is_possible([one], BOTH, replace(limits, **{field: least * (1 + 1e-6)}))
    assert not is_possible([one], BOTH, replace(limits, **{field: least * (1 - 1e-4)}))


def test_capacity_relaxed_by_it_works_and_by_one_less_does_not() -> None:
    limits = Limits(deadline_s=50.0)
    found = named(find_relaxations([group(9)], BOTH, limits))["capacity"]
    assert found.least == {"fast": 9.0}
    assert is_possible([group(9)], [CHEAP, replace(FAST, places=9)], limits)
    assert not is_possible([group(9)], [CHEAP, replace(FAST, places=8)], limits)


def test_capacity_of_a_pool_counts_its_gpus() -> None:
    slices = Offer("cheap", 7, 10.0, pool="node", gpus_a_place=1 / 7)
    limits = Limits(deadline_s=100.0)
    found = named(find_relaxations([group(20)], [slices], limits))["capacity"]
    assert found.text == "gpus_max: 3 for node"
    assert found.least["node"] == pytest.approx(20 / 7)


def test_walltime_relaxed_by_it_works_and_by_a_bit_less_does_not() -> None:
    needs = replace(group(), least_s={"cheap": 7200.0, "fast": 10000.0})
    offers = [replace(CHEAP, walltime_s=3600.0), replace(FAST, walltime_s=7200.0)]
    (found,) = find_relaxations([needs], offers, Limits())
    assert (found.what, found.text) == ("walltime", "walltime_max_h: 2.78 for fast")
    (walltime_s,) = found.least.values()
    longer = [offers[0], replace(offers[1], walltime_s=walltime_s)]
    assert is_possible([needs], longer, Limits())
    shorter = [offers[0], replace(offers[1], walltime_s=walltime_s - 1)]
    assert not is_possible([needs], shorter, Limits())


def test_memory_relaxed_by_it_works_and_by_a_bit_less_does_not() -> None:
    large = group(vram_gb=96.0)
    (found,) = find_relaxations([large], BOTH, Limits())
    assert found.what == "memory"
    assert "96 GB" in found.text and "80 GB" in found.text
    assert is_possible([replace(large, vram_gb=found.least["vram_gb"])], BOTH, Limits())
    assert not is_possible([replace(large, vram_gb=80.1)], BOTH, Limits())
    tight = Limits(deadline_s=50.0)  # both kinds of GPUs are needed in time
    several = [replace(CHEAP, places=4), FAST]
    slow = replace(group(4, 30.0), seconds={"cheap": 50.0, "fast": 50.0})
    assert named(find_relaxations([slow], several, tight))["memory"].least == {"vram_gb": 24.0}


def test_wishes_that_only_give_way_together() -> None:
    limits = Limits(deadline_s=10.0, budget=1.0)
    offers = [Offer("cheap"), Offer("fast")]
    (found,) = find_relaxations([group()], offers, limits)
    assert found.what == "deadline and budget"
    assert found.least == {"deadline_s": 100.0, "budget": 4.0}
    together = Limits(**found.least)
    assert is_possible([group()], offers, together)
    for field, value in found.least.items():
        assert not is_possible([group()], offers, replace(together, **{field: value * 0.999}))


@settings(max_examples=60, deadline=None)
@given(question=questions())
def test_every_relaxation_of_a_wish_is_the_least(
    question: tuple[list[Group], list[Offer], Limits],
) -> None:
    groups, offers, limits = question
    if brute_force(groups, offers, limits, False) is not None:
        return
    for found in find_relaxations(groups, offers, limits):
        fields = [f for f in ("deadline_s", "budget", "storage_gb") if f in found.least]
        if not fields:
            continue
        relaxed = replace(limits, **{f: found.least[f] + 1e-6 for f in fields})
        assert brute_force(groups, offers, relaxed, False) is not None
        for field in fields:
            less = replace(relaxed, **{field: found.least[field] - 0.5})
            assert brute_force(groups, offers, less, False) is None


def test_no_place_at_all() -> None:
    (found,) = find_relaxations([group()], [replace(CHEAP, places=0)], Limits())
    assert found.what == "capacity"
