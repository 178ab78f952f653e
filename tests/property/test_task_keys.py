"""Laws of task keys: they depend on names and values, and on nothing else."""

from __future__ import annotations

import csv
import hashlib
import json
import random
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from milepost.config.tasks import KEY_DIGITS, read_tasks, task_key

text = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8)
names = st.text(st.characters(categories=["L", "N"]), min_size=1, max_size=5).filter(
    lambda name: name != "out" and name == name.strip()
)
params = st.dictionaries(text, text, min_size=1, max_size=6)


@given(params)
def test_a_key_is_the_hash_of_canonical_json(values: dict[str, str]) -> None:
    canonical = json.dumps(values, sort_keys=True, separators=(",", ":"))
    assert task_key(values) == hashlib.sha256(canonical.encode()).hexdigest()[:KEY_DIGITS]


@given(params, st.randoms(use_true_random=False))
def test_a_key_does_not_depend_on_the_order_of_names(
    values: dict[str, str], chance: random.Random
) -> None:
    shuffled = list(values.items())
    chance.shuffle(shuffled)
    assert task_key(dict(shuffled)) == task_key(values)


@given(params, params)
def test_other_parameters_have_another_key(one: dict[str, str], other: dict[str, str]) -> None:
    assert (task_key(one) == task_key(other)) == (one == other)


@settings(max_examples=60, suppress_health_check=list(HealthCheck), deadline=None)
@given(
    st.lists(names, min_size=2, max_size=4, unique=True),
    st.sets(st.tuples(text, text, text, text), min_size=1, max_size=8),
    st.randoms(use_true_random=False),
)
def test_a_table_gives_the_same_tasks_in_any_order_of_rows_and_columns(
    tmp_path: Path, columns: list[str], rows: set[tuple[str, ...]], chance: random.Random
) -> None:
    table = list({row[: len(columns)] for row in rows})
    before = _write_and_read(tmp_path / "before.csv", columns, table)
    order = list(range(len(columns)))
    chance.shuffle(order)
    chance.shuffle(table)
    after = _write_and_read(
        tmp_path / "after.csv",
        [columns[at] for at in order],
        [tuple(row[at] for at in order) for row in table],
    )
    assert before == after
    assert sorted(map(json.dumps, before.values())) == sorted(
        json.dumps(dict(sorted(zip(columns, row, strict=True)))) for row in table
    )


def _write_and_read(
    path: Path, columns: list[str], rows: list[tuple[str, ...]]
) -> dict[str, dict[str, str]]:
    with path.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream, quoting=csv.QUOTE_ALL)
        writer.writerow(columns)
        writer.writerows(rows)
    return {task.key: dict(sorted(task.params.items())) for task in read_tasks(path)}
