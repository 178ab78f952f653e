"""How many tasks make a shard."""

from __future__ import annotations

import pytest

from milepost.config.spec import ShardsSpec
from milepost.errors import ConfigError
from milepost.planner.sharding import RowSizes, ShardPlan, shard_seconds, shard_sizes, split_tasks


def test_target_seconds_use_the_measurement() -> None:
    found = split_tasks(5000, ShardsSpec(target_s=600), task_s=1.2, startup_s=3.0, cpus=2)
    assert found == ShardPlan(834, 6, 3.0 + 417 * 1.2)


def test_a_shard_is_never_longer_than_the_target_unless_one_round_is() -> None:
    short = split_tasks(1000, ShardsSpec(target_s=60), task_s=7.0, startup_s=5.0, cpus=4)
    assert short.shard_s is not None and short.shard_s <= 60
    long = split_tasks(10, ShardsSpec(target_s=60), task_s=500.0, startup_s=5.0, cpus=4)
    assert (long.tasks_per_shard, long.shard_count) == (4, 3)


def test_a_start_up_longer_than_the_target_does_not_make_shards_of_one_task() -> None:
    found = split_tasks(120, ShardsSpec(target_s=3), task_s=0.1, startup_s=5.0, cpus=1)
    assert (found.tasks_per_shard, found.shard_count) == (30, 4)


@pytest.mark.parametrize(
    ("shards", "size", "count"),
    [
        (ShardsSpec(count=8), 13, 8),
        (ShardsSpec(count=1000), 1, 100),
        (ShardsSpec(tasks_per_shard=30), 30, 4),
        (ShardsSpec(tasks_per_shard=1000), 100, 1),
    ],
)
def test_stated_sizes(shards: ShardsSpec, size: int, count: int) -> None:
    found = split_tasks(100, shards, None, None, 1)
    assert (found.tasks_per_shard, found.shard_count, found.shard_s) == (size, count, None)


def test_ten_minutes_when_nobody_says() -> None:
    said = split_tasks(5000, ShardsSpec(target_s=600), task_s=1.2, startup_s=3.0, cpus=2)
    assert split_tasks(5000, ShardsSpec(), task_s=1.2, startup_s=3.0, cpus=2) == said


def test_target_without_measurement_says_what_to_do() -> None:
    with pytest.raises(ConfigError, match="measured no seconds per task") as caught:
        split_tasks(10, ShardsSpec(target_s=600), None, None, 1)
    assert "tasks_per_shard" in str(caught.value)


@pytest.mark.parametrize(
    ("count", "shards"),
    [
        (0, ShardsSpec(count=1)),
        (5, ShardsSpec(count=0)),
        (5, ShardsSpec(tasks_per_shard=-1)),
    ],
)
def test_impossible_requests(count: int, shards: ShardsSpec) -> None:
    with pytest.raises(ConfigError):
        split_tasks(count, shards, 1.0, 0.0, 1)


def test_slices_are_even_or_as_stated() -> None:
    even = split_tasks(10, ShardsSpec(count=8), None, None, 1)
    assert [len(part) for part in even.slices(10)] == [2, 2, 1, 1, 1, 1, 1, 1]
    stated = split_tasks(100, ShardsSpec(tasks_per_shard=30), None, None, 1)
    assert [len(part) for part in stated.slices(100)] == [30, 30, 30, 10]


def test_instant_tasks_make_one_shard() -> None:
    assert split_tasks(7, ShardsSpec(target_s=10), 0.0, None, 1).shard_count == 1


def test_seconds_of_a_shard_count_rounds() -> None:
    assert shard_seconds(5, 10.0, 2.0, 2) == 32.0
    assert shard_seconds(5, None, 2.0, 2) is None


def test_the_size_of_a_shard_is_the_work_of_its_rows() -> None:
    cut = split_tasks(5, ShardsSpec(tasks_per_shard=2), None, None, 1)
    assert shard_sizes(cut, 5, None, is_batch=True) == [2.0, 2.0, 1.0]
    rows = RowSizes((2.0, 4.0, 6.0, 8.0, 1.0), unit=2.0).relative
    assert shard_sizes(cut, 5, rows, is_batch=True) == [3.0, 7.0, 0.5]
    assert shard_sizes(cut, 5, rows, is_batch=False) == rows
    assert shard_sizes(cut, 5, None, is_batch=False) == [1.0] * 5
