"""The mixed integer model of an assignment, written with PuLP."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from milepost.planner.problem import Assignment, Group, Limits, Offer, Shares, fits, measure
from milepost.planner.solver import Effort, Solved, solve

Window = Mapping[tuple[int, int], tuple[int, int]]
"""(group, offer) -> fewest and most shards; a pair that is not named gets none."""

_ROUNDING = 1e-7
"""How much of the first objective the second one may give away where that was exact."""

_TRACE = 1e-6
"""Less than this part of a shard is none."""


class Model:
    """Shards x for each pair of group and offer that fits: whole ones in rounds, else parts.

    Money, time and storage are counted in their largest value of a shard, so that a solver's
    absolute tolerances mean the same in every currency.
    """

    def __init__(
        self,
        groups: Sequence[Group],
        offers: Sequence[Offer],
        limits: Limits,
        *,
        in_rounds: bool,
        window: Window | None = None,
    ) -> None:
        import pulp

        self.groups, self.offers = groups, offers
        self.kind, self.window = "Integer" if in_rounds else "Continuous", window
        self.problem = pulp.LpProblem("assign")
        self.x: dict[tuple[int, int], Any] = {}
        self.second = _largest(group.seconds for group in groups)
        self.coin = _largest(group.cost for group in groups)
        self.gb = _largest(group.stored_gb for group in groups)
        self.time = pulp.LpVariable("time", lowBound=0)
        busy: dict[str, list[Any]] = {}
        for o, offer in enumerate(offers):
            used = self._rounds(o, offer) if in_rounds else self._work(o, offer)
            busy.setdefault(offer.pool or offer.name, []).append(used)
        for parts in busy.values():
            self.problem += self.time >= pulp.lpSum(parts)
        self._all_shards()
        self.cost = self._sum("cost", self.coin)
        self.stored = self._sum("stored_gb", self.gb)
        self._limit(limits)

    def _shards(self, o: int, offer: Offer) -> list[tuple[int, float]]:
        """Variables of an offer; its groups, longest first, with their seconds in model units."""
        import pulp

        order = []
        for g, group in enumerate(self.groups):
            if fits(group, offer):
                least, most = 0, group.count
                if self.window is not None:
                    least, most = self.window.get((g, o), (0, 0))
                self.x[g, o] = pulp.LpVariable(f"x_{g}_{o}", least, most, cat=self.kind)
                order.append((g, group.seconds[offer.name] / self.second))
        return sorted(order, key=lambda one: (-one[1], one[0]))

    def _rounds(self, o: int, offer: Offer) -> Any:
        """Seconds of an offer in whole rounds r begun up to each of its groups.

        With X the shards up to a group and p the places: p r >= X, and the offer is busy for the
        sum of (s - next shorter s) r.
        """
        import pulp

        order = self._shards(o, offer)
        total = sum(self.groups[g].count for g, _ in order)
        places = total if offer.places is None else min(offer.places, total)
        terms, begun, most = [], [], 0
        for position, (g, seconds) in enumerate(order):
            most += self.groups[g].count
            begun.append(self.x[g, o])
            rounds = pulp.LpVariable(f"r_{g}_{o}", 0, -(-most // places), cat="Integer")
            self.problem += places * rounds >= pulp.lpSum(begun)
            after = order[position + 1][1] if position + 1 < len(order) else 0.0
            terms.append((seconds - after) * rounds)
        return pulp.lpSum(terms)

    def _work(self, o: int, offer: Offer) -> Any:
        """Seconds of an offer, at most: its work over its places, and one longest shard.

        No schedule without idle places takes longer than work/p + (1 - 1/p) longest (Graham 1969).
        """
        import pulp

        order = self._shards(o, offer)
        if not order:
            return 0
        total = sum(self.groups[g].count for g, _ in order)
        places = total if offer.places is None else min(offer.places, total)
        used = pulp.LpVariable(f"u_{o}", cat="Binary")
        self.problem += pulp.lpSum(self.x[g, o] for g, _ in order) <= total * used
        work = pulp.lpSum(seconds / places * self.x[g, o] for g, seconds in order)
        return work + (1.0 - 1.0 / places) * order[0][1] * used

    def _all_shards(self) -> None:
        import pulp

        here: dict[int, list[Any]] = {g: [] for g in range(len(self.groups))}
        for (g, _), x in self.x.items():
            here[g].append(x)
        for g, group in enumerate(self.groups):
            self.problem += pulp.lpSum(here[g]) == group.count

    def _sum(self, what: str, unit: float) -> Any:
        import pulp

        return pulp.lpSum(
            getattr(self.groups[g], what).get(self.offers[o].name, 0.0) / unit * x
            for (g, o), x in self.x.items()
        )

    def _limit(self, limits: Limits) -> None:
        for value, limit, unit in (
            (self.time, limits.deadline_s, self.second),
            (self.cost, limits.budget, self.coin),
            (self.stored, limits.storage_gb, self.gb),
        ):
            if limit is not None:
                self.problem += value <= limit / unit

    def minimise(
        self,
        objective: Any,
        effort: Effort,
        solvers: Sequence[str] | None = None,
        *,
        mip: bool = True,
    ) -> Solved:
        """The least value of `objective` (in the model's units); parts of shards without `mip`."""
        self.problem.setObjective(objective + 0)
        return solve(self.problem, effort, solvers, mip=mip)

    def hold(self, objective: Any, best: float, slack: float) -> None:
        """Keep `objective` at its best value, up to `slack` of it and rounding, in what follows."""
        self.problem += objective <= best + max(slack, _ROUNDING) * max(1.0, abs(best))

    def near(self, *, a_round: bool = False) -> Window:
        """A window around the solution: one shard to each side of what is used, or a round of
        shards to each side of everything."""
        found: dict[tuple[int, int], tuple[int, int]] = {}
        for (g, o), x in self.x.items():
            value, count = x.value() or 0.0, self.groups[g].count
            side = (self.offers[o].places or count) if a_round else 1
            if value > _TRACE or a_round:
                found[g, o] = (
                    max(0, math.floor(value + _TRACE) - side),
                    min(count, math.ceil(value - _TRACE) + side),
                )
        return found

    def read(self, solver: str) -> Assignment:
        """The solution, recomputed from its whole numbers."""
        shares: Shares = {}
        for (g, o), x in self.x.items():
            number = round(x.value() or 0.0)
            if number:
                shares[self.groups[g].name, self.offers[o].name] = number
        return Assignment(shares, *measure(self.groups, self.offers, shares), solver)


def _largest(parts: Iterable[Mapping[str, float]]) -> float:
    return max((value for part in parts for value in part.values()), default=0.0) or 1.0
