"""Assign groups of equal shards to offers: cheapest, or soonest, within limits (mixed integer).

Few shards, or shards of one size, are counted in whole rounds, and the answer is the best one.
Many shards of many sizes would make that search explode. There parts of shards are dealt out
first, an offer's time being its work over its places and one longest shard (never too short, too
long by less than a round); then whole shards in rounds are searched near that answer. What a
better one could gain at most is stated.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from milepost.errors import RuntimeFailure
from milepost.planner.model import Model, Window
from milepost.planner.problem import Assignment, Group, Limits, Offer, has_place_for_all
from milepost.planner.solver import Effort, Solved

FEW_SHARDS, FEW_PAIRS = 300, 60
"""Up to so many shards, in so many pairs of group and offer, the best answer is asked for, and
nearly always proven to be it."""

EXACT = Effort(gap=0.0, time_limit_s=4.0)
QUICK = Effort(gap=0.0, time_limit_s=0.5)
COARSE = Effort(gap=1e-3, time_limit_s=1.5)
SECOND = Effort(gap=1e-2, time_limit_s=0.5)
"""For the second objective where the first one is not exact either."""

ROUGH = Effort(gap=0.1, time_limit_s=0.3)
"""For a yes or no."""

_NOTHING = 1e-9
_ENOUGH = 0.01
"""A coarse answer that may be further than this from the best one is searched more widely."""


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked of the solver; `solvers` in place of those that are installed."""

    groups: Sequence[Group]
    offers: Sequence[Offer]
    limits: Limits
    soonest: bool = False
    solvers: Sequence[str] | None = None
    thorough: bool = True

    @property
    def is_small(self) -> bool:
        pairs = len(self.groups) * len(self.offers)
        shards = sum(group.count for group in self.groups)
        return len(self.groups) == 1 or (shards <= FEW_SHARDS and pairs <= FEW_PAIRS)

    def order(self, found: Assignment) -> tuple[float, float]:
        return (found.time_s, found.cost) if self.soonest else (found.cost, found.time_s)

    def model(self, *, in_rounds: bool = True, window: Window | None = None) -> Model:
        return Model(self.groups, self.offers, self.limits, in_rounds=in_rounds, window=window)

    def objectives(self, model: Model) -> tuple[Any, Any]:
        return (model.time, model.cost) if self.soonest else (model.cost, model.time)


def assign(
    groups: Sequence[Group],
    offers: Sequence[Offer],
    limits: Limits,
    *,
    soonest: bool = False,
    solvers: Sequence[str] | None = None,
    thorough: bool = True,
) -> Assignment | None:
    """The cheapest assignment, and the soonest of those; `soonest` asks the other way round.

    None when no assignment keeps the limits. RuntimeFailure when no solver answers. Not
    `thorough`: a shorter search, for those who ask many.
    """
    question = Question(groups, offers, limits, soonest, solvers, thorough)
    if not has_place_for_all(groups, offers):
        return None
    if question.is_small:
        return _search_small(question, EXACT if thorough else QUICK)
    return _search_large(question)


def is_possible(
    groups: Sequence[Group], offers: Sequence[Offer], limits: Limits, *, rough: bool = False
) -> bool:
    """Can the limits be kept? One search of a small question instead of two.

    `rough`, for those who ask often: a large question is answered in parts of shards and without
    the last round, so that a no may be wrong by less than a round.
    """
    question = Question(groups, offers, limits, thorough=False)
    if not has_place_for_all(groups, offers):
        return False
    if not question.is_small and not rough:
        return _search_large(question) is not None
    model = question.model(in_rounds=question.is_small)
    try:
        effort = EXACT if question.is_small else ROUGH
        return model.minimise(model.time, effort).value is not None
    except RuntimeFailure:
        return False  # not shown to be possible in time


def _search_small(question: Question, effort: Effort) -> Assignment | None:
    """The best answer; where the time was over before it was proven, what it may lack at most."""
    try:
        return _search(question, question.model(), effort)
    except RuntimeFailure:
        return _search_large(question)  # not even a first answer in time


def _search_large(question: Question) -> Assignment | None:
    """Parts of shards first, then whole shards around them; wider where that is not enough."""
    coarse = question.model(in_rounds=False)
    first = coarse.minimise(question.objectives(coarse)[0], COARSE, question.solvers)
    if first.value is None:
        return _search_all(question)
    found = None
    for window in (coarse.near(), coarse.near(a_round=True)):
        other = _while_it_lasts(question, window)
        found = min((one for one in (found, other) if one), key=question.order, default=None)
        if found is not None and (found.gap <= _ENOUGH or not question.thorough):
            break
    return found or _search_all(question)


def _search_all(question: Question) -> Assignment | None:
    """Limits so tight that less than a round decides: the soonest answer may still keep them."""
    model = question.model()
    if model.minimise(model.time, COARSE, question.solvers, mip=False).value is None:
        return None  # not even with parts of shards
    deadline_s = question.limits.deadline_s
    if deadline_s is not None and not question.soonest:
        free = replace(question, limits=replace(question.limits, deadline_s=None), soonest=True)
        fast = _search_large(free)
        if fast is not None and fast.time_s <= deadline_s:
            return replace(fast, gap=_gap(question, fast))
    return _while_it_lasts(question, None)


def _while_it_lasts(question: Question, window: Window | None) -> Assignment | None:
    """Search whole shards for a bounded time; None also when nothing was found until then."""
    try:
        return _search(question, question.model(window=window), COARSE)
    except RuntimeFailure:
        return None  # nothing is claimed; who calls has another way


def _search(question: Question, model: Model, effort: Effort) -> Assignment | None:
    """Best first objective; then the best second one at that value of the first."""
    first, second = question.objectives(model)
    best = model.minimise(first, effort, question.solvers)
    if best.value is None:
        return None
    found = model.read(best.solver)
    is_exact = effort.gap == 0.0 and best.is_best
    gap = 0.0 if is_exact else _gap(question, found)
    model.hold(first, best.value, effort.gap)
    again = _try(model, second, effort if is_exact else SECOND, question)
    return replace(min(found, again or found, key=question.order), gap=gap)


def _try(model: Model, objective: Any, effort: Effort, question: Question) -> Assignment | None:
    try:
        found: Solved = model.minimise(objective, effort, question.solvers)
    except RuntimeFailure:
        return None  # the first objective's answer is an answer
    return None if found.value is None else model.read(found.solver)


def _gap(question: Question, found: Assignment) -> float:
    """Bound of what a better answer could gain: against the best with parts of shards."""
    model = question.model()
    objective, _ = question.objectives(model)
    bound = model.minimise(objective, COARSE, question.solvers, mip=False).value or 0.0
    value = found.time_s / model.second if question.soonest else found.cost / model.coin
    gap = (value - bound) / value if value > 0.0 else 0.0
    return gap if gap > _NOTHING else 0.0
