"""A verdict for every shard out of its three witnesses, at any time and after any crash.

Judging is pure: the scheduler's word comes in as a function. `write` makes reconcile.csv.
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from milepost.durable import atomic_file
from milepost.evidence.scheduler import SlurmWitness, remember, witness_of
from milepost.evidence.states import Artifacts, Decision, Journal, Scheduler, decide
from milepost.evidence.table import parameters
from milepost.evidence.types import QueueWait, RunEvidence, ShardEvidence, TaskProblem
from milepost.evidence.witness import MISSING
from milepost.evidence.words import plural
from milepost.lease import STALE_S
from milepost.model import Verdict
from milepost.paths import RunPaths

COLUMNS = (
    "run",
    "shard",
    "verdict",
    "journal",
    "scheduler",
    "artifacts",
    "done",
    "failed",
    "missing",
    "attempts",
    "next_action",
    "command",
    "evidence",
)
Ask = Callable[[ShardEvidence], Scheduler]
NAMED = 3
"""So many tasks of a shard are named in its next action; the others are counted."""
_ENDED_BADLY = ("failed", "error")


@dataclass(frozen=True, slots=True)
class ShardVerdict:
    """A shard, what its witnesses said, and what follows."""

    shard: ShardEvidence
    journal: Journal
    scheduler: Scheduler
    artifacts: Artifacts
    decision: Decision
    next_action: str
    command: str
    evidence: str
    said: str = ""
    """The scheduler's own words, where it has some."""
    waits: tuple[QueueWait, ...] = ()

    @property
    def verdict(self) -> Verdict:
        return self.decision.verdict

    def row(self, run: str) -> dict[str, str]:
        """The row of reconcile.csv; `failed` counts failed tasks and bad artifacts."""
        shard = self.shard
        values = (
            run,
            shard.name,
            self.verdict,
            self.journal,
            self.scheduler,
            self.artifacts,
            shard.done,
            len(shard.failed) + len(shard.damaged),
            len(shard.missing),
            len(shard.attempts),
            self.next_action,
            self.command,
            self.evidence,
        )
        return dict(zip(COLUMNS, map(str, values), strict=True))


def reconcile(run: RunEvidence, ask: Ask | None = None) -> list[ShardVerdict]:
    """Judge every shard of the frozen table, in its order; by default the scheduler is asked."""
    ask = ask or witness_of(run, ask_lease)
    problems = {p.key for s in run.shards for p in (*s.failed[:NAMED], *s.damaged[:NAMED])}
    params = parameters(run.table, problems) if run.table and problems else {}
    expected = bool(run.spec is None or run.spec.artifacts)
    verdicts = [judge(run.paths, shard, ask(shard), expected, params) for shard in run.shards]
    remember(run, ask)
    if isinstance(ask, SlurmWitness):
        verdicts = [_explained(v, ask) for v in verdicts]
    return [_settled(v) for v in verdicts]


def _settled(verdict: ShardVerdict) -> ShardVerdict:
    """An attempt whose holder could not be told dead has ended when the scheduler says so."""
    attempts = verdict.shard.attempts
    may_run = verdict.scheduler in (Scheduler.ALIVE, Scheduler.NOT_HEARD)
    if may_run or not any(a.running for a in attempts):
        return verdict
    ended = tuple(replace(a, running=False) for a in attempts)
    return replace(verdict, shard=replace(verdict.shard, attempts=ended))


def _explained(verdict: ShardVerdict, witness: SlurmWitness) -> ShardVerdict:
    """With Slurm's own words, and with the remedy for a job that will not start by itself."""
    name = verdict.shard.name
    verdict = replace(verdict, waits=witness.waits(name))
    said = witness.said.get(name)
    if said is not None:
        verdict = replace(verdict, evidence=f"{verdict.evidence}; {said}", said=said)
    finding = witness.finding(verdict.shard)
    if finding is not None and verdict.verdict is not Verdict.DONE:
        why = f"{finding['class']}/{finding['subclass']}, {finding['action']}"
        verdict = replace(verdict, evidence=f"{verdict.evidence}; class of its end: {why}")
    job = witness.stuck(name)
    if job is None or verdict.verdict is not Verdict.PENDING:
        return verdict
    command = f"milepost why {job.job_id}"
    action = f"waiting does not help ({job.reason.name}): see {command}"
    return replace(verdict, next_action=action, command=command)


def withdraw_markers(paths: RunPaths, verdicts: Iterable[ShardVerdict]) -> list[str]:
    """Remove the markers of shards whose artifacts do not verify any more; their names.

    A marker says that every artifact verifies. Without it Snakemake runs the shard again, which
    repeats just the tasks whose artifacts are gone or damaged. The proof of the upload goes first:
    it follows from the marker, and while it is there Snakemake does not miss the marker.
    """
    withdrawn = []
    for verdict in verdicts:
        shard = paths.shard(verdict.shard.name)
        if verdict.artifacts in (Artifacts.BAD, Artifacts.MISSING) and shard.marker.exists():
            shard.upload.unlink(missing_ok=True)
            shard.marker.unlink()
            withdrawn.append(verdict.shard.name)
    return withdrawn


