"""Memory of a shard: what the smoke test saw, and what the contract asks for."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from milepost.config.spec import RunSpec
from milepost.model import WorkKind
from milepost.planner.measured import Measured

HEADROOM = 1.2
"""The largest task of a slice is not the largest of the run."""
_AMPLE = 4.0
"""So many times what is needed is worth a note: jobs that ask for less start sooner."""
_STEP_MB = 100


@dataclass(frozen=True, slots=True)
class Memory:
    """Megabytes (2^20 bytes) that a shard needs and asks for; None is not measured.

    `at_once` tasks run side by side, each of at most `max_rss_bytes`.
    """

    max_rss_bytes: int | None
    at_once: int
    needed_mb: int | None
    asked_mb: int

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def memory_of(spec: RunSpec, measured: Measured) -> Memory:
    """What `resources.mem_mb` should be, from the peak of the smoke test and a fifth more."""
    at_once = 1
    if spec.work.kind is WorkKind.BATCH:
        at_once = spec.resources.gpus or spec.resources.cpus
    peak = measured.max_rss_bytes
    needed_mb = None
    if peak is not None and not measured.is_reduced:
        needed_mb = _STEP_MB * math.ceil(HEADROOM * peak * at_once / 2**20 / _STEP_MB)
    return Memory(peak, at_once, needed_mb, spec.resources.mem_mb)


def memory_notes(found: Memory) -> list[str]:
    """A note where too little is asked for, or far too much."""
    if found.needed_mb is None or found.max_rss_bytes is None:
        return []
    each = f"a task took up to {found.max_rss_bytes / 2**20:.3g} MB"
    all_ = each if found.at_once == 1 else f"{each}, {found.at_once} run at once"
    if found.needed_mb > found.asked_mb:
        return [
            f"{all_}: resources.mem_mb {found.asked_mb} is too little, ask for {found.needed_mb}"
        ]
    if found.asked_mb > _AMPLE * max(found.needed_mb, 1000):
        return [f"{all_}: resources.mem_mb {found.asked_mb} is far more than it needs"]
    return []
