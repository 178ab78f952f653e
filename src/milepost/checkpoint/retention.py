"""What may be deleted: a pure function of what is there."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from milepost.checkpoint.manifest import commit_order, parse_name


@dataclass(frozen=True, slots=True)
class Kept:
    """A generation as the prune plan sees it.

    `is_verified` is None when nobody looked, or looking failed. `is_gold` is the mark of a
    person. `bases` are generations that it cannot be restored without.
    """

    name: str
    created_s: float
    bases: tuple[str, ...] = ()
    is_verified: bool | None = True
    is_gold: bool = False


@dataclass(frozen=True, slots=True)
class Retention:
    """Keep the `rotation` newest verified generations; every `gold_every`-th is kept as well
    until it is `ttl_s` old, and as many as it takes that what is kept is at most `max_gap_s`
    apart, where there is something in between. None: no such rule. Marks of a person have no end.
    """

    rotation: int = 3
    gold_every: int | None = None
    ttl_s: float | None = None
    max_gap_s: float | None = None

    def __post_init__(self) -> None:
        if self.rotation < 1:
            raise ValueError(f"rotation {self.rotation} would delete every checkpoint")
        if self.gold_every is not None and self.gold_every < 1:
            raise ValueError(f"gold_every {self.gold_every} is not a count")


def plan_prune(generations: Sequence[Kept], rules: Retention, now_s: float) -> tuple[str, ...]:
    """Names to delete, oldest first.

    Never the last verified one, never a base of what is kept, and nothing at all as long as no
    generation is verified. A generation that nobody could look at is kept until its time is over.
    """
    newest_first = sorted(generations, key=lambda kept: commit_order(kept.name), reverse=True)
    verified = [kept for kept in newest_first if kept.is_verified]
    if not verified:
        return ()
    keep = {kept.name for kept in verified[: rules.rotation]}
    keep |= {kept.name for kept in newest_first if kept.is_gold}
    keep |= {kept.name for kept in newest_first if _is_young_and_wanted(kept, rules, now_s)}
    keep |= _stepping_stones(verified, rules, now_s)
    keep = _with_bases(keep, generations)
    return tuple(kept.name for kept in reversed(newest_first) if kept.name not in keep)


def _is_young_and_wanted(kept: Kept, rules: Retention, now_s: float) -> bool:
    if _is_too_old(kept, rules, now_s):
        return False
    return kept.is_verified is None or (
        bool(kept.is_verified) and is_periodic_gold(kept.name, rules)
    )


def _stepping_stones(newest_first: Sequence[Kept], rules: Retention, now_s: float) -> set[str]:
    """From the oldest on, each that is needed to get to the next one within the largest gap.

    It looks from the oldest, so that what it keeps does not change when newer ones come.
    """
    if rules.max_gap_s is None:
        return set()
    oldest_first = [k for k in reversed(newest_first) if not _is_too_old(k, rules, now_s)]
    kept: list[Kept] = oldest_first[:1]
    for one, following in itertools.pairwise(oldest_first):
        if following.created_s - kept[-1].created_s > rules.max_gap_s:
            kept.append(one)
    return {one.name for one in kept}


def _is_too_old(kept: Kept, rules: Retention, now_s: float) -> bool:
    return rules.ttl_s is not None and now_s - kept.created_s > rules.ttl_s


def is_periodic_gold(name: str, rules: Retention) -> bool:
    """Is this one of every `gold_every` generations?"""
    return rules.gold_every is not None and parse_name(name)[0] % rules.gold_every == 0


def _with_bases(names: Iterable[str], generations: Sequence[Kept]) -> set[str]:
    """`names` and all generations they need, also through others."""
    bases = {kept.name: kept.bases for kept in generations}
    todo, seen = list(names), set(names)
    while todo:
        for base in bases.get(todo.pop(), ()):
            if base not in seen:
                seen.add(base)
                todo.append(base)
    return seen
