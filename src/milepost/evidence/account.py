"""Where the time went: pure sums over the attempts. None is what nobody measured."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from milepost.clock import epoch
from milepost.evidence.types import AttemptEvidence, RunEvidence, ShardEvidence
from milepost.model import WorkKind

SMOOTH = ("done", "failed", "error")
"""How an attempt ends that nobody interrupted."""


@dataclass(frozen=True, slots=True)
class Account:
    """Core seconds are CPUs of the contract times wall seconds of the attempts.

    `blind_count` attempts were killed and count up to their last sign in the journal.
    """

    attempt_count: int
    interruption_count: int
    blind_count: int
    elapsed_s: float | None
    allocated_core_s: float | None
    useful_core_s: float | None
    checkpoint_core_s: float | None
    lost_core_s: float | None
    cpu_s: float | None
    max_rss_bytes: int | None
    checkpoint_count: int
    blocked_s: float | None
    durable_s: float | None
    stops: Mapping[str, int]

    @property
    def overhead_fraction(self) -> float | None:
        """Checkpoints and work done again, as a part of the useful work: what a plan foretells."""
        parts = [v for v in (self.checkpoint_core_s, self.lost_core_s) if v is not None]
        return sum(parts) / self.useful_core_s if parts and self.useful_core_s else None


def account(run: RunEvidence) -> Account:
    """Sum up the attempts of a run."""
    cpus = 1 if run.spec is None else run.spec.resources.cpus
    # A batch attempt adds up its tasks, each on a core; another one knows its wall seconds.
    work = 1 if run.spec is None or run.spec.work.kind is WorkKind.BATCH else cpus
    attempts = [a for shard in run.every_shard for a in shard.attempts]
    checkpoints = [c for shard in run.every_shard for c in shard.checkpoints]
    return Account(
        attempt_count=len(attempts),
        interruption_count=sum(is_interrupted(a) for a in attempts),
        blind_count=sum(a.ended is None and not a.running for a in attempts),
        elapsed_s=_elapsed(attempts),
        allocated_core_s=_times(cpus, total(wall_s(a) for a in attempts)),
        useful_core_s=_times(work, total(a.useful_s for a in attempts)),
        checkpoint_core_s=_times(cpus, total(blocked_s(shard) for shard in run.every_shard)),
        lost_core_s=_times(cpus, _lost(run, attempts)),
        cpu_s=total(a.cpu_s for a in attempts),
        max_rss_bytes=max((a.max_rss_bytes for a in attempts if a.max_rss_bytes), default=None),
        checkpoint_count=len(checkpoints),
        blocked_s=_median(c.blocked_s for c in checkpoints),
        durable_s=_median(c.durable_s for c in checkpoints),
        stops=Counter(how(a) for a in attempts),
    )


def _lost(run: RunEvidence, attempts: Sequence[AttemptEvidence]) -> float | None:
    """What was lost in all; nothing was where every attempt came to its own good end."""
    known = total(x for shard in run.every_shard for x in lost_s(shard).values())
    if known is None and attempts and all(a.stop == "done" for a in attempts):
        return 0.0
    return known


def how(attempt: AttemptEvidence) -> str:
    """How an attempt ended, in a word or two."""
    if attempt.running:
        return "running"
    if attempt.ended is None:
        return "killed"
    return attempt.stop or "ended"


def is_interrupted(attempt: AttemptEvidence) -> bool:
    """Ended by something other than its own work."""
    if attempt.running:
        return False
    return attempt.ended is None or (attempt.stop is not None and attempt.stop not in SMOOTH)


def end_of(attempt: AttemptEvidence) -> str | None:
    """When it ended, or when it was last seen at work."""
    return attempt.ended or attempt.last_sign or attempt.started


def wall_s(attempt: AttemptEvidence) -> float | None:
    end = end_of(attempt)
    if attempt.started is None or end is None:
        return None
    return max(0.0, epoch(end) - epoch(attempt.started))


def blocked_s(shard: ShardEvidence) -> float | None:
    """Seconds that checkpoints stopped the work, also in attempts that were killed."""
    by_rows = total(one.blocked_s for one in shard.checkpoints)
    return total(a.checkpoint_s for a in shard.attempts) if by_rows is None else by_rows


def shard_wall_s(shard: ShardEvidence) -> float | None:
    """Wall seconds of all attempts at a shard."""
    return total(wall_s(a) for a in shard.attempts)


def lost_s(shard: ShardEvidence) -> dict[int, float]:
    """Attempt -> wall seconds of its work that had to be done again.

    An attempt that restored a checkpoint says what the attempt before it had lost.
    """
    lost: dict[int, float] = {}
    for attempt in shard.attempts:
        said = (attempt.restored or {}).get("lost_s")
        if said is not None:
            lost[attempt.number - 1] = said
        elif attempt.lost_s is not None:
            lost[attempt.number] = attempt.lost_s
    return lost


def failures(run: RunEvidence) -> list[dict[str, Any]]:
    """Failed tasks and attempts by class, most frequent first, each with an example.

    Tasks that were done in the end do not count; an attempt counts when it ended badly and no
    task of its shard is named.
    """
    groups: dict[tuple[str, str, str], dict[str, Any]] = {}
    for shard, finding, what in _findings(run):
        finding = finding or {"class": "unclassified", "subclass": "none", "action": "none"}
        key = (finding["class"], finding["subclass"], finding["action"])
        names = ("class", "subclass", "action")
        group = groups.setdefault(key, dict(zip(names, key, strict=True)) | _empty())
        group["count"] += 1
        if shard.name not in group["shards"]:
            group["shards"].append(shard.name)
        group["example"] = group["example"] or what
        group["evidence"] = group["evidence"] or list(finding.get("evidence", ()))[:5]
    return sorted(groups.values(), key=lambda g: -g["count"])


def _empty() -> dict[str, Any]:
    return {"count": 0, "shards": [], "example": "", "evidence": []}


def _findings(
    run: RunEvidence,
) -> Iterable[tuple[ShardEvidence, Mapping[str, Any] | None, str]]:
    for shard in run.shards:
        for problem in shard.failed:
            yield shard, problem.finding, f"task {problem.key} {problem.what}"
        for problem in shard.damaged:
            yield shard, _BAD_ARTIFACT, f"task {problem.key}: {problem.artifact} {problem.what}"
        last = shard.attempts[-1] if shard.attempts else None
        if last and not shard.failed and last.stop in ("failed", "error"):
            yield shard, last.finding, f"attempt {last.number}, exit {last.exit_code}"


_BAD_ARTIFACT = {"class": "data", "subclass": "bad_artifact", "action": "retry_same"}


def _elapsed(attempts: Iterable[AttemptEvidence]) -> float | None:
    starts = [epoch(a.started) for a in attempts if a.started]
    ends = [epoch(end) for a in attempts if (end := end_of(a))]
    return max(ends) - min(starts) if starts and ends else None


def total(values: Iterable[float | None]) -> float | None:
    """The sum of what is known; None when nothing is."""
    known = [v for v in values if v is not None]
    return sum(known) if known else None


def _times(factor: int, value: float | None) -> float | None:
    return None if value is None else factor * value


def _median(values: Iterable[float | None]) -> float | None:
    known = [v for v in values if v is not None]
    return statistics.median(known) if known else None
