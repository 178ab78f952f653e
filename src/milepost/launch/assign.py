"""Which task goes into which shard, so that nothing that is done is ever assigned again.

A task has one home. Done tasks stay where their journal rows are, and so does all of a shard
that somebody works on now. A row that left the table and came back returns to where it was done.
Tasks without a home are packed into shards with new names: after new rows in the table, and, when
the user changed `shards`, after their old homes were dissolved.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from milepost.model import Shard, Task
from milepost.shardtable import shard_name


def assign_tasks(
    tasks: Sequence[Task],
    previous: Mapping[str, Shard],
    *,
    cut: Callable[[int], Iterable[range]],
    done: Collection[str] = (),
    homes: Mapping[str, str] = MappingProxyType({}),
    live: Collection[str] = (),
    is_resharded: bool = False,
    last_number: int = 0,
) -> list[Shard]:
    """The shards that hold exactly `tasks`; a pure function.

    `cut` says how a number of homeless tasks is cut into shards, as positions in table order.
    `done` are keys, `homes` says in which shard a task is done that `previous` does not hold,
    `live` are names of shards under a lease; `last_number` is the highest shard number ever used.
    Rows that left the table leave their shards; a shard without rows goes.
    """
    current = {task.key: task for task in tasks}
    shards: list[Shard] = []
    housed: set[str] = set()
    for shard in previous.values():
        stays_whole = not is_resharded or shard.name in live
        members = tuple(
            current[task.key]
            for task in shard.tasks
            if task.key in current and (stays_whole or task.key in done)
        )
        if members:
            shards.append(replace(shard, tasks=members))
            housed.update(task.key for task in members)
    shards = _with_returned([task for task in tasks if task.key not in housed], shards, homes)
    housed.update(homes)
    homeless = [task for task in tasks if task.key not in housed]
    for number, positions in enumerate(cut(len(homeless)), start=last_number + 1):
        shards.append(Shard(shard_name(number), tuple(homeless[p] for p in positions)))
    return shards


def _with_returned(
    tasks: Sequence[Task], shards: Sequence[Shard], homes: Mapping[str, str]
) -> list[Shard]:
    """`shards` and the tasks that came back, in the order of their names."""
    members = {shard.name: shard.tasks for shard in shards}
    known = {shard.name: shard for shard in shards}
    returned = [task for task in tasks if task.key in homes]
    for task in returned:
        name = homes[task.key]
        members[name] = (*members.get(name, ()), task)
    if not returned:
        return list(shards)
    return [
        replace(known.get(name, Shard(name, ())), tasks=members[name])
        for name in sorted(members, key=int)
    ]