def judge(
    paths: RunPaths,
    shard: ShardEvidence,
    scheduler: Scheduler,
    expected: bool,
    params: Mapping[str, Mapping[str, str]],
) -> ShardVerdict:
    """Judge one shard. `expected`: does the contract expect artifacts at all?"""
    journal, artifacts = journal_says(shard), artifacts_say(shard, expected)
    decision = decide(journal, scheduler, artifacts)
    problems = (*shard.damaged, *shard.failed)
    named = [describe(p, params.get(p.key)) for p in problems[:NAMED]]
    if len(problems) > NAMED:
        named.append(f"and {len(problems) - NAMED} more")
    action = decision.next_action
    if named and decision.verdict is not Verdict.DONE:
        action = f"{action}: {'; '.join(named)}" if action else "; ".join(named)
    return ShardVerdict(
        shard,
        journal,
        scheduler,
        artifacts,
        decision,
        action,
        decision.command_for(paths.run, shard.name),
        "; ".join(_evidence(shard, decision)),
    )


def ask_lease(shard: ShardEvidence) -> Scheduler:
    """The second witness where there is no scheduler: the holder of the lease.

    A holder on another host with an old heartbeat cannot be told dead: not heard. When it is so
    old that the next attempt would take the lease over, and no job stands behind it, it is gone.
    """
    if shard.holder is None:
        unreadable = any("attempts" in text for text in shard.lost)
        return Scheduler.NOT_HEARD if unreadable else Scheduler.NONE
    alive = shard.holder.is_alive()
    if alive is None:
        gone = shard.holder.slurm_job_id is None and shard.holder.age_s() > 4 * STALE_S
        return Scheduler.NONE if gone else Scheduler.NOT_HEARD
    return Scheduler.ALIVE if alive else Scheduler.NONE


def journal_says(shard: ShardEvidence) -> Journal:
    """The first witness. Damage that a later row has made good again is only a note."""
    complete = shard.in_table and not shard.failed and not shard.missing
    if any("journal.csv" in text for text in shard.lost):
        return Journal.DAMAGED
    if complete and shard.tasks:
        return Journal.COMPLETE
    if shard.damaged_rows:
        return Journal.DAMAGED
    if shard.failed or (shard.attempts and shard.attempts[-1].stop in _ENDED_BADLY):
        return Journal.FAILED
    return Journal.PARTIAL if shard.started or shard.done else Journal.NONE


def artifacts_say(shard: ShardEvidence, expected: bool) -> Artifacts:
    """The third witness, about what the journal calls done."""
    if any(p.what != MISSING for p in shard.damaged):
        return Artifacts.BAD
    if shard.damaged:
        return Artifacts.MISSING
    if shard.strays:
        return Artifacts.VERIFIED
    return Artifacts.VERIFIED if shard.done and expected else Artifacts.NOT_EXPECTED


def describe(problem: TaskProblem, params: Mapping[str, str] | None) -> str:
    """A task, its parameters, and what is wrong, for a person who must act on it."""
    text = " ".join(f"{k}={v}" for k, v in (params or {}).items())
    who = f"task {problem.key}" + (f" ({text})" if text else "")
    if problem.artifact is not None:
        return f"{who}: {problem.artifact} {problem.what}"
    return f"{who} {problem.what}"


def _evidence(shard: ShardEvidence, decision: Decision) -> Iterable[str]:
    yield decision.reason
    yield f"{shard.done} of {plural(len(shard.tasks), 'task')} done and verified"
    if shard.attempts:
        last = shard.attempts[-1]
        ended = last.stop or ("ended" if last.ended else "did not say how it ended")
        code = "" if last.exit_code is None else f", exit {last.exit_code}"
        yield f"attempt {last.number}: {ended}{code}"
    if shard.holder is not None:
        yield f"lease: {shard.holder.describe()}"
    if shard.strays:
        yield f"{plural(shard.strays, 'artifact folder')} without a journal row"
    yield from shard.notes
    yield from shard.lost


def write(paths: RunPaths, verdicts: Sequence[ShardVerdict]) -> None:
    """Write results/<run>/reconcile.csv durably."""
    with atomic_file(paths.reconcile) as stream:
        out = csv.DictWriter(stream, COLUMNS, lineterminator="\n")
        out.writeheader()
        out.writerows(v.row(paths.run) for v in verdicts)


def count(verdicts: Sequence[ShardVerdict]) -> dict[str, int]:
    """Shards by verdict, in the order of the words; verdicts without a shard are left out."""
    counts = Counter(v.verdict for v in verdicts)
    return {str(word): counts[word] for word in Verdict if counts[word]}


def not_done(verdicts: Iterable[ShardVerdict]) -> list[ShardVerdict]:
    """The shards without verdict DONE; none when every one has it."""
    return [v for v in verdicts if v.verdict is not Verdict.DONE]
