"""How many tasks make a shard."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from milepost.config.spec import ShardsSpec
from milepost.errors import ConfigError

DEFAULT_TARGET_S = 600.0
"""Wall seconds of a shard when nobody says: its start-up is then below one per cent."""


@dataclass(frozen=True, slots=True)
class RowSizes:
    """The work of each row as its column says it; `unit` is that of a row of the smoke slice,
    whose seconds were measured."""

    values: tuple[float, ...]
    unit: float

    @property
    def relative(self) -> list[float]:
        return [value / self.unit for value in self.values]


@dataclass(frozen=True, slots=True)
class ShardPlan:
    """At most `tasks_per_shard` tasks in each of `shard_count` shards.

    `shard_s` is the expected wall time of a full shard in seconds; None when no task was
    measured.
    """

    tasks_per_shard: int
    shard_count: int
    shard_s: float | None

    def slices(self, count: int) -> Iterator[range]:
        """Positions of each shard's tasks, in table order; every task is in exactly one.

        Shards differ by at most one task, unless the size was stated and leaves a remainder:
        then the last shard is the smaller one.
        """
        if math.ceil(count / self.shard_count) != self.tasks_per_shard:
            for start in range(0, count, self.tasks_per_shard):
                yield range(start, min(start + self.tasks_per_shard, count))
            return
        small, larger = divmod(count, self.shard_count)
        start = 0
        for shard in range(self.shard_count):
            end = start + small + (shard < larger)
            yield range(start, end)
            start = end


def split_tasks(
    count: int, shards: ShardsSpec, task_s: float | None, startup_s: float | None, cpus: int
) -> ShardPlan:
    """Cut `count` tasks into shards as `shards` says.

    `task_s` and `startup_s` are seconds measured by the smoke test, None when they were not.
    `cpus` tasks run side by side in a shard. `target_s` needs a measurement (ConfigError).
    """
    if count < 1:
        raise ConfigError("the task table has no rows", fix="put at least one row below its header")
    size, shard_count = _size(count, shards, task_s, startup_s, max(1, cpus))
    return ShardPlan(size, shard_count, shard_seconds(size, task_s, startup_s, cpus))


def shard_seconds(
    tasks: int, task_s: float | None, startup_s: float | None, cpus: int
) -> float | None:
    """Expected wall seconds of a shard: start-up, then `tasks` in rounds of `cpus`."""
    if task_s is None:
        return None
    return (startup_s or 0.0) + math.ceil(tasks / max(1, cpus)) * task_s


def shard_sizes(
    shards: ShardPlan, tasks: int, sizes: Sequence[float] | None, *, is_batch: bool
) -> list[float]:
    """Work of each shard in rows of the smoke slice's size; `sizes` are those of the rows."""
    if not is_batch:
        return [1.0] * tasks if sizes is None else list(sizes)
    slices = shards.slices(tasks)
    if sizes is None:
        return [float(len(one)) for one in slices]
    return [sum(sizes[at] for at in one) for one in slices]


def _size(
    count: int, shards: ShardsSpec, task_s: float | None, startup_s: float | None, cpus: int
) -> tuple[int, int]:
    if shards.tasks_per_shard is not None:
        size = min(_at_least_one("tasks_per_shard", shards.tasks_per_shard), count)
        return size, math.ceil(count / size)
    if shards.count is not None:
        number = min(_at_least_one("count", shards.count), count)
    else:
        target_s = DEFAULT_TARGET_S if shards.target_s is None else shards.target_s
        number = math.ceil(count / _fill(count, target_s, task_s, startup_s, cpus))
    return math.ceil(count / number), number


def _fill(
    count: int, target_s: float, task_s: float | None, startup_s: float | None, cpus: int
) -> int:
    """How many tasks fit into `target_s` seconds; at least one round of `cpus`.

    Where start-up alone fills the target it cannot be met: then the tasks get `target_s` of
    their own, because many shards of one task would spend nearly all their time on starting.
    """
    if task_s is None:
        raise ConfigError(
            f"target_s is {target_s:g}, and the smoke test measured no seconds per task",
            where="shards.target_s",
            fix="run the smoke test again, or state shards.count or shards.tasks_per_shard",
        )
    if task_s <= 0.0:
        return count
    useful_s = target_s - (startup_s or 0.0)
    if useful_s < task_s:
        useful_s = target_s
    rounds = max(1, math.floor(useful_s / task_s + 1e-9))
    return min(count, rounds * cpus)


def _at_least_one(key: str, value: int) -> int:
    if value < 1:
        raise ConfigError(f"{key} is {value}", where=f"shards.{key}", fix="use 1 or more")
    return value
