"""Mistakes in a configuration: one message each, with its key, its value and a remedy."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from milepost.config.load import ConfigProblems, load_config, parse_config
from milepost.config.schema import config_schema


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("t.csv").write_text("a,b\n1,2\n3,4\n")


def a_run(**keys: Any) -> dict[str, Any]:
    """A small valid run; keyword arguments replace its keys."""
    work = {"kind": "batch", "tasks": "t.csv", "command": "echo {a} {b} {out}"}
    return {"work": work, **keys}


def a_member_run(**keys: Any) -> dict[str, Any]:
    work = {"kind": "resumable", "members": "t.csv", "command": "echo {a} {out}"}
    return {"work": work, **keys}


def stages(*names: str, **keys: Any) -> dict[str, Any]:
    each = [{"name": n, "command": "echo {a}", "outputs": [f"{n}.txt"], **keys} for n in names]
    return {"work": {"kind": "stages", "members": "t.csv", "stages": each}}


def problems(data: Mapping[str, Any]) -> dict[str, str]:
    """Key -> message of each mistake in a configuration."""
    with pytest.raises(ConfigProblems) as caught:
        parse_config(data)
    return {problem.key: problem.says for problem in caught.value.problems}


def wrong(run: Mapping[str, Any], **top: Any) -> tuple[str, str]:
    """The only mistake of a run: its key below the run, and its message."""
    found = problems({"runs": {"x": run}, **top})
    assert len(found) == 1, found
    ((key, says),) = found.items()
    return key.removeprefix("runs.x.").removeprefix("runs.x"), says


def test_ten_mistakes_are_ten_numbered_messages_with_lines() -> None:
    Path("c.yaml").write_text(
        """\
tier: {scratch: a}
runs:
  Bad_Name:
    work: {kind: batch, tasks: t.csv, command: "echo {a}"}
  x:
    workload: trainning
    resorces: {cpus: 1}
    resources: {cpus: 0, mem_mb: many}
    work:
      kind: batch
      task: t.csv
      command: "echo {a} {aa"
    control: {file: r.json, metric: m, sigmas: 0}
    artifacts: [{path: /r.json}, {path: r.json}]
    checkpoint: {write_atomic: false}
