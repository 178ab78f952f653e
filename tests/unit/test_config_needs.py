"""A run that needs another one: mistakes, files that are not there yet, and what is recorded."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from milepost.cli import contract as cli
from milepost.config.freeze import freeze, read_amendments
from milepost.config.inputs import find_inputs
from milepost.config.load import Config, ConfigProblems, parse_config
from milepost.config.needs import find_circles, is_accepted, is_given
from milepost.durable import write_json
from milepost.errors import ConfigError, Refused
from milepost.paths import RunPaths

HERE = Path(".")
NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
OLD, NEW = "sha256:" + "a" * 64, "sha256:" + "b" * 64
TABLE = "results/first/results.csv"


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("t.csv").write_text("a,b\n1,2\n3,4\n")


def a_run(table: str = "t.csv", **keys: Any) -> dict[str, Any]:
    inputs = keys.pop("inputs", [])
    work = {"kind": "batch", "tasks": table, "command": "echo {a} {out}", "inputs": inputs}
    return {"work": work, **keys}


def pair(**keys: Any) -> Config:
    """`second` needs `first`, and takes its table from it unless `table` says otherwise."""
    second = a_run(**{"table": TABLE, "needs": ["first"], **keys})
    return parse_config({"runs": {"first": a_run(), "second": second}})


def problems(runs: dict[str, Any]) -> dict[str, str]:
    with pytest.raises(ConfigProblems) as caught:
        parse_config({"runs": runs})
    return {problem.key: problem.says for problem in caught.value.problems}


def close(run: str = "first", *, closed: bool = True, digest: str = OLD, accepted: int = 0) -> None:
    verdict = "CLOSED" if closed else "NOT CLOSED"
    record = {"closed": closed, "verdict": verdict, "contract": digest, "accepted": [{}] * accepted}
    write_json(RunPaths(run).closeout / "record.json", record)


def give(text: str = "a,b\n1,2\n") -> None:
    Path(TABLE).parent.mkdir(parents=True, exist_ok=True)
    Path(TABLE).write_text(text)


def freeze_second(**keys: Any) -> dict[str, Any]:
    return dict(freeze(pair(**keys).runs["second"], RunPaths("second"), NOW).data)


# mistakes


def test_a_run_that_is_not_there_is_named_with_its_neighbour() -> None:
    found = problems({"first": a_run(), "second": a_run(needs=["frist"])})
    assert found == {"runs.second.needs[0]": "there is no run 'frist'; did you mean first?"}


def test_without_a_neighbour_the_other_runs_are_named() -> None:
    found = problems({"first": a_run(), "second": a_run(needs=["docking"])})
    assert found["runs.second.needs[0]"].endswith("expected one of first")


@pytest.mark.parametrize(
    ("needs", "says"),
    [
        ({"a": ["a"]}, "a needs a"),
        ({"a": ["b"], "b": ["a"]}, "a needs b needs a"),
        ({"a": ["c"], "b": ["a"], "c": ["b"]}, "a needs c needs b needs a"),
    ],
)
def test_a_circle_is_one_mistake_that_names_its_runs(
    needs: dict[str, list[str]], says: str
) -> None:
    found = problems({name: a_run(needs=needed) for name, needed in needs.items()})
    assert list(found) == ["runs.a.needs"]
    assert f"wait for each other: {says}; remove one" in found["runs.a.needs"]


def test_only_circles_are_circles() -> None:
    diamond = {"a": ["b", "c"], "b": ["d"], "c": ["d"], "d": []}
    assert list(find_circles(diamond)) == []
    two = diamond | {"d": ["b"], "x": ["y"], "y": ["x"]}
    assert list(find_circles(two)) == [("b", "d", "b"), ("x", "y", "x")]


def test_the_same_run_twice_and_junk_are_mistakes() -> None:
    assert "no item twice" in problems({"a": a_run(), "b": a_run(needs=["a", "a"])})["runs.b.needs"]
    assert "runs.b.needs" in problems({"a": a_run(), "b": a_run(needs="a")})


# what is not there yet


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("results/first/results.csv", True),
        ("./results//first/artifacts/*/pose.csv", True),
        ("results/first", False),
        ("results/first-two/results.csv", False),
        ("results/other/../first/x", True),
        ("results/first/../other/x", False),
        ("config/results/first/x", False),
    ],
)
def test_what_a_needed_run_gives_lies_below_its_results(name: str, expected: bool) -> None:
    assert is_given(name, ["zero", "first"]) is expected
    assert not is_given(name, [])


def test_what_a_needed_run_gives_may_be_missing_until_it_is_closed() -> None:
    given = ["results/first/artifacts/*/x.json"]
    run = pair(inputs=given).runs["second"]
    assert (run.needs, run.work.table) == (("first",), TABLE)
    assert find_inputs(run, HERE, only_own=True) == []
    give("")  # an unfinished run's table is not judged either
    close(closed=False)
    pair(inputs=given)
    close()
    with pytest.raises(ConfigProblems) as caught:
        pair(inputs=given)
    assert {p.key for p in caught.value.problems} == {
        "runs.second.work.tasks",
        "runs.second.work.inputs[0]",
    }


def test_without_needs_the_same_files_must_be_there() -> None:
    found = problems({"first": a_run(), "second": a_run(TABLE)})
    assert list(found) == ["runs.second.work.tasks"]
    found = problems({"first": a_run(), "second": a_run("no.csv", needs=["first"])})
    assert list(found) == ["runs.second.work.tasks"]


def test_columns_are_checked_once_the_table_is_there() -> None:
    give("task,b\n1,2\n")
    close()
    with pytest.raises(ConfigProblems, match=r"field \{a\} is no column"):
        pair()


def test_a_check_says_where_the_table_will_come_from() -> None:
    Path("config").mkdir()
    Path("config/config.yaml").write_text(
        "runs:\n"
        "  first: {work: {kind: batch, tasks: t.csv, command: 'echo {a}'}}\n"
        f"  second: {{needs: [first], work: {{kind: batch, tasks: {TABLE}, command: 'e {{a}}'}}}}\n"
    )
    shown = CliRunner().invoke(cli.command, ["--check"])
    assert shown.output.splitlines() == [
        "first: valid, 2 rows",
        "second: valid, the table comes from first",
    ]
    assert '"second": null' in CliRunner().invoke(cli.command, ["--check", "--json"]).output


# the contract


def test_a_contract_waits_for_the_closeout_of_what_it_needs() -> None:
    give()
    with pytest.raises(Refused) as caught:
        freeze_second()
    assert caught.value.exit_code == 20
    assert caught.value.what == "run second needs run first, which has no closeout yet"
    assert str(caught.value.where) == "results/first/closeout/record.json"
    assert caught.value.fix is not None and "milepost closeout first" in caught.value.fix
    close(closed=False)
    with pytest.raises(Refused, match="which is NOT CLOSED"):
        freeze_second()
    assert not RunPaths("second").frozen_contract.exists()


def test_a_contract_records_the_contracts_of_what_it_needed() -> None:
    give()
    close()
    data = freeze_second()
    assert data["needs"] == {"first": OLD}
    assert data["accepted"]["needs"] == ["first"]
    assert "needs" not in data["frozen"]
    assert freeze(pair().runs["first"], RunPaths("first"), NOW).data["needs"] == {}


def test_files_of_a_needed_run_are_frozen_like_any_input() -> None:
    give()
    close()
    Path("results/first/model.bin").write_text("model")
    data = freeze_second(inputs=["results/first/*.bin"])
    assert [item["path"] for item in data["inputs"]] == ["results/first/model.bin"]


def test_a_table_that_was_not_given_after_all_is_an_error() -> None:
    run = pair().runs["second"]  # read before the needed run is closed
    close()
    with pytest.raises(ConfigError, match="the table cannot be read"):
        freeze(run, RunPaths("second"), NOW)


def test_after_the_launch_other_needs_are_accepted_and_written_down() -> None:
    give()
    close()
    digest = freeze_second()["digest"]
    write_json(RunPaths("second").frozen_submission, {"contract_digest": digest})
    close(digest=NEW)
    assert freeze_second()["digest"] == digest
    assert [(a["field"], a["old"], a["new"]) for a in read_amendments(RunPaths("second"))] == [
        ("contract of first", OLD, NEW)
    ]


def test_accepted_is_closed_with_a_reason() -> None:
    assert not is_accepted("first", HERE)
    close()
    assert not is_accepted("first", HERE)
    close(accepted=1)
    assert is_accepted("first", HERE)
    close(closed=False, accepted=1)
    assert not is_accepted("first", HERE)
