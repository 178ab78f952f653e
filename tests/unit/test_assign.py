"""Assignment of tasks to shards: what is done is never assigned again."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from hypothesis import given
from hypothesis import strategies as st

from milepost.launch.assign import assign_tasks
from milepost.model import Shard, Task
from milepost.planner.sharding import ShardPlan


def tasks(*keys: str) -> list[Task]:
    return [Task(key, {"x": key}, line) for line, key in enumerate(keys, start=2)]


def by(size: int) -> Callable[[int], Iterable[range]]:
    return lambda count: (range(at, min(at + size, count)) for at in range(0, count, size))


def names(shards: list[Shard]) -> dict[str, list[str]]:
    return {shard.name: [task.key for task in shard.tasks] for shard in shards}


def as_table(shards: list[Shard]) -> dict[str, Shard]:
    return {shard.name: shard for shard in shards}


def test_tasks_are_packed_in_order() -> None:
    assert names(assign_tasks(tasks(*"abcde"), {}, cut=by(2))) == {
        "0001": ["a", "b"],
        "0002": ["c", "d"],
        "0003": ["e"],
    }


def test_new_rows_get_new_shards_and_old_ones_keep_theirs() -> None:
    first = assign_tasks(tasks(*"abcd"), {}, cut=by(2))
    second = assign_tasks(tasks(*"xabcdy"), as_table(first), cut=by(2), last_number=2)
    assert names(second) == {"0001": ["a", "b"], "0002": ["c", "d"], "0003": ["x", "y"]}


def test_reordering_changes_no_shard_but_the_lines() -> None:
    first = assign_tasks(tasks(*"abcd"), {}, cut=by(2))
    second = assign_tasks(tasks(*"dcba"), as_table(first), cut=by(2), last_number=2)
    assert names(second) == names(first)
    assert [t.line for t in second[0].tasks] == [5, 4]


def test_rows_that_left_the_table_leave_their_shards() -> None:
    first = assign_tasks(tasks(*"abcd"), {}, cut=by(2))
    assert names(assign_tasks(tasks("d"), as_table(first), cut=by(2), last_number=2)) == {
        "0002": ["d"]
    }


def test_resharding_moves_only_what_is_open_and_not_worked_on() -> None:
    first = assign_tasks(tasks(*"abcdef"), {}, cut=by(2))
    second = assign_tasks(
        tasks(*"abcdef"),
        as_table(first),
        cut=by(3),
        done={"a"},
        live={"0003"},
        is_resharded=True,
        last_number=3,
    )
    assert names(second) == {"0001": ["a"], "0003": ["e", "f"], "0004": ["b", "c", "d"]}


keys = st.lists(st.sampled_from("abcdefghijklmnop"), unique=True, min_size=1)


@given(before=keys, after=keys, size=st.integers(1, 5), done=st.sets(st.sampled_from("abcdefgh")))
def test_every_task_has_one_home_and_done_ones_stay(
    before: list[str], after: list[str], size: int, done: set[str]
) -> None:
    first = assign_tasks(tasks(*before), {}, cut=by(size))
    last = len(first)
    second = assign_tasks(
        tasks(*after), as_table(first), cut=by(3), done=done, is_resharded=True, last_number=last
    )
    housed = [task.key for shard in second for task in shard.tasks]
    assert sorted(housed) == sorted(after)
    home = {task.key: shard.name for shard in first for task in shard.tasks}
    for shard in second:
        for task in shard.tasks:
            if task.key in done and task.key in home:
                assert shard.name == home[task.key]
            else:
                assert int(shard.name) > last


def test_a_count_of_shards_is_kept_when_it_does_not_divide_the_tasks() -> None:
    shards = assign_tasks(tasks(*"abcdefghij"), {}, cut=ShardPlan(2, 8, None).slices)
    assert [len(shard.tasks) for shard in shards] == [2, 2, 1, 1, 1, 1, 1, 1]


def test_a_row_that_comes_back_returns_to_where_it_was_done() -> None:
    first = assign_tasks(tasks(*"abcd"), {}, cut=by(2))
    without = assign_tasks(tasks(*"ad"), as_table(first), cut=by(2), last_number=2)
    assert names(without) == {"0001": ["a"], "0002": ["d"]}
    again = assign_tasks(
        tasks(*"abcde"),
        as_table(without),
        cut=by(2),
        homes={"b": "0001", "c": "0002"},
        last_number=2,
    )
    assert names(again) == {"0001": ["a", "b"], "0002": ["d", "c"], "0003": ["e"]}


def test_a_shard_that_had_gone_comes_back_with_its_rows() -> None:
    first = assign_tasks(tasks(*"abcd"), {}, cut=by(2))
    without = assign_tasks(tasks(*"cd"), as_table(first), cut=by(2), last_number=2)
    again = assign_tasks(
        tasks(*"abcd"), as_table(without), cut=by(2), homes=dict.fromkeys("ab", "0001")
    )
    assert names(again) == {"0001": ["a", "b"], "0002": ["c", "d"]}
