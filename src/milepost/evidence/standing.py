"""How a run stands right now, in a few numbers and the command that comes next."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from milepost.clock import epoch
from milepost.durable import read_json
from milepost.evidence.gather import gather
from milepost.evidence.reconcile import Ask, ShardVerdict, count, reconcile
from milepost.evidence.superseded import read_superseded
from milepost.evidence.types import RunEvidence
from milepost.evidence.words import duration
from milepost.model import Verdict
from milepost.paths import RunPaths


@dataclass(frozen=True, slots=True)
class Standing:
    """`rate` is done tasks a second of the running attempts; None when that was not measurable.

    `running` is how many shards are at work.
    """

    run: str
    tasks: int
    done: int
    failed: int
    left: int
    running: int
    rate: float | None
    eta_s: float | None
    shards: dict[str, int]
    next: str | None
    superseded_by: str | None = None

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    def row(self) -> tuple[str, ...]:
        """Cells for a table of status, the next command aside."""
        rate = "n/a" if self.rate is None else f"{self.rate:.3g}"
        shards = " ".join(f"{n} {word}" for word, n in self.shards.items()) or "none"
        counts = (self.tasks, self.done, self.failed, self.left)
        # without a shard table nothing was counted
        numbers = map(str, counts) if self.shards else ["n/a"] * len(counts)
        return (self.run, *numbers, rate, duration(self.eta_s), shards)


def standing(paths: RunPaths, ask: Ask | None = None) -> Standing:
    """Look at a run; sizes only, nothing is written."""
    run = gather(paths)
    verdicts = reconcile(run, ask)
    tasks = sum(len(s.tasks) for s in run.shards)
    done = sum(s.done for s in run.shards)
    failed = sum(len(s.failed) + len(s.damaged) for s in run.shards)
    left = tasks - done - failed
    rate = _rate(verdicts)
    note = read_superseded(paths)
    return Standing(
        run=paths.run,
        tasks=tasks,
        done=done,
        failed=failed,
        left=left,
        running=sum(v.verdict is Verdict.RUNNING for v in verdicts),
        rate=rate,
        eta_s=left / rate if rate and left else None,
        shards=count(verdicts),
        next=_next(run, verdicts, is_superseded=note is not None),
        superseded_by=None if note is None else note.by,
    )


def _rate(verdicts: Sequence[ShardVerdict]) -> float | None:
    """Done tasks of the shards at work over the wall seconds of their attempts, added up."""
    total = 0.0
    for verdict in verdicts:
        attempts = verdict.shard.attempts
        if verdict.verdict is Verdict.RUNNING and attempts and attempts[-1].started:
            elapsed = time.time() - epoch(attempts[-1].started)
            before = sum(a.done or 0 for a in attempts[:-1])
            total += max(0, verdict.shard.done - before) / elapsed if elapsed > 0 else 0.0
    return total or None


def _next(run: RunEvidence, verdicts: Sequence[ShardVerdict], *, is_superseded: bool) -> str | None:
    """The one command that brings the run on; None when it is closed."""
    name = run.paths.run
    if is_superseded:
        return None if _is_closed(run) else f"milepost closeout {name}"
    if not verdicts:
        smoke_only = run.spec is not None and run.spec.stop == "smoke-only"
        return f"milepost closeout {name}" if smoke_only and run.smoke else "snakemake -c2"
    for word in (Verdict.SUSPECT, Verdict.FAILED, Verdict.UNKNOWN, Verdict.INTERRUPTED):
        first = next((v for v in verdicts if v.verdict is word), None)
        if first is not None:
            return first.command or f"milepost reconcile {name}"
    if any(v.verdict is Verdict.RUNNING for v in verdicts):
        return f"milepost status {name}"
    pending = next((v for v in verdicts if v.verdict is Verdict.PENDING), None)
    if pending is not None:
        return pending.command
    return None if _is_closed(run) else f"milepost closeout {name}"


def _is_closed(run: RunEvidence) -> bool:
    """Is there a closeout that says closed, newer than the last attempt's end?"""
    try:
        record = read_json(run.paths.closeout / "record.json")
    except FileNotFoundError:
        return False
    last = max((a.ended or "" for s in run.shards for a in s.attempts), default="")
    return bool(record["closed"]) and str(record["created"]) >= last
