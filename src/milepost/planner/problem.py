"""The question that the choice answers: groups of equal shards, places to run them, limits.

An offer is a (profile, mode) pair. It runs its shards in rounds of `places` side by side, the
longest shards first; a round takes as long as its longest shard. Offers of one pool use the same
GPUs, one offer after the other; other offers run at the same time. The time of an assignment is
that of its slowest pool.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

Shares = dict[tuple[str, str], int]
"""(group, offer) -> number of shards; zeros are left out."""


@dataclass(frozen=True, slots=True)
class Offer:
    """A place to run.

    `places` is how many shards run side by side (None: any number), `vram_gb` the memory of one
    GPU, `walltime_s` the longest allocation (None: no limit). Offers with the same `pool` share
    their GPUs, of which a place takes `gpus_a_place`; `capacity_key` is what people call them.
    """

    name: str
    places: int | None = None
    vram_gb: float | None = None
    walltime_s: float | None = None
    pool: str | None = None
    gpus_a_place: float = 1.0
    capacity_key: str = "gpus_max"


@dataclass(frozen=True, slots=True)
class Group:
    """`count` equal shards: expected seconds and cost of one by offer.

    An offer that is missing in `seconds` cannot run the group; one that is missing in `cost`
    costs nothing that is known. `vram_gb` is what a GPU must have; `least_s` by offer is the
    shortest allocation that makes something durable; `stored_gb` by offer is what a shard's
    checkpoints hold over their retention.
    """

    name: str
    count: int
    seconds: Mapping[str, float]
    cost: Mapping[str, float]
    vram_gb: float | None = None
    least_s: Mapping[str, float] = field(default_factory=dict)
    stored_gb: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Limits:
    """What the whole run must keep to; None: no limit."""

    deadline_s: float | None = None
    budget: float | None = None
    storage_gb: float | None = None


@dataclass(frozen=True, slots=True)
class Assignment:
    """Shards by group and offer, their expected cost, time of the slowest pool, GB stored.

    `solver` is who found it. `gap` is by how much of the first objective a better one may still
    exist: 0 where this one is proven to be the best.
    """

    shares: Shares
    cost: float
    time_s: float
    stored_gb: float = 0.0
    solver: str = ""
    gap: float = 0.0


def has_memory(group: Group, offer: Offer) -> bool:
    return group.vram_gb is None or (offer.vram_gb or 0.0) >= group.vram_gb


def has_walltime(group: Group, offer: Offer) -> bool:
    return offer.walltime_s is None or group.least_s.get(offer.name, 0.0) <= offer.walltime_s


def fits(group: Group, offer: Offer) -> bool:
    """Has the offer a place, the memory and the walltime for a shard of the group?"""
    if offer.name not in group.seconds or offer.places == 0:
        return False
    return has_memory(group, offer) and has_walltime(group, offer)


def has_place_for_all(groups: Sequence[Group], offers: Sequence[Offer]) -> bool:
    """Has every group an offer that fits?"""
    return all(any(fits(group, offer) for offer in offers) for group in groups)


def measure(
    groups: Sequence[Group], offers: Sequence[Offer], shares: Shares
) -> tuple[float, float, float]:
    """Cost, seconds and GB of an assignment, from its whole numbers alone."""
    known = {group.name: group for group in groups}
    cost = sum(n * known[g].cost.get(o, 0.0) for (g, o), n in shares.items())
    stored = sum(n * known[g].stored_gb.get(o, 0.0) for (g, o), n in shares.items())
    busy: dict[str, float] = {}
    for offer in offers:
        pool = offer.pool or offer.name
        busy[pool] = busy.get(pool, 0.0) + _busy(known, offer, shares)
    return cost, max(busy.values(), default=0.0), stored


def _busy(groups: Mapping[str, Group], offer: Offer, shares: Shares) -> float:
    """Seconds of an offer: of every round the longest shard, which is its first."""
    here = [(groups[g].seconds[offer.name], n) for (g, o), n in shares.items() if o == offer.name]
    total = sum(n for _, n in here)
    places = offer.places or max(total, 1)
    seconds, before = 0.0, 0
    for length, number in sorted(here, reverse=True):
        rounds = -(-(before + number) // places) - -(-before // places)
        seconds += rounds * length
        before += number
    return seconds
