"""The configuration: read strictly, mistakes told all at once and in words, defaults filled in."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from milepost.artifacts import CHECKS
from milepost.config import spec as specs
from milepost.config.adapters import adapter_names, check_adapter
from milepost.config.checks_run import check_options
from milepost.config.load import load_config, parse_config, spec_digest
from milepost.config.schema import config_schema
from milepost.errors import ConfigError
from milepost.model import WorkKind
from milepost.resources import load_yaml

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("t.csv").write_text("a,b\n1,2\n3,4\n")


def a_run(**keys: Any) -> dict[str, Any]:
    """A small valid run; keyword arguments replace its keys."""
    work = {"kind": "batch", "tasks": "t.csv", "command": "echo {a} {b} {out}"}
    return {"work": work, **keys}


def stages(*names: str, **keys: Any) -> dict[str, Any]:
    each = [{"name": n, "command": "echo {a}", "outputs": [f"{n}.txt"], **keys} for n in names]
    return {"work": {"kind": "stages", "members": "t.csv", "stages": each}}


# reading


def test_files_are_merged_deeply_and_overrides_come_last() -> None:
    Path("1.yaml").write_text("runs: {x: {purpose: one, resources: {cpus: 1, mem_mb: 5}}}")
    Path("2.yaml").write_text("runs: {x: {resources: {cpus: 2}, software: [a]}}")
    data = load_config([Path("1.yaml"), Path("2.yaml")], {"runs": {"x": {"software": ["b"]}}})
    assert data == {
        "runs": {"x": {"purpose": "one", "resources": {"cpus": 2, "mem_mb": 5}, "software": ["b"]}}
    }


@pytest.mark.parametrize(
    ("text", "place", "says"),
    [
        ("runs:\n  x: 1\n  y: 2\n  x: 3\n", "c.yaml:4", "'x' is there twice, first in line 2"),
        ("runs:\n\t- x\n", "c.yaml:2", "not right as YAML"),
        ("runs: [1\n", "c.yaml:2", "not right as YAML"),
        ("- a\n", "c.yaml", "no mapping"),
        ("", "c.yaml", "no mapping"),
        ("runs: !!python/object/apply:os.getcwd []", "c.yaml:1", "not right as YAML"),
    ],
)
def test_what_is_not_proper_yaml_is_refused_with_its_line(text: str, place: str, says: str) -> None:
    Path("c.yaml").write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_config([Path("c.yaml")])
    assert str(caught.value.where).startswith(place)
    assert says in caught.value.what
    assert caught.value.fix
    assert caught.value.exit_code == 2


def test_a_missing_file_and_a_file_that_is_not_utf_8_are_named() -> None:
    Path("latin.yaml").write_bytes(b"purpose: \xe9")
    for name in ("none.yaml", "latin.yaml"):
        with pytest.raises(ConfigError) as caught:
            load_config([Path(name)])
        assert caught.value.where == name


# what is right


def test_a_short_configuration_has_all_defaults() -> None:
    config = parse_config({"runs": {"x": a_run()}})
    run = config.runs["x"]
    expected = specs.RunSpec(
        "x", specs.WorkSpec(WorkKind.BATCH, "t.csv", "echo {a} {b} {out}"), raw=run.raw
    )
    assert run == expected
    assert config.tiers == specs.TierSpec()


def test_every_key_reaches_the_spec() -> None:
    text = """
    tiers: {scratch: /local, warm: "s3://b/p", cold: archive}
    runs:
      x:
        purpose: why
        software: [numpy]
        workload: training
        resource_class: single-gpu
        resources: {cpus: 2, mem_mb: 3, gpus: 1, runtime_s: 5}
        work:
          kind: batch
          tasks: t.csv
          command: "echo {a}"
          adapter: command
          result: {file: r.json, best: {metric: m, mode: min}}
          inputs: ["*.csv"]
          environment: {N: 4, S: "5"}
        artifacts: [{path: "{a}.csv", check: csv-rows, min_rows: 2}, {path: r.json}]
        control: {file: r.json, metric: m, rtol: 1e-6, atol: 1e-9, reference: k, error: e, sigmas: 2}
        smoke: {tasks: 1, set: {a: 1e-3}}
        resume: fresh
        stop: convergence
        shards: {count: 3}
        retry: {limit: 0}
        checkpoint:
          interval_seconds: 60
          rotation: 4
          compression: lz4
          delta: false
          write_atomic: true
          encrypt: {key_env: KEY}
          signal: USR1
          contents: [{name: "rank_{rank}.bin"}]
          uploader: {enable: false, to: cold, max_bandwidth_mb_s: null, retries: 1, cold_every: 4}
          retention: {ttl_days: null, gold_every: 7, max_gap_s: 3600}
          when_busy: wait
          staging_limit_mb: 64
          rank_timeout_s: 30
          allow: [container]
        planner: {mode: reserved, deadline_h: 1, budget: 2, mtbf_h: 3, profiles: t.csv}
        privacy: {public_note: t.csv}
    """
    run = parse_config(yaml.safe_load(text)).runs["x"]
    assert run.purpose == "why"
    assert run.software == ("numpy",)
    assert (run.workload, run.resource_class) == ("training", "single-gpu")
    assert run.resources == specs.Resources(2, 3, 1, 5)
    assert run.work.result == specs.ResultSpec("r.json", False, "m", "min")
    assert run.work.inputs == ("*.csv",)
    assert run.work.environment == {"N": "4", "S": "5"}
    assert [(a.path, a.check, a.options) for a in run.artifacts] == [
        ("{a}.csv", "csv-rows", {"min_rows": 2}),
        ("r.json", "nonempty", {}),
    ]
    assert run.control == specs.ControlSpec("r.json", "m", 1e-6, 1e-9, "k", "e", 2)
    assert run.smoke == specs.SmokeSpec(1, {"a": "1e-3"})
    assert (run.resume, run.stop, run.retry_limit) == ("fresh", "convergence", 0)
    assert run.shards == specs.ShardsSpec(count=3)
    assert run.checkpoint == specs.CheckpointSpec(
        60.0,
        4,
        "lz4",
        False,
        specs.EncryptSpec(key_env="KEY"),
        "USR1",
        ("rank_{rank}.bin",),
        specs.UploaderSpec(False, "cold", None, 1, 4),
        None,
        7,
        3600,
        "wait",
        64,
        30.0,
        ("container",),
    )
    assert run.planner == specs.PlannerSpec("reserved", 1, 2, 3, "t.csv")
    assert run.public_note == "t.csv"
    assert run.tiers == specs.TierSpec("/local", "s3://b/p", "archive")


def test_a_pipeline_and_a_callable_are_read() -> None:
    run = parse_config({"runs": {"x": stages("one", "two")}}).runs["x"]
    assert run.work.stages[1] == specs.StageSpec("two", "echo {a}", ("two.txt",))
    work = {"kind": "batch", "tasks": "t.csv", "function": "pkg.mod:name"}
    assert parse_config({"runs": {"x": {"work": work}}}).runs["x"].work.function == "pkg.mod:name"


def test_the_demo_configuration_is_right() -> None:
    path = ROOT / "config" / "config.yaml"
    assert parse_config(load_config([path]), [path], ROOT).runs


def test_the_digest_of_a_spec_depends_on_values_and_not_on_their_order() -> None:
    one = parse_config({"runs": {"x": a_run(purpose="p", stop="time-limit")}}).runs["x"]
    same = parse_config({"runs": {"x": {"stop": "time-limit", "purpose": "p", **a_run()}}})
    other = parse_config({"runs": {"x": a_run(purpose="q", stop="time-limit")}}).runs["x"]
    assert spec_digest(one) == spec_digest(same.runs["x"]) != spec_digest(other)


@pytest.mark.parametrize(("one", "same"), [("2", "2.0"), ("2", "2e0"), ("0.5", "5e-1")])
def test_the_way_a_number_is_written_does_not_change_the_digest(one: str, same: str) -> None:
    digests = set()
    for number in (one, same):
        text = f"{{planner: {{budget: {number}}}, shards: {{target_s: {number}}}}}"
        keys = yaml.safe_load(text)
        digests.add(spec_digest(parse_config({"runs": {"x": a_run(**keys)}}).runs["x"]))
    assert len(digests) == 1
    whole = parse_config({"runs": {"x": a_run(resources={"cpus": 2.0})}}).runs["x"]
    assert isinstance(whole.resources.cpus, int)


# the schema itself


def every_key(schema: Mapping[str, Any], path: str = "") -> dict[str, Mapping[str, Any]]:
    """Name -> schema of every key, as in `artifacts[].path`; those of a run without its name."""
    keys: dict[str, Mapping[str, Any]] = {}
    for name, part in schema.get("properties", {}).items():
        keys[path + name] = part
        keys.update(every_key(part, "" if name == "runs" else f"{path}{name}."))
    if isinstance(schema.get("additionalProperties"), Mapping):
        keys.update(every_key(schema["additionalProperties"], path))
    if "items" in schema:
        keys.update(every_key(schema["items"], f"{path[:-1]}[]."))
    return keys


def test_every_key_has_a_description_and_every_mapping_is_closed() -> None:
    for name, part in every_key(config_schema()).items():
        assert part.get("description"), name
        if "properties" in part:
            assert part["additionalProperties"] is False, name


def test_defaults_of_the_schema_are_those_of_the_spec() -> None:
    run = parse_config({"runs": {"x": a_run()}}).runs["x"]
    for item in dataclasses.fields(specs.RunSpec):
        if item.name in ("name", "work", "raw"):
            continue
        made = item.default_factory() if callable(item.default_factory) else item.default
        assert getattr(run, item.name) == made, item.name


def test_options_of_artifact_checks_are_those_that_are_carried_out() -> None:
    assert check_options() == CHECKS


def test_the_readme_of_the_configuration_has_a_row_with_the_default_of_every_key() -> None:
    lines = (ROOT / "config" / "README.md").read_text(encoding="utf-8").splitlines()
    cells = [[c.strip() for c in x.strip("|").split("|")] for x in lines if x.startswith("| `")]
    rows = {key.strip("`"): default for key, _, default, _ in cells}
    keys = every_key(config_schema())
    assert sorted(rows) == sorted(keys)
    for key, part in keys.items():
        default = part.get("default")
        if default not in (None, "", {}, []) or ("default" in part and default is None):
            assert rows[key] == f"`{json.dumps(default).strip(chr(34))}`", key


def test_schemas_are_schemas_and_adapters_follow_theirs() -> None:
    from jsonschema import Draft202012Validator

    for path in (ROOT / "workflow" / "schemas").glob("*.yaml"):
        Draft202012Validator.check_schema(load_yaml("schemas", path.name))
    for name in adapter_names():
        check_adapter(name)
        assert load_yaml("adapters", f"{name}.yaml")["name"] == name


def test_an_adapter_that_does_not_follow_its_schema_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def load(kind: str, name: str) -> Any:
        return {"name": "command"} if kind == "adapters" else load_yaml(kind, name)

    monkeypatch.setattr("milepost.config.adapters.load_yaml", load)
    with pytest.raises(ConfigError, match="adapter command is wrong"):
        check_adapter("command")
