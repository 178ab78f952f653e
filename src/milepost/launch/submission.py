"""Submit: pass the gate, check the place, freeze the shard table.

Nothing is launched without a smoke test that passed on this very contract. Submitting again is
harmless: it extends the table by new rows and changes nothing that stands.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from milepost.clock import utc_now
from milepost.config.contract import Contract, load_contract
from milepost.config.tasks import read_tasks
from milepost.durable import atomic_file, digest_file, read_json, write_json
from milepost.errors import Refused, StorageError
from milepost.evidence.preflight import checks, failed
from milepost.evidence.preflight_checkpoint import no_room
from milepost.evidence.preflight_facts import gather_facts
from milepost.evidence.reconciled import refuse_unreconciled
from milepost.evidence.superseded import refuse_superseded
from milepost.journal import read_journal
from milepost.launch.assign import assign_tasks
from milepost.launch.cluster import check_cluster
from milepost.launch.placing import place_shards, shard_size, used_records
from milepost.launch.request import placed_spec, request
from milepost.lease import Lease, acquire_when_free, read_holder
from milepost.model import Shard, Task
from milepost.paths import RunPaths
from milepost.planner.sharding import ShardPlan
from milepost.shardtable import read_shards, write_shards

SCHEMA = 1


@dataclass(frozen=True, slots=True)
class Submission:
    """What is launched: counts of shards and tasks, and how many shards are new."""

    shards: int
    tasks: int
    new_shards: int
    path: Path


def submit(
    paths: RunPaths,
    say: Callable[[str], None],
    *,
    on_slurm: bool = False,
    jobs: int | None = None,
) -> Submission:
    """Freeze the shard table of a run and publish it; Refused when the gate does not open.

    So it is when the run is superseded, and when the table would change while attempts of an
    earlier launch are not reconciled. `on_slurm` asks Slurm first whether it would take the shards, at most `jobs` at a time.
    """
    refuse_superseded(paths)
    contract = load_contract(paths)
    smoke = _gate(paths.smoke, contract, "smoke")
    plan = _gate(paths.plan, contract, "plan")
    _preflight(paths, say)
    if on_slurm:
        for record in plan.get("placement") or [None]:
            spec = placed_spec(contract.spec, record)
            shards = plan["shard_count"] if record is None else record["shards"]
            wanted = request(spec, smoke, (), record=record)
            check_cluster(spec, wanted, shards, jobs, say, in_all=plan["shard_count"])
    lease = Lease(paths.work / "submit")
    acquire_when_free(lease, say)
    try:
        return _freeze(paths, contract, plan)
    finally:
        lease.release()


def _gate(path: Path, contract: Contract, what: str) -> Mapping[str, Any]:
    try:
        record: Mapping[str, Any] = read_json(path)
    except FileNotFoundError as error:
        raise Refused(
            f"there is no {what} of run {contract.spec.name}",
            where=path,
            fix=f"milepost {what} {contract.spec.name}",
        ) from error
    if record["contract_digest"] != contract.digest:
        raise Refused(
            f"the {what} belongs to another contract ({record['contract_digest'][:19]}…)",
            where=path,
            fix=f"milepost {what} {contract.spec.name}",
        )
    if not record.get("passed", True):
        raise Refused(
            f"the smoke test did not pass: {record['reason']}",
            where=path,
            fix="mend the work, then run the same command again; nothing was launched",
        )
    return record


def _preflight(paths: RunPaths, say: Callable[[str], None]) -> None:
    """Refuse where not even one shard has room; what else of the checklist fails is only said."""
    facts = gather_facts(paths, quick=True)
    full = no_room(facts)
    if full is not None:
        raise StorageError(
            full,
            where=paths.work,
            fix="free space, or name another place in `tiers`; nothing was launched",
        )
    for item in failed(checks(facts)):
        say(f"preflight: {item.key}: {item.evidence}; next: {item.next_action}")


def _freeze(paths: RunPaths, contract: Contract, plan: Mapping[str, Any]) -> Submission:
    spec = contract.spec
    previous = read_shards(paths.frozen_shards)
    before = read_json(paths.frozen_submission) if paths.frozen_submission.exists() else {}
    sharding = asdict(spec.shards)
    is_resharded = bool(before) and before["sharding"] != sharding
    tasks = [] if spec.stop == "smoke-only" else read_tasks(Path(spec.work.table))
    last_number = before.get("last_number", 0)
    shards = assign_tasks(
        tasks,
        previous,
        cut=ShardPlan(plan["tasks_per_shard"] or 1, plan["shard_count"], None).slices,
        done=_done_keys(paths, previous) if is_resharded else (),
        homes=_homes(paths, tasks, previous) if before else {},
        live=_live_shards(paths, previous) if is_resharded else (),
        is_resharded=is_resharded,
        last_number=last_number,
    )
    if _cut(shards) != _cut(previous.values()):
        refuse_unreconciled(paths)
    begun = {name for name in previous if _has_begun(paths, name)}
    shards = place_shards(shards, plan, shard_size(spec), begun)
    write_shards(paths.frozen_shards, shards)
    record = {
        "schema": SCHEMA,
        "run": spec.name,
        "contract_digest": contract.digest,
        "smoke_digest": digest_file(paths.smoke, "sha256"),
        "plan_digest": digest_file(paths.plan, "sha256"),
        "shards": len(shards),
        "tasks": len(tasks),
        "sharding": sharding,
        "placements": used_records(shards, plan, before),
        "last_number": max([last_number, *(int(shard.name) for shard in shards)]),
        "submitted": before.get("submitted", utc_now()),
    }
    write_json(paths.frozen_submission, record)
    _copy(paths.frozen_shards, paths.shards)
    _copy(paths.frozen_submission, paths.submission)
    new = sum(shard.name not in previous for shard in shards)
    return Submission(len(shards), len(tasks), new, paths.shards)


def _cut(shards: Iterable[Shard]) -> list[tuple[str, tuple[str, ...]]]:
    """Which tasks stand in which shard."""
    return [(shard.name, tuple(task.key for task in shard.tasks)) for shard in shards]


def _done_keys(paths: RunPaths, shards: Mapping[str, Shard]) -> set[str]:
    return {key for name in shards for key in read_journal(paths.shard(name).journal).done}


def _homes(paths: RunPaths, tasks: Sequence[Task], previous: Mapping[str, Shard]) -> dict[str, str]:
    """Where tasks are done that the table of shards does not hold: their rows had been removed."""
    known = {task.key for shard in previous.values() for task in shard.tasks}
    missing = {task.key for task in tasks} - known
    homes: dict[str, str] = {}
    for journal in sorted(paths.work.glob("shards/*/journal.csv")) if missing else ():
        homes |= dict.fromkeys(missing & read_journal(journal).done.keys(), journal.parent.name)
    return homes


def _has_begun(paths: RunPaths, shard: str) -> bool:
    """Was there ever an attempt at the shard?"""
    return paths.shard(shard).live.exists()


def _live_shards(paths: RunPaths, shards: Mapping[str, Shard]) -> set[str]:
    """Shards under a lease whose holder is alive, or may be."""
    live = set()
    for name in shards:
        holder = read_holder(paths.shard(name).lease)
        if holder is not None and holder.is_alive() is not False:
            live.add(name)
    return live


def _copy(source: Path, target: Path) -> None:
    with atomic_file(target, "wb") as stream:
        stream.write(source.read_bytes())
