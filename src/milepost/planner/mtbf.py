"""Mean time between failures of a job: what it is planned with, how sure that is, and why."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from milepost.planner.exposure import End, burstiness, gaps, weibull_shape
from milepost.planner.history import History
from milepost.planner.rate import Counts, posterior, zero_failure_bound

DEFAULT_MTBF_S = 24 * 3600.0
"""What losses are foretold with when nothing is known: one failure a day."""
_OPEN = 0.5
"""A share of the nodes with a wider interval than this is not told by the data."""


_ALIKE = 1.25
"""Jobs whose size differs by less than this factor need not be told apart."""
_NAMES = {"accounting": "Slurm's accounting", "attempts": "the run's attempts"}


@dataclass(frozen=True, slots=True)
class Mtbf:
    """MTBF of one job in seconds, its 90 % interval (None when it was stated), its source.

    `is_known` is False when neither failures nor quiet time say anything: then the value is a
    default. `bound_s`: without any failure it is at least this (95 %). `share` of the nodes in the
    rate, the rest does not scale with them. `c2` of the gaps between failures, `shape` of a
    Weibull distribution of them; None where there are too few.
    """

    value_s: float
    low_s: float | None
    high_s: float | None
    source: str
    is_known: bool = True
    failures: int = 0
    node_s: float = 0.0
    job_s: float = 0.0
    bound_s: float | None = None
    share: float | None = None
    share_low: float | None = None
    share_high: float | None = None
    c2: float | None = None
    shape: float | None = None
    notes: tuple[str, ...] = ()


def estimate(
    stated_h: float | None,
    history: History,
    profile_h: float | None,
    nodes: int = 1,
    believed: str = "profile",
) -> Mtbf:
    """MTBF of a job on `nodes` nodes: stated in the config, else from history and profile.

    The profile's value is worth one failure and gives way to what is observed; without one, the
    prior says nothing. Without any failure, quiet time counts as soon as it says more than the
    default; until then the default holds, and says that it is one. `believed` names who stated
    `profile_h`.
    """
    if stated_h is not None:
        return Mtbf(stated_h * 3600.0, None, None, "stated in the config (planner.mtbf_h)")
    between = gaps(history.spans, End.FAILURE)
    observed = _failures(history)
    counts = replace(observed, dispersion=max(1.0, burstiness(between) or 1.0))
    seen = _seen(history, End.FAILURE)
    found = _estimate(counts, End.FAILURE, profile_h, nodes, seen, believed)
    if found is None or (profile_h is None and not found.failures and _is_short(found)):
        return _default(found)
    return _with_gaps(found, between, observed.node_s)


def estimate_preemption(
    history: History, profile_h: float | None, is_exposed: bool = True
) -> Mtbf | None:
    """Mean time between preemptions of a job, whatever its size; None when none was seen or stated.

    Only executions where somebody was preempted count as being at risk of it. A run that is not
    `is_exposed` (its mode is not interruptible) hears of its own preemptions alone.
    """
    if not is_exposed:
        own = tuple(source for source in history.sources if source.name == "attempts")
        history = replace(history, sources=own)
    places = {span.place for span in history.spans if span.end is End.PREEMPTION}
    at_risk = [replace(one, nodes=1) for one in history.spans if one.place in places]
    between = gaps(at_risk, End.PREEMPTION)
    preempted = sum(source.tally.preemptions for source in history.sources)
    seconds = math.fsum(source.tally.preemptible_s for source in history.sources)
    if not preempted and profile_h is None:
        return None
    spread = max(1.0, burstiness(between) or 1.0)
    counts = Counts(seconds, seconds, {1: preempted} if preempted else {}, spread)
    found = _estimate(counts, End.PREEMPTION, profile_h, 1, _seen(history, End.PREEMPTION))
    if found is None:
        return None
    plain = replace(found, share=None, share_low=None, share_high=None)
    return _with_gaps(plain, between, seconds)


def _failures(history: History) -> Counts:
    """Failures and time at risk of all sources."""
    tallies = [source.tally for source in history.sources]
    sizes: Counter[int] = Counter()
    for one in tallies:
        sizes.update(one.failures)
    node_s = math.fsum(one.node_s for one in tallies)
    return Counts(node_s, math.fsum(one.job_s for one in tallies), dict(sorted(sizes.items())))


def _estimate(
    counts: Counts,
    kind: End,
    stated_h: float | None,
    nodes: int,
    seen: str,
    believed: str = "profile",
) -> Mtbf | None:
    """None when there is neither time at risk nor a stated value."""
    prior_s = None if stated_h is None else stated_h * 3600.0
    is_observed = counts.job_s > 0.0
    if not is_observed:
        counts = Counts()
        if prior_s is None:
            return None
    rate = posterior(counts, nodes, prior_s)
    return Mtbf(
        value_s=1.0 / rate.mean,
        low_s=1.0 / rate.high,
        high_s=1.0 / rate.low,
        source=_source(counts, kind, seen, None if prior_s is None else believed),
        failures=counts.failures,
        node_s=counts.node_s,
        job_s=counts.job_s,
        bound_s=_bound(counts, nodes) if is_observed and not counts.failures else None,
        share=rate.share if is_observed else None,
        share_low=rate.share_low if is_observed else None,
        share_high=rate.share_high if is_observed else None,
        notes=_notes(counts, nodes, rate.share_high - rate.share_low) if is_observed else (),
    )


def _with_gaps(found: Mtbf, between: Sequence[float], exposure_s: float) -> Mtbf:
    """Beside it, what the gaps between ends tell; `exposure_s` in the same clock as they."""
    rest_s = max(0.0, exposure_s - math.fsum(between))
    return replace(found, c2=burstiness(between), shape=weibull_shape(between, rest_s))


def _bound(counts: Counts, nodes: int) -> float:
    """The smaller one of both ways to scale, so that it holds in either."""
    return zero_failure_bound(min(counts.node_s / nodes, counts.job_s))


def _is_short(found: Mtbf) -> bool:
    return found.value_s < DEFAULT_MTBF_S


def _default(found: Mtbf | None) -> Mtbf:
    """One failure a day, worth one failure; what was observed only bounds it."""
    if found is None or found.bound_s is None:
        rate = posterior(Counts(), 1, DEFAULT_MTBF_S)
        return Mtbf(DEFAULT_MTBF_S, 1.0 / rate.high, 1.0 / rate.low, "default", is_known=False)
    return Mtbf(
        value_s=DEFAULT_MTBF_S,
        low_s=found.bound_s,
        high_s=max(DEFAULT_MTBF_S, found.high_s or 0.0),
        source=f"default; {found.source} bound it to at least {_hours(found.bound_s)} h (95 %)",
        is_known=False,
        node_s=found.node_s,
        job_s=found.job_s,
        bound_s=found.bound_s,
    )


def _seen(history: History, kind: End) -> str:
    """The sources that have anything to say about it."""
    names = [
        _NAMES[source.name]
        for source in history.sources
        if (source.tally.executions if kind is End.FAILURE else source.tally.preemptions)
    ]
    return " and ".join(names)


def _source(counts: Counts, kind: End, seen: str, believed: str | None) -> str:
    """Short enough for one line of a terminal; the counts are rows of their own."""
    if counts.job_s <= 0.0:
        return f"stated in the {believed}"
    noun = f"{kind}" if counts.failures == 1 else f"{kind}s"
    unit = "node h" if kind is End.FAILURE else "h"
    text = f"{counts.failures} {noun} in {_hours(counts.node_s)} {unit} of {seen}"
    return text if believed is None else f"{text}, and the {believed}'s value"


def _notes(counts: Counts, nodes: int, width: float) -> tuple[str, ...]:
    """What the data cannot tell, and what is assumed instead."""
    mean = counts.node_s / counts.job_s
    is_alike = 1.0 / _ALIKE < mean / nodes < _ALIKE
    if is_alike or not counts.failures or width <= _OPEN:
        return ()
    told = "1 failure does" if counts.failures == 1 else f"{counts.failures} failures do"
    return (
        f"the jobs of the past had {mean:.3g} nodes on average, a shard has {nodes}: {told} not "
        "tell whether failures grow with the nodes, so both extremes are weighed as the data allow",
    )


def _hours(seconds: float) -> str:
    return f"{seconds / 3600.0:.3g}"
