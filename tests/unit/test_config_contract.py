"""The contract: frozen whole, the same bytes again, and hard to change after the launch."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from milepost.cli import contract as cli
from milepost.config.contract import Contract, load_contract
from milepost.config.freeze import Change, freeze, read_amendments
from milepost.config.load import parse_config
from milepost.config.plain import merge
from milepost.config.spec import RunSpec
from milepost.durable import digest_file, read_json, write_json
from milepost.errors import ConfigError, DataError, Refused
from milepost.paths import RunPaths
from milepost.resources import load_yaml

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
LATER = NOW + timedelta(days=1)
PATHS = RunPaths("x")
BASE: dict[str, Any] = {
    "work": {
        "kind": "batch",
        "tasks": "config/t.csv",
        "command": "python code/score.py --a {a} --model=data/model.bin --out {out}",
        "inputs": ["data/*.txt"],
        "environment": {"N": 1},
        "result": {"file": "r.json"},
    },
    "artifacts": [{"path": "r.json", "check": "json"}],
    "control": {"file": "r.json", "metric": "m"},
}


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    files = {
        "config/t.csv": "a,b\n1,2\n3,4\n",
        "code/score.py": "print(1)\n",
        "code/unused.py": "print(2)\n",
        "data/model.bin": "model",
        "data/1.txt": "one",
        "data/2.txt": "two",
        "notes.md": "a note",
    }
    for name, text in files.items():
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).write_text(text)


def spec(tiers: dict[str, Any] | None = None, **keys: Any) -> RunSpec:
    return parse_config({"runs": {"x": merge(BASE, keys)}, "tiers": tiers or {}}).runs["x"]


def frozen(**keys: Any) -> Contract:
    return freeze(spec(**keys), PATHS, NOW)


def launch() -> None:
    write_json(PATHS.frozen_submission, {"contract_digest": load_contract(PATHS).digest})


def test_the_run_is_rebuilt_completely_from_its_contract() -> None:
    rich = spec(
        purpose="why",
        software=["pytest"],
        smoke={"tasks": 2, "set": {"a": "5"}},
        checkpoint={"interval_seconds": 5, "encrypt": {"key_env": "K"}, "allow": ["code"]},
        privacy={"public_note": "notes.md"},
        tiers={"cold": "s3://b/p"},
    )
    assert freeze(rich, PATHS, NOW).spec == rich
    assert load_contract(PATHS).spec == rich


@pytest.mark.parametrize("kind", ["resumable", "stages"])
def test_members_are_rebuilt_too(kind: str) -> None:
    stage = {"name": "s", "command": "python code/score.py {a}", "outputs": ["{b}.x"]}
    rest = {"stages": [stage]} if kind == "stages" else {"command": "run {a}"}
    run = {"work": {"kind": kind, "members": "config/t.csv", **rest}, "resources": {"cpus": 3}}
    one = parse_config({"runs": {"x": run}}).runs["x"]
    contract = freeze(one, PATHS, NOW)
    assert load_contract(PATHS).spec == one
    assert contract.data["frozen"]["resources"] == {"cpus": 3, "gpus": 0}
    assert bool(contract.inputs) == (kind == "stages")


def test_inputs_are_the_files_that_are_named_and_nothing_else() -> None:
    contract = frozen()
    assert [proof.path for proof in contract.inputs] == [
        "code/score.py",
        "data/1.txt",
        "data/2.txt",
        "data/model.bin",
    ]
    assert contract.inputs[0].digest == digest_file("code/score.py")
    assert contract.inputs[0].size_bytes == 9


def test_outputs_of_the_run_and_its_table_are_no_inputs() -> None:
    Path("results/x").mkdir(parents=True)
    Path("results/x/old.json").write_text("{}")
    command = "run {a} results/x/old.json config/t.csv ../outside /etc/hostname"
    assert frozen(work={"command": command, "inputs": []}).inputs == ()


@pytest.mark.parametrize(
    ("module", "path", "recorded"),
    [
        ("mod", "mod.py", "mod.py"),
        ("pkg.mod", "pkg/mod.py", "pkg/mod.py"),
        ("pkg", "pkg/__init__.py", "pkg/__init__.py"),
        ("mod", "src/mod.py", "src/mod.py"),
    ],
)
def test_the_module_of_a_function_is_found_without_importing_it(
    module: str, path: str, recorded: str
) -> None:
    Path(path).parent.mkdir(exist_ok=True, parents=True)
    Path(path).write_text("raise SystemExit('was imported')\n")
    work = {"kind": "batch", "tasks": "config/t.csv", "function": f"{module}:f"}
    work["environment"] = {"PYTHONPATH": "src"}  # type: ignore[assignment]
    one = parse_config({"runs": {"x": {"work": work}}}).runs["x"]
    assert [proof.path for proof in freeze(one, PATHS, NOW).inputs] == [recorded]


def test_a_module_elsewhere_is_recorded_by_name_and_an_unknown_one_not() -> None:
    work = {"kind": "batch", "tasks": "config/t.csv", "function": "json.decoder:scanstring"}
    one = parse_config({"runs": {"x": {"work": work}}}).runs["x"]
    assert [proof.path for proof in freeze(one, PATHS, NOW).inputs] == ["python:json.decoder"]
    work["function"] = "no_such_module_anywhere:f"
    one = parse_config({"runs": {"x": {"work": work}}}).runs["x"]
    assert freeze(one, PATHS, NOW).inputs == ()


def test_the_published_copy_has_the_same_bytes_and_a_repeat_changes_none() -> None:
    frozen()
    first = PATHS.frozen_contract.read_bytes()
    assert PATHS.contract.read_bytes() == first
    PATHS.contract.unlink()
    freeze(spec(), PATHS, LATER)
    assert PATHS.frozen_contract.read_bytes() == PATHS.contract.read_bytes() == first
    launch()
    freeze(spec(), PATHS, LATER)
    assert PATHS.frozen_contract.read_bytes() == first
    assert not PATHS.amendments.exists()


def test_versions_and_the_table_are_recorded() -> None:
    contract = frozen(software=["pytest", "A program that is no package"])
    assert set(contract.versions) == {"python", "milepost", "pytest"}
    assert contract.table == {
        "path": "config/t.csv",
        "rows": 2,
        "digest": digest_file("config/t.csv"),
    }
    assert contract.created == "2026-03-01T12:00:00.000Z"


def test_a_contract_follows_its_schema() -> None:
    from jsonschema import Draft202012Validator

    schema = load_yaml("schemas", "contract.schema.yaml")
    Draft202012Validator(schema).validate(frozen(software=["pytest"]).data)


def test_before_the_launch_a_change_freezes_anew() -> None:
    before = frozen()
    after = freeze(spec(work={"command": "run {a}"}), PATHS, LATER)
    assert after.digest != before.digest
    assert after.created == "2026-03-02T12:00:00.000Z"
    assert not PATHS.amendments.exists()


MATTERS: list[tuple[dict[str, Any], str]] = [
    ({"work": {"command": "run {b}"}}, "work.command"),
    ({"work": {"environment": {"N": 2}}}, "work.environment.N"),
    ({"work": {"environment": {"N": 1.0}}}, "work.environment.N"),
    ({"work": {"result": {"file": "r.json", "best": {"metric": "m"}}}}, "work.result.best.metric"),
    ({"work": {"inputs": ["data/1.txt"]}}, "work.inputs"),
    ({"artifacts": [{"path": "r.json"}]}, "artifacts"),
    ({"control": {"rtol": 1e-3}}, "control.rtol"),
    ({"resume": "fresh"}, "resume"),
    ({"resources": {"gpus": 1}, "resource_class": "single-gpu"}, "resources.gpus"),
    ({"checkpoint": {"encrypt": {"key_env": "K"}}}, "checkpoint.encrypt"),
]


def test_of_long_values_the_part_that_differs_is_shown() -> None:
    long = "python code/score.py " + " ".join(f"--option-{n} {n}" for n in range(30))
    shown = str(Change("work.command", f"{long} --out {{out}}", f"{long} --fast --out {{out}}"))
    old, new = shown.split(" -> ")
    assert old.endswith(' --out {out}"')
    assert " --fast --out {out}" in new
    assert len(shown) < 200


@pytest.mark.parametrize(("keys", "field"), MATTERS, ids=map(str, MATTERS))
def test_after_the_launch_a_change_that_matters_is_refused(
    keys: dict[str, Any], field: str
) -> None:
    frozen()
    launch()
    before = PATHS.frozen_contract.read_bytes()
    with pytest.raises(Refused) as caught:
        freeze(spec(**keys), PATHS, LATER)
    assert field in caught.value.what
    assert " -> " in caught.value.what
    assert "take the change back" in str(caught.value)
    assert "new name" in str(caught.value)
    assert caught.value.exit_code == 20
    assert PATHS.frozen_contract.read_bytes() == before
    assert not PATHS.amendments.exists()


def test_all_refused_fields_are_listed_with_old_and_new_value() -> None:
    frozen()
    launch()
    with pytest.raises(Refused) as caught:
        freeze(spec(resume="fresh", work={"environment": {"N": 2}}), PATHS, LATER)
    assert 'resume: "rerun-failed-shards" -> "fresh"' in caught.value.what
    assert "work.environment.N: 1 -> 2" in caught.value.what


def test_a_changed_a_new_and_a_missing_input_are_refused() -> None:
    frozen()
    launch()
    Path("code/score.py").write_text("print(3)\n")
    Path("data/3.txt").write_text("three")
    Path("data/model.bin").unlink()
    with pytest.raises(Refused) as caught:
        freeze(spec(), PATHS, LATER)
    for text in ("input code/score.py", "input data/3.txt: null", "input data/model.bin"):
        assert text in caught.value.what


def test_a_changed_adapter_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    frozen()
    launch()
    monkeypatch.setattr("milepost.config.freeze.adapter_digest", lambda name: "blake3:0")
    with pytest.raises(Refused, match="adapter_digest"):
        freeze(spec(), PATHS, LATER)


def test_processors_matter_where_one_process_uses_them() -> None:
    frozen()
    launch()
    assert freeze(spec(resources={"cpus": 4}), PATHS, LATER).spec.resources.cpus == 4
    run = {"work": {"kind": "resumable", "members": "config/t.csv", "command": "run {a}"}}
    paths = RunPaths("y")
    one = parse_config({"runs": {"y": run}}).runs["y"]
    write_json(paths.frozen_submission, {"contract_digest": freeze(one, paths, NOW).digest})
    other = parse_config({"runs": {"y": {**run, "resources": {"cpus": 2}}}}).runs["y"]
    with pytest.raises(Refused, match=r"resources\.cpus: 1 -> 2"):
        freeze(other, paths, LATER)


ALLOWED: list[tuple[dict[str, Any], str]] = [
    ({"purpose": "p"}, "purpose"),
    ({"retry": {"limit": 5}}, "retry.limit"),
    ({"stop": "time-limit"}, "stop"),
    ({"software": ["pytest"]}, "software"),
    ({"planner": {"budget": 3}}, "planner.budget"),
    ({"shards": {"count": 3}}, "shards.count"),
    ({"privacy": {"public_note": "notes.md"}}, "privacy.public_note"),
    ({"tiers": {"cold": "archive"}}, "tiers.cold"),
    ({"resources": {"mem_mb": 5, "runtime_s": 6}}, "resources.mem_mb"),
    ({"checkpoint": {"interval_seconds": 9, "allow": ["code"]}}, "checkpoint.interval_seconds"),
]


@pytest.mark.parametrize(("keys", "field"), ALLOWED, ids=[field for _, field in ALLOWED])
def test_any_other_change_is_accepted_and_written_down(keys: dict[str, Any], field: str) -> None:
    before = frozen()
    launch()
    after = freeze(spec(**keys), PATHS, LATER)
    assert after.spec == spec(**keys) == load_contract(PATHS).spec
    assert (after.digest, after.created) == (before.digest, before.created)
    records = {record["field"]: record for record in read_amendments(PATHS)}
    assert records[field]["when"] == "2026-03-02T12:00:00.000Z"
    assert records[field]["old"] != records[field]["new"]


def test_rows_of_the_table_may_change_and_that_is_written_down() -> None:
    frozen()
    launch()
    Path("config/t.csv").write_text("b,a\n6,5\n2,1\n4,3\n")
    assert freeze(spec(), PATHS, LATER).table["rows"] == 3
    fields = [record["field"] for record in read_amendments(PATHS)]
    assert fields == ["table.digest", "table.rows"]


def test_amendments_are_kept_and_not_repeated() -> None:
    frozen()
    launch()
    for purpose in ("one", "one", "two", "one"):
        freeze(spec(purpose=purpose), PATHS, LATER)
    values = [(record["old"], record["new"]) for record in read_amendments(PATHS)]
    assert values == [("", "one"), ("one", "two"), ("two", "one")]


def test_a_crash_between_amendment_and_contract_repeats_no_line() -> None:
    frozen()
    launch()
    before = PATHS.frozen_contract.read_bytes()
    freeze(spec(purpose="one"), PATHS, LATER)
    PATHS.frozen_contract.write_bytes(before)
    freeze(spec(purpose="one"), PATHS, LATER)
    assert len(read_amendments(PATHS)) == 1
    assert load_contract(PATHS).spec.purpose == "one"


def test_an_amendment_cut_by_a_crash_spoils_none_that_follow() -> None:
    frozen()
    launch()
    PATHS.amendments.write_text('{"when": "2026", "field": "purp')
    freeze(spec(purpose="one"), PATHS, LATER)
    (record,) = read_amendments(PATHS)
    assert record["new"] == "one"


def test_without_the_frozen_copy_the_submission_still_decides() -> None:
    frozen()
    launch()
    PATHS.frozen_contract.unlink()
    with pytest.raises(Refused, match="digest"):
        freeze(spec(resume="fresh"), PATHS, LATER)
    assert freeze(spec(), PATHS, LATER).digest == load_contract(PATHS).digest


def test_a_missing_damaged_or_newer_contract_is_named() -> None:
    with pytest.raises(DataError, match="there is no contract"):
        load_contract(PATHS)
    frozen()
    data = read_json(PATHS.frozen_contract)
    for change, says in (
        ({"schema": 2}, "version 2"),
        ({"frozen": {**data["frozen"], "resume": "fresh"}}, "changed by hand"),
        ({"inputs": []}, "changed by hand"),
        ({"frozen": None, "inputs": None}, "damaged"),
    ):
        write_json(PATHS.frozen_contract, {**data, **change})
        with pytest.raises(DataError, match=says):
            load_contract(PATHS)


def test_an_input_pattern_that_matches_nothing_any_more_is_an_error() -> None:
    one = spec()
    for name in ("1", "2"):
        Path(f"data/{name}.txt").unlink()
    with pytest.raises(ConfigError, match="matches no file"):
        freeze(one, PATHS, NOW)


# the command line


def invoke(*words: str) -> Any:
    return CliRunner().invoke(cli.command, list(words))


def write_config(**keys: Any) -> None:
    Path("config/config.yaml").write_text(json.dumps({"runs": {"x": merge(BASE, keys)}}))


def test_the_verb_freezes_and_prints_the_contract() -> None:
    write_config()
    done = invoke("x", "--json")
    assert done.exit_code == 0
    assert json.loads(done.stdout) == read_json(PATHS.contract)
    assert load_contract(PATHS).digest in invoke("x").stdout


def test_overrides_and_further_files_are_laid_on_top() -> None:
    write_config()
    Path("more.yaml").write_text("runs: {x: {purpose: more, stop: convergence}}")
    words = ("--config", "config/config.yaml", "--config", "more.yaml")
    invoke("x", *words, "--override", '{"runs": {"x": {"purpose": "most"}}}')
    frozen_spec = load_contract(PATHS).spec
    assert (frozen_spec.purpose, frozen_spec.stop) == ("most", "convergence")


def test_a_check_validates_tables_too_and_writes_nothing() -> None:
    write_config()
    assert invoke("--check").stdout == "x: valid, 2 rows\n"
    assert json.loads(invoke("x", "--check", "--json").stdout) == {"valid": True, "rows": {"x": 2}}
    assert not PATHS.work.exists()
    assert not PATHS.results.exists()
    Path("config/t.csv").write_text("a,b\n1,2\n1,2\n")
    assert isinstance(invoke("--check").exception, ConfigError)


def test_mistakes_on_the_command_line_are_named() -> None:
    write_config()
    assert "did you mean" not in str(invoke("other").exception)
    assert "there is no run 'other'" in str(invoke("other").exception)
    assert "not JSON" in str(invoke("x", "--override", "{").exception)
    assert "not an object" in str(invoke("x", "--override", "[]").exception)
    assert invoke().exit_code == 2