"""
    )
    with pytest.raises(ConfigProblems) as caught:
        parse_config(load_config([Path("c.yaml")]), [Path("c.yaml")])
    assert [(p.key, p.place) for p in caught.value.problems] == [
        ("tier", "c.yaml:1"),
        ("runs.Bad_Name", "c.yaml:3"),
        ("runs.x.workload", "c.yaml:6"),
        ("runs.x.resorces", "c.yaml:7"),
        ("runs.x.resources.cpus", "c.yaml:8"),
        ("runs.x.resources.mem_mb", "c.yaml:8"),
        ("runs.x.work.task", "c.yaml:11"),
        ("runs.x.work.command", "c.yaml:12"),
        ("runs.x.control.sigmas", "c.yaml:13"),
        ("runs.x.artifacts[0].path", "c.yaml:14"),
        ("runs.x.checkpoint.write_atomic", "c.yaml:15"),
    ]
    text = str(caught.value)
    assert text.startswith("c.yaml: 11 mistakes\n  1. tier: unknown key; did you mean tiers?")
    assert " 11. runs.x.checkpoint.write_atomic: false is refused" in text
    assert caught.value.exit_code == 2


def with_work(**keys: Any) -> dict[str, Any]:
    run = a_run()
    return {"work": {**run["work"], **keys}}


WRONG: list[tuple[dict[str, Any], str, str]] = [
    (a_run(sofware=[]), "sofware", "did you mean software?"),
    (a_run(workload="dock"), "workload", "expected one of training"),
    (a_run(purpose=3), "purpose", "3; expected text"),
    (a_run(software=["a", "a"]), "software", "no item twice"),
    (a_run(resources={"cpus": True}), "resources.cpus", "a whole number, at least 1"),
    (a_run(resources={"cpus": 1.5}), "resources.cpus", "a whole number"),
    (a_run(resources={"gpus": 1}, resource_class="cpu"), "resources.gpus", "expected 0"),
    (a_run(resource_class="multi-gpu"), "resources.gpus", "expected 2 or more"),
    (a_run(planner={"budget": float("nan")}), "planner.budget", "finite"),
    (a_run(planner={"budget": "1e999"}), "planner.budget", "finite"),
    (a_run(planner={"deadline_h": -(10**400)}), "planner.deadline_h", "more than 0"),
    (a_run(planner={"deadline_h": 0}), "planner.deadline_h", "more than 0"),
    (a_run(planner={"profiles": "none.yaml"}), "planner.profiles", "no file 'none.yaml'"),
    (a_run(privacy={"public_note": "n.md"}), "privacy.public_note", "no file"),
    (a_run(shards={"count": 1, "target_s": 2}), "shards", "count"),
    (a_member_run(shards={"count": 1}), "shards.count", "one shard a row"),
    (a_run(smoke={"set": {"c": 1}}), "smoke.set.c", "no column"),
    (a_run(smoke={"set": {"a": True}}), "smoke.set.a", "expected text or a number"),
    ({"work": {"kind": "batch", "command": "echo"}}, "work.tasks", "is missing"),
    (with_work(members="t.csv"), "work.members", "does not belong to kind batch"),
    (with_work(tasks="none.csv"), "work.tasks", "cannot be read"),
    (with_work(command="echo {c}"), "work.command", "field {c} is no column"),
    (with_work(command="echo {ot}"), "work.command", "did you mean out?"),
    (with_work(command="echo `{a}`"), "work.command", "could become code"),
    (with_work(command="echo 'a"), "work.command", "not closed"),
    (with_work(command="  "), "work.command", "empty"),
    (with_work(function="m:f"), "work.function", "beside command"),
    (with_work(adapter="comand"), "work.adapter", "did you mean command?"),
    (with_work(adapter="../schemas/x"), "work.adapter", "no adapter"),
    (with_work(inputs=["none-*"]), "work.inputs[0]", "matches no file"),
    (with_work(environment={"A-B": "1"}), "work.environment.A-B", "environment variable"),
    (with_work(environment={"MILEPOST_RUN": "1"}), "work.environment.MILEPOST_RUN", "itself"),
    (with_work(environment={"A": True}), "work.environment.A", "text or a number"),
    (with_work(result={"file": "a", "stdout": "json"}), "work.result.stdout", "beside file"),
    (with_work(result={"best": {"metric": "m"}}), "work.result.best", "needs a result"),
    (with_work(result={"file": "../a"}), "work.result.file", "leaves its folder"),
    (with_work(result={"stdout": "csv"}), "work.result.stdout", "expected one of json"),
    (
        {"work": {"kind": "batch", "tasks": "t.csv", "function": "mod.name"}},
        "work.function",
        "package.module:name",
    ),
    ({"work": {"kind": "batch", "tasks": "t.csv"}}, "work.command", "command or function"),
    (
        {"work": {"kind": "resumable", "members": "t.csv", "function": "m:f"}},
        "work.function",
        "expected command",
    ),
    ({"work": {"kind": "batches", "tasks": "t.csv"}}, "work.kind", "did you mean batch?"),
    ({}, "work", "is missing"),
    (stages("one", "one"), "work.stages[1].name", "twice"),
    (stages("One"), "work.stages[0].name", "no name for a stage"),
    (stages("one", outputs=["/x"]), "work.stages[0].outputs[0]", "leaves its folder"),
    (stages("one", outputs=["{c}.x"]), "work.stages[0].outputs[0]", "no column"),
    (a_run(artifacts=[{"path": "a/../../b"}]), "artifacts[0].path", "leaves its folder"),
    (a_run(artifacts=[{"path": "x", "check": "jsn"}]), "artifacts[0].check", "mean json?"),
    (a_run(artifacts=[{"path": "x", "rows": 1}]), "artifacts[0].rows", "but to csv-rows"),
    (
        a_run(artifacts=[{"path": "x", "check": "command"}]),
        "artifacts[0].command",
        "is missing; check command needs command",
    ),
    (
        a_run(artifacts=[{"path": "x", "check": "range", "key": "k"}]),
        "artifacts[0].min",
        "needs min or max",
    ),
    (a_run(control={"file": "x", "metric": "m"}), "control.file", "no artifact"),
    (a_run(control={"metric": "m"}), "control.file", "is missing"),
    (a_run(checkpoint={"interval_seconds": "often"}), "checkpoint.interval_seconds", "auto"),
    (a_run(checkpoint={"interval_seconds": 0}), "checkpoint.interval_seconds", "more than 0"),
    (
        a_run(checkpoint={"interval_seconds": 121}, planner={"mode": "interruptible"}),
        "checkpoint.interval_seconds",
        "more than 120",
    ),
    (a_run(checkpoint={"encrypt": {}}), "checkpoint.encrypt", "has no key"),
    (
        a_run(checkpoint={"encrypt": {"key_file": "a", "key_env": "B"}}),
        "checkpoint.encrypt",
        "key_file and key_env",
    ),
    (
        a_run(checkpoint={"encrypt": {"key_file": "a", "age_recipient": "age1x"}}),
        "checkpoint.encrypt",
        "key_file and age_…",
    ),
    (a_run(checkpoint={"signal": "SIGURG"}), "checkpoint.signal", "did you mean URG?"),
    (a_run(checkpoint={"contents": [{"name": "../x"}]}), "checkpoint.contents[0].name", "leaves"),
    (a_run(checkpoint={"allow": ["rng"]}), "checkpoint.allow[0]", "one of container"),
]


@pytest.mark.parametrize(("run", "key", "says"), WRONG, ids=[f"{k}-{s}" for _, k, s in WRONG])
def test_a_mistake_gives_one_message_with_key_and_remedy(
    run: dict[str, Any], key: str, says: str
) -> None:
    found = wrong(run)
    assert found[0] == key
    assert says in found[1]


@pytest.mark.parametrize("name", ["A", "a_b", "a--b", "-a", "a/b", "..", "", "a" * 61, "a\n"])
def test_the_name_of_a_run_is_safe_as_a_folder(name: str) -> None:
    assert f"runs.{name}" in problems({"runs": {name: a_run()}})


def test_a_key_that_yaml_reads_as_a_number_is_a_name_all_the_same() -> None:
    assert list(
        parse_config(yaml.safe_load("runs: {2024: {work: " + str(a_run()["work"]) + "}}")).runs
    ) == ["2024"]


@pytest.mark.parametrize(
    ("tiers", "key"),
    [
        ({"scratch": "results/x/ckpt"}, "tiers.scratch"),
        ({"scratch": "work/x"}, "tiers.scratch"),
        ({"scratch": "work"}, "tiers.scratch"),
        ({"scratch": "./work/../results/x"}, "tiers.scratch"),
        ({"warm": "work/scratch"}, "tiers.warm"),
        ({"warm": "s3://b/p", "cold": "s3://b/p/q"}, "tiers.cold"),
    ],
)
def test_tiers_do_not_overlap_runs_or_each_other(tiers: dict[str, str], key: str) -> None:
    assert key in problems({"runs": {"x": a_run()}, "tiers": tiers})


def test_uploads_need_a_place() -> None:
    assert wrong(a_member_run(), tiers={"warm": None})[0] == "checkpoint.uploader.to"
    off = {"uploader": {"enable": False}}
    assert parse_config({"runs": {"x": a_member_run(checkpoint=off)}, "tiers": {"warm": None}})
    assert parse_config({"runs": {"x": a_run()}, "tiers": {"warm": None}})


@pytest.mark.parametrize(
    "data", [{}, {"runs": {}}, {"runs": None}, {"runs": []}, {"runs": {"x": None}}, {"runs": 1}]
)
def test_a_configuration_without_runs_is_refused(data: dict[str, Any]) -> None:
    assert problems(data)


@pytest.mark.parametrize("junk", [None, 1, "x", [], {}, [[]], {"a": None}, True])
def test_junk_anywhere_is_reported_and_never_a_crash(junk: object) -> None:
    keys = config_schema()["properties"]["runs"]["additionalProperties"]["properties"]
    for key in keys:
        for data in ({key: junk}, {key: dict.fromkeys(keys[key].get("properties", {}), junk)}):
            try:
                parse_config({"runs": {"x": {**a_run(), **data}}, "tiers": junk})
            except ConfigProblems as error:
                assert error.problems
