"""The task table: strict about its shape, faithful about its values."""

from __future__ import annotations

from pathlib import Path

import pytest

from milepost.config.build import build_run
from milepost.config.load import parse_config
from milepost.config.spec import RunSpec
from milepost.config.tasks import read_header, read_tasks, task_key, work_fields
from milepost.errors import ConfigError


def a_table(folder: Path, text: str | bytes) -> Path:
    path = folder / "t.csv"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def refused(path: Path, spec: RunSpec | None = None) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        read_tasks(path, spec)
    assert caught.value.fix
    assert caught.value.exit_code == 2
    return caught.value


def a_spec(folder: Path, **work: object) -> RunSpec:
    table = a_table(folder, "a,b\n1,2\n")
    data = {"kind": "batch", "tasks": str(table), "command": "run {a} {out}", **work}
    return parse_config({"runs": {"x": {"work": data}}}).runs["x"]


def test_rows_keep_their_order_lines_and_values_as_written(tmp_path: Path) -> None:
    tasks = read_tasks(a_table(tmp_path, 'a,b\n 1 ,""\n\n"x,""y""\nz",ü\n01,1.0\n'))
    assert [(task.line, dict(task.params)) for task in tasks] == [
        (2, {"a": " 1 ", "b": ""}),
        (4, {"a": 'x,"y"\nz', "b": "ü"}),
        (6, {"a": "01", "b": "1.0"}),
    ]
    assert [task.key for task in tasks] == [task_key(task.params) for task in tasks]


@pytest.mark.parametrize("text", ["\ufeffa,b\r\n1,2\r\n", "a,b\n1,2", "a,b\n\n1,2\n\n\n"])
def test_tables_of_other_programs_are_read(tmp_path: Path, text: str) -> None:
    (task,) = read_tasks(a_table(tmp_path, text))
    assert task.params == {"a": "1", "b": "2"}


def test_a_key_is_the_same_in_every_version() -> None:
    """Changing it would run all finished tasks of existing runs again."""
    assert task_key({"kernel": "rbf", "C": "0.1"}) == "e820528317893d4e"
    assert task_key({"é": "\n"}) == "93ca09c7722698f0"


def test_repeated_rows_are_named_with_both_lines(tmp_path: Path) -> None:
    error = refused(a_table(tmp_path, "a,b\n1,2\n3,4\n1,2\n1,2\n"))
    assert "line 4 repeats line 2" in error.what
    assert "line 5 repeats line 2" in error.what


def test_ragged_rows_are_named_and_a_long_list_is_cut(tmp_path: Path) -> None:
    error = refused(a_table(tmp_path, "a,b\n1\n1,2,3\n"))
    assert "line 2 has 1 value, the header has 2" in error.what
    assert "line 3 has 3 values" in error.what
    error = refused(a_table(tmp_path, "a,b\n" + "1\n" * 1000))
    assert "1000 wrong rows" in error.what
    assert "and 990 more" in error.what
    assert len(error.what) < 1000


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "empty"),
        ("\n\n", "empty"),
        ("a,b\n", "no rows"),
        ("a,a\n1,2\n", "'a' is there twice"),
        ("a,\n1,2\n", "has no name"),
        ("a, b\n1,2\n", "' b' has spaces"),
        ("a,out\n1,2\n", "fills in itself"),
        ('a,b\n1,"2\n3,4\n', "not CSV"),
        ('a,b\n1,"2"x\n', "not CSV"),
        (b"a,b\n1,\xff\n", "not UTF-8"),
        ("a,b\n1,\0\n", "NUL"),
        ("a;b\n1;2\n", "separated by ;"),
        ("a\tb\n1\t2\n", "separated by a tab"),
    ],
)
def test_a_table_of_the_wrong_shape_is_refused(
    tmp_path: Path, text: str | bytes, says: str
) -> None:
    error = refused(a_table(tmp_path, text))
    assert says in error.what
    assert "t.csv" in str(error.where)


def test_a_missing_table_or_a_folder_is_named(tmp_path: Path) -> None:
    assert "No such file" in refused(tmp_path / "none.csv").what
    assert "directory" in refused(tmp_path).what


def test_the_columns_that_the_work_needs_must_be_there(tmp_path: Path) -> None:
    spec = a_spec(tmp_path)
    assert len(read_tasks(a_table(tmp_path, "b,a\n1,2\n"), spec)) == 1
    assert "no column a (it has b)" in refused(a_table(tmp_path, "b\n1\n"), spec).what


def test_fields_of_stages_and_their_outputs_count(tmp_path: Path) -> None:
    stage = {"name": "s", "command": "run {b} {out}", "outputs": ["{a}.x"]}
    raw = dict(a_spec(tmp_path).raw)
    work = {k: v for k, v in raw["work"].items() if k not in ("tasks", "command")}
    raw["work"] = {**work, "kind": "stages", "members": "t.csv", "stages": [stage]}
    assert work_fields(build_run("x", raw).work) == ("b", "a")


def test_the_header_is_read_alone(tmp_path: Path) -> None:
    assert read_header(a_table(tmp_path, "a,b\n1\n")) == ["a", "b"]


def test_two_hundred_thousand_rows_are_read(tmp_path: Path) -> None:
    rows = "".join(f"{n},{n * 7}\n" for n in range(200_000))
    tasks = read_tasks(a_table(tmp_path, "a,b\n" + rows))
    assert len({task.key for task in tasks}) == 200_000
