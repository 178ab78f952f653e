"""The planner's choice: seconds for 10,000 shards, beside a mixed integer model of every shard.

The question is always the same: shards on three profiles in two modes, at least cost within a
deadline that is a third longer than the soonest end. The naive model has a variable for each
shard and offer and is given the same solver, the same tolerance and a minute. An answer counts
only when it keeps the deadline and its cost is not below what the stated gap allows.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from bench.measure import Sample, alternate, summarise
from bench.part import Bar, Options, bars_table
from milepost.errors import RuntimeFailure
from milepost.planner.assign import COARSE, assign
from milepost.planner.classes import classify, worst_error
from milepost.planner.problem import Group, Limits, Offer
from milepost.planner.solver import Effort, available, solve

TITLE = "Planner"
SHARDS = 10_000
MOST_S = 5.0
"""Seconds for 10,000 shards that we hold ourselves to."""
NAIVE = {"quick": (50,), "usual": (50, 200, 500, 2000), "full": (50, 200, 500, 2000, 10_000)}
NAIVE_LIMIT_S = 60.0

PLACES = {"small": (40, 1.0, 1.0), "middle": (24, 1.8, 2.4), "large": (16, 3.1, 5.5)}
"""Profile: shards side by side, speed, price of an hour."""
MODES = {"on-demand": (1.0, 1.02), "interruptible": (0.35, 1.15)}
"""Mode: share of the price, factor of the time."""


@dataclass(frozen=True)
class Kind:
    """`sizes(count)` are the useful seconds of so many shards."""

    name: str
    how: str
    sizes: Callable[[int], list[float]]


def equal(count: int) -> list[float]:
    return [3600.0] * count


def twenty(count: int) -> list[float]:
    dice = random.Random(1)
    return [600.0 * dice.randint(1, 20) for _ in range(count)]


def different(count: int) -> list[float]:
    dice = random.Random(2)
    return [600.0 * 20.0 ** dice.random() for _ in range(count)]


KINDS = (
    Kind("one size", "all equal: one class, the best answer is proven", equal),
    Kind("20 sizes", "a class for each size", twenty),
    Kind("all different", "sizes over a factor of 20, in 40 classes", different),
)


@dataclass(frozen=True)
class Answer:
    """`gap` bounds what a better answer could save; `error` is that of the classes."""

    seconds: float
    cost: float
    gap: float
    error: float
    solver: str


def offers() -> list[Offer]:
    return [
        Offer(f"{profile}, {mode}", places)
        for profile, (places, _, _) in PLACES.items()
        for mode in MODES
    ]


def terms(length_s: float) -> tuple[dict[str, float], dict[str, float]]:
    """Seconds and cost of a shard on each offer."""
    seconds, cost = {}, {}
    for profile, (_, speed, price) in PLACES.items():
        for mode, (share, factor) in MODES.items():
            name = f"{profile}, {mode}"
            seconds[name] = length_s / speed * factor
            cost[name] = seconds[name] / 3600.0 * price * share
    return seconds, cost


def deadline(sizes: Sequence[float]) -> float:
    """A third longer than all places at work without a pause."""
    rate = sum(
        offer.places / terms(1.0)[0][offer.name] for offer in offers() if offer.places is not None
    )
    return 4.0 / 3.0 * sum(sizes) / rate + 2.0 * max(sizes)


def ours(sizes: Sequence[float], solver: str) -> Answer:
    begin = time.perf_counter()
    classes = classify(sizes)
    groups = [Group(f"class {at}", one.count, *terms(one.size)) for at, one in enumerate(classes)]
    found = assign(groups, offers(), Limits(deadline_s=deadline(sizes)), solvers=(solver,))
    seconds = time.perf_counter() - begin
    if found is None or found.time_s > deadline(sizes) * (1.0 + 1e-9):
        raise SystemExit("bench: the choice did not keep the deadline")
    return Answer(seconds, found.cost, found.gap, worst_error(classes), found.solver)


def naive(sizes: Sequence[float], solver: str) -> Answer | None:
    """A binary variable for each shard and offer; None when a minute is not enough."""
    import pulp

    begin = time.perf_counter()
    places = offers()
    problem = pulp.LpProblem("naive")
    x: dict[tuple[int, int], Any] = {}
    for s in range(len(sizes)):
        for o in range(len(places)):
            x[s, o] = pulp.LpVariable(f"x_{s}_{o}", cat="Binary")
        problem += pulp.lpSum(x[s, o] for o in range(len(places))) == 1
    known = [terms(size) for size in sizes]
    for o, offer in enumerate(places):
        side = offer.places or 1
        own = [known[s][0][offer.name] for s in range(len(sizes))]
        work = pulp.LpVariable(f"work_{o}", lowBound=0)
        problem += work == pulp.lpSum(own[s] * x[s, o] for s in range(len(sizes)))
        for s in range(len(sizes)):  # whatever the order: work/p and (1 - 1/p) of the longest
            problem += work + (side - 1) * own[s] * x[s, o] <= side * deadline(sizes)
    problem.setObjective(pulp.lpSum(known[s][1][places[o].name] * one for (s, o), one in x.items()))
    effort = Effort(COARSE.gap, NAIVE_LIMIT_S)
    try:
        found = solve(problem, effort, (solver,))
    except RuntimeFailure:
        return None
    seconds = time.perf_counter() - begin
    if found.value is None or not found.is_best:
        return None
    return Answer(seconds, found.value, effort.gap, 0.0, found.solver)


def measure(options: Options) -> tuple[list[Sample], dict[tuple[str, str], Answer]]:
    """Seconds of ours for 10,000 shards of each kind, with each solver."""
    samples, answers = [], {}
    cases = [(kind, solver) for kind in KINDS for solver in available()]
    for kind, solver in alternate(cases, options.rounds(5)):
        found = ours(kind.sizes(SHARDS), solver)
        options.say(f"{SHARDS} shards, {kind.name:<14} {solver:<6} {found.seconds:7.2f} s")
        samples.append(Sample(kind.name, solver, SHARDS, found.seconds))
        answers[kind.name, solver] = found
    return samples, answers


def compare(options: Options) -> Iterator[tuple[int, str, Answer, Answer | None]]:
    """Both ways with fewer shards of different sizes, and the costs that they come to."""
    for count in NAIVE[options.size]:
        sizes = different(count)
        for solver in available():
            mine, other = ours(sizes, solver), naive(sizes, solver)
            said = "not in a minute" if other is None else f"{other.seconds:.2f} s"
            options.say(f"{count} shards, {solver}: naive {said}, milepost {mine.seconds:.2f} s")
            yield count, solver, mine, other


def section(options: Options) -> Iterator[str]:
    """The lines below the heading: bars, what was done, the tables."""
    samples, answers = measure(options)
    rows = summarise(samples)
    first = available()[0]
    yield from bars_table(
        [
            Bar(f"{SHARDS:,} shards, {row.group} ({row.name})", row.median_s, MOST_S, unit=" s")
            for row in rows
            if row.name == first
        ]
    )
    yield (
        f"{len(offers())} offers (three profiles, two modes), least cost within a deadline. Shards of "
        "equal size are one class; more sizes than 40 are put into 40 classes, and how far a shard may "
        "be from its class is stated (*class*). *Gap*: what a better choice could save at most, by the "
        "best choice with parts of shards."
    )
    yield ""
    yield "| shards | sizes | solver | s | range | class | gap |"
    yield "|--:|---|---|--:|--:|--:|--:|"
    for row in rows:
        found = answers[row.group, row.name]
        yield (
            f"| {row.size:,} | {row.group} | {row.name} | {row.median_s:.2f} | "
            f"{row.least_s:.2f} - {row.greatest_s:.2f} | {100 * found.error:.2g} % | "
            f"{100 * found.gap:.2g} % |"
        )
    yield ""
    yield (
        "Beside it a model with a variable for each shard and offer (*naive*), as one would write it "
        f"down first: the same solver and tolerance ({100 * COARSE.gap:g} %), sizes all different. It counts "
        "an offer's time as its work over its places and one longest shard, which holds in any order; "
        "*n/a*: no answer within a minute."
    )
    yield ""
    yield "| shards | solver | naive s | milepost s | milepost's cost |"
    yield "|--:|---|--:|--:|--:|"
    for count, solver, mine, other in compare(options):
        seconds = "n/a" if other is None else f"{other.seconds:.2f}"
        share = "n/a" if other is None else f"{100 * (mine.cost / other.cost - 1):+.2f} %"
        yield f"| {count:,} | {solver} | {seconds} | {mine.seconds:.2f} | {share} |"
    yield ""
