"""Assign groups of equal shards to offers: cheapest, or soonest, within limits (mixed integer).

An offer is a (profile, mode) pair. It runs its shards in rounds: `places` side by side, one
group after the other, so that its time is the sum over groups of ceil(shards/places) times the
seconds of a shard. The time of an assignment is that of its slowest offer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from milepost.errors import RuntimeFailure

Shares = dict[tuple[str, str], int]
"""(group, offer) -> number of shards; zeros are left out."""


@dataclass(frozen=True, slots=True)
class Offer:
    """A place to run: how many shards side by side (None: any number), GB of one GPU."""

    name: str
    places: int | None = None
    vram_gb: float | None = None


@dataclass(frozen=True, slots=True)
class Group:
    """`count` equal shards: expected seconds and cost of one by offer, GB a GPU must have.

    An offer that is missing in `seconds` cannot run the group; one that is missing in `cost`
    costs nothing that is known.
    """

    name: str
    count: int
    seconds: Mapping[str, float]
    cost: Mapping[str, float]
    vram_gb: float | None = None


@dataclass(frozen=True, slots=True)
class Limits:
    deadline_s: float | None = None
    budget: float | None = None


@dataclass(frozen=True, slots=True)
class Assignment:
    """Shards by group and offer, their expected cost, and the time of the slowest offer."""

    shares: Shares
    cost: float
    time_s: float


def fits(group: Group, offer: Offer) -> bool:
    """Has the offer the memory and a place for a shard of the group?"""
    if offer.name not in group.seconds or offer.places == 0:
        return False
    return group.vram_gb is None or (offer.vram_gb or 0.0) >= group.vram_gb


def assign(
    groups: Sequence[Group],
    offers: Sequence[Offer],
    limits: Limits,
    *,
    soonest: bool = False,
) -> Assignment | None:
    """The cheapest assignment, and the soonest of those; `soonest` asks the other way round.

    None when no assignment keeps the limits.
    """
    model = _Model(groups, offers, limits)
    first, second = (model.time, model.cost) if soonest else (model.cost, model.time)
    best = model.minimise(first)
    if best is None:
        return None
    model.hold(first, best)
    if model.minimise(second) is None:
        raise RuntimeFailure("the solver lost a solution that it had found", where="planner")
    return model.read()


class _Model:
    """The mixed integer model: shards x and rounds r for each pair that fits, and the time T."""

    def __init__(self, groups: Sequence[Group], offers: Sequence[Offer], limits: Limits) -> None:
        import pulp

        self.groups, self.offers = groups, offers
        self.problem = pulp.LpProblem("assign")
        self.time = pulp.LpVariable("time", lowBound=0)
        self.x: dict[tuple[int, int], Any] = {}
        self.rounds: dict[tuple[int, int], Any] = {}
        for o, offer in enumerate(offers):
            for g, group in enumerate(groups):
                if fits(group, offer):
                    self._pair(g, o, group, offer)
            self.problem += self.time >= self._busy(o)
        for g, group in enumerate(groups):
            self.problem += pulp.lpSum(x for (i, _), x in self.x.items() if i == g) == group.count
        self.cost = pulp.lpSum(
            groups[g].cost.get(offers[o].name, 0.0) * x for (g, o), x in self.x.items()
        )
        if limits.deadline_s is not None:
            self.problem += self.time <= limits.deadline_s
        if limits.budget is not None:
            self.problem += self.cost <= limits.budget

    def _pair(self, g: int, o: int, group: Group, offer: Offer) -> None:
        import pulp

        places = group.count if offer.places is None else offer.places
        x = pulp.LpVariable(f"x_{g}_{o}", 0, group.count, cat="Integer")
        rounds = pulp.LpVariable(f"r_{g}_{o}", 0, -(-group.count // places), cat="Integer")
        self.problem += places * rounds >= x
        self.x[g, o], self.rounds[g, o] = x, rounds

    def _busy(self, o: int) -> Any:
        import pulp

        name = self.offers[o].name
        return pulp.lpSum(
            self.groups[g].seconds[name] * r for (g, i), r in self.rounds.items() if i == o
        )

    def minimise(self, objective: Any) -> float | None:
        """The least value of `objective`; None when the constraints cannot be met."""
        import pulp

        self.problem.setObjective(objective + 0)
        self.problem.solve(pulp.PULP_CBC_CMD(msg=False, threads=1, gapRel=0.0))
        status = pulp.LpStatus[self.problem.status]
        if status == "Infeasible":
            return None
        if status != "Optimal":
            raise RuntimeFailure(
                f"the solver ended with {status}",
                where="planner",
                fix="relax deadline_h or budget, or name fewer profiles",
            )
        return float(pulp.value(objective) or 0.0)

    def hold(self, objective: Any, best: float) -> None:
        """Keep `objective` at its best value, up to rounding, in what follows."""
        self.problem += objective <= best + 1e-7 * max(1.0, abs(best))

    def read(self) -> Assignment:
        """The solution, recomputed from its whole numbers."""
        shares: Shares = {}
        cost, busy = 0.0, [0.0] * len(self.offers)
        for (g, o), x in self.x.items():
            number = round(x.value() or 0.0)
            if number:
                group, offer = self.groups[g], self.offers[o]
                shares[group.name, offer.name] = number
                cost += number * group.cost.get(offer.name, 0.0)
                places = group.count if offer.places is None else offer.places
                busy[o] += -(-number // places) * group.seconds[offer.name]
        return Assignment(shares, cost, max(busy, default=0.0))
