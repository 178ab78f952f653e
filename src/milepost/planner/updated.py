"""The MTBF in a plan: what it stands on, written down so that a run in progress can go on from it.

While shards run, each new attempt estimates anew: what the plan knew without this run, and all
attempts of the run since. So a run that is hit more often than was planned checkpoints sooner,
and one that is not, later.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from milepost.planner.forecast import Forecast
from milepost.planner.history import History, Record, Source, Tally, read_history
from milepost.planner.mtbf import Mtbf, estimate, estimate_preemption
from milepost.planner.preemption import effective_mtbf

Json = Mapping[str, Any]
_SUMS = tuple(one.name for one in fields(Tally))


@dataclass(frozen=True, slots=True)
class Update:
    """The MTBF of a shard now, in seconds; None as long as nothing is known of failures.

    `interruptions` of this run went into it, over `exposure_s` seconds of its attempts.
    """

    mtbf_s: float | None
    source: str
    interruptions: int
    exposure_s: float


def mtbf_record(history: History, found: Forecast, stated_h: float | None) -> dict[str, Any]:
    """The block `mtbf` of a plan: sources with their exposure, estimates, and what was believed
    beforehand."""
    hazard, machine = found.hazard, found.machine
    return {
        "window_days": history.window_days,
        "sources": [_source_record(source) for source in history.sources],
        "failures": _estimate_record(hazard.failures),
        "preemptions": (
            None if hazard.preemptions is None else _estimate_record(hazard.preemptions)
        ),
        "believed": {
            "stated_h": stated_h,
            "profile_h": machine.mtbf_h,
            "preempt_h": machine.preempt_mtbf_h,
            "saved_chance": hazard.saved_chance,
            "is_exposed": hazard.is_exposed,
        },
    }


def _source_record(source: Source) -> Json:
    """Null, not 0, where nobody answered."""
    if not source.is_heard:
        return {"name": source.name, "said": source.said, **dict.fromkeys(_SUMS)}
    sums = asdict(source.tally)
    sums["failures"] = {str(size): count for size, count in source.tally.failures.items()}
    return {"name": source.name, "said": source.said, **sums}


def _estimate_record(found: Mtbf) -> Json:
    return {key: value for key, value in asdict(found).items() if key != "notes"}


def update(block: Json | None, attempts: Sequence[Record]) -> Update:
    """Estimate anew from a plan's block `mtbf` and all attempts of the run; pure.

    Without a block (no plan, or an older one) only the attempts are known.
    """
    believed: Json = (block or {}).get("believed") or {}
    own = read_history(attempts).sources[-1]
    if believed.get("is_exposed"):
        own = _all_preemptible(own)
    history = History((*_without_run(block), own))
    stated_h, profile_h = believed.get("stated_h"), believed.get("profile_h")
    # What the contract states is worth one failure now: the run itself is the better witness.
    prior_h, whose = (profile_h, "profile") if stated_h is None else (stated_h, "config")
    failures = estimate(None, history, prior_h, believed=whose)
    preemptions = estimate_preemption(
        history, believed.get("preempt_h"), bool(believed.get("is_exposed"))
    )
    seen = own.tally
    count = sum(seen.failures.values()) + seen.preemptions
    if not failures.is_known and preemptions is None:
        return Update(None, failures.source, count, seen.job_s)
    value_s = effective_mtbf(
        failures.value_s,
        None if preemptions is None else preemptions.value_s,
        float(believed.get("saved_chance") or 0.0),
    )
    sources = [failures.source] + ([] if preemptions is None else [preemptions.source])
    return Update(value_s, "; ".join(sources), count, seen.job_s)


def _all_preemptible(own: Source) -> Source:
    return replace(own, tally=replace(own.tally, preemptible_s=own.tally.job_s))


def _without_run(block: Json | None) -> Iterable[Source]:
    """What the plan knew besides the run's own attempts, which are counted anew."""
    for one in (block or {}).get("sources", ()):
        if one["name"] != "attempts" and one["executions"]:
            sums = {key: one[key] for key in _SUMS}
            sums["failures"] = {int(size): count for size, count in one["failures"].items()}
            yield Source(one["name"], one["said"], Tally(**sums))
