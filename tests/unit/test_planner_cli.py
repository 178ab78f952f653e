"""`milepost plan` on the files of a run."""

from __future__ import annotations

import json
import socket
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil
import pytest
from click.testing import CliRunner, Result

from milepost.cli.plan import command
from milepost.config.freeze import freeze
from milepost.config.load import parse_config
from milepost.durable import read_json, write_json
from milepost.errors import ConfigError, Refused
from milepost.lease import boot_id
from milepost.paths import RunPaths

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:pulp")


@pytest.fixture
def paths(tmp_path: Path) -> RunPaths:
    """A run of 40 rows with a contract and a smoke test that passed."""
    return prepare(tmp_path)


def prepare(root: Path, **planner: Any) -> RunPaths:
    paths = RunPaths("sweep", root)
    table = root / "config" / "tasks.csv"
    table.parent.mkdir(parents=True)
    table.write_text("C,work\n" + "".join(f"{i},{2 + 4 * (i >= 20)}\n" for i in range(40)))
    (root / "fit.py").write_text("print(1)\n")
    block = {
        "work": {"kind": "batch", "tasks": "config/tasks.csv", "command": "python fit.py {C}"},
        "resources": {"cpus": 2, "runtime_s": 3600},
        "shards": {"target_s": 30},
        "planner": planner,
    }
    config = parse_config({"runs": {"sweep": block}}, root=root)
    contract = freeze(config.runs["sweep"], paths, datetime(2026, 3, 1, tzinfo=UTC))
    measured = {"task_s": {"median": 2.0, "p95": 2.5, "n": 4}, "startup_s": 1.0, "t_ckpt_s": None}
    write_json(
        paths.smoke,
        {
            "schema": 1,
            "contract_digest": contract.digest,
            "passed": True,
            "reason": "",
            "slice": {"tasks": 4, "set": {}},
            "measured": measured,
        },
    )
    return paths


def plan(paths: RunPaths, *options: str) -> Result:
    arguments = ["sweep", "--root", str(paths.root), *options]
    return CliRunner().invoke(command, arguments, catch_exceptions=True)


def test_plan_and_report_are_written_and_summarised(paths: RunPaths) -> None:
    done = plan(paths)
    assert done.exit_code == 0, done.exception
    lines = done.output.splitlines()
    assert len(lines) == 10 and max(map(len, lines)) <= 80
    written = read_json(paths.plan)
    assert (written["tasks_per_shard"], written["shard_count"]) == (20, 2)
    assert written["contract_digest"] == read_json(paths.contract)["digest"]
    assert "Plan of sweep" in paths.plan_report.read_text()


def test_same_inputs_same_bytes(paths: RunPaths) -> None:
    plan(paths)
    first = paths.plan.read_bytes(), paths.plan_report.read_bytes()
    plan(paths)
    assert (paths.plan.read_bytes(), paths.plan_report.read_bytes()) == first


def test_json_is_the_plan(paths: RunPaths) -> None:
    assert json.loads(plan(paths, "--json").output) == read_json(paths.plan)


@pytest.mark.parametrize(
    "words",
    [
        ("--what-if", "tasks_per_shard=5", "--what-if", "mtbf_h=6"),
        ("--what-if", "tasks_per_shard=5", "mtbf_h=6"),
    ],
)
def test_what_if_prints_both_plans_and_writes_nothing(
    paths: RunPaths, words: tuple[str, ...]
) -> None:
    done = plan(paths, *words, "--json")
    assert done.exit_code == 0, done.exception
    found = json.loads(done.output)
    assert found["changes"] == ["tasks_per_shard=5", "mtbf_h=6"]
    assert found["after"]["shard_count"] == 8
    assert found["after"]["overhead"]["mtbf_s"] == 6 * 3600
    assert not paths.plan.exists() and not paths.plan_report.exists()
    plan(paths)
    assert found["before"] == read_json(paths.plan)


def test_what_if_in_the_terminal(paths: RunPaths) -> None:
    done = plan(paths, "--what-if", "tasks_per_shard=5", "mtbf_h=6")
    lines = done.output.splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[0] == "sweep, if tasks_per_shard=5, mtbf_h=6"
    at = lines[1].index("then")
    assert lines[1].split() == ["now", "then"]
    rows = {line[:9].strip(): (line[10:at], line[at:]) for line in lines[2:] if line[:1] != " "}
    assert rows["shards"][0].startswith("2 of up to 20 tasks")
    assert rows["shards"][1].startswith("8 of up to 5 tasks")
    assert rows["mtbf"][0].startswith("24 h, default") and rows["mtbf"][1].startswith("6 h, stated")
    assert "  mtbf_s: 86400 s -> 21600 s" in lines
    for name in ("walltime", "interval", "overhead", "machine", "cost"):
        assert name in rows


def test_what_if_says_why_there_is_no_plan_now(tmp_path: Path) -> None:
    profiles = {"a": {"modes": {"on-demand": {"price_per_h": 3600.0, "nodes_max": 1}}}}
    (tmp_path / "profiles.yaml").write_text(json.dumps({"schema": 1, "profiles": profiles}))
    paths = prepare(tmp_path, profiles="profiles.yaml", budget=1.0)
    assert isinstance(plan(paths).exception, Refused)
    done = plan(paths, "--what-if", "budget=1000")
    assert done.exit_code == 0, done.exception
    assert "now       refused: no profile and mode can meet budget 1" in done.output
    assert max(map(len, done.output.splitlines())) <= 80


def test_the_only_run_needs_no_name(paths: RunPaths) -> None:
    def nameless(*words: str) -> Result:
        return CliRunner().invoke(command, [*words, "--root", str(paths.root)])

    done = nameless("--what-if", "t_ckpt_s=5", "mtbf_h=6")
    assert done.exit_code == 0 and done.output.startswith("sweep, if t_ckpt_s=5, mtbf_h=6")
    other = RunPaths("other", paths.root)
    write_json(other.smoke, {})
    assert nameless().exit_code == 2 and "name a RUN (other, sweep)" in nameless().output
    assert nameless("sweep", "other").exit_code == 2


def test_terms_of_profiles_may_be_changed(tmp_path: Path) -> None:
    modes = {"interruptible": {"price_per_h": 1.0, "preempt_mtbf_h": 9.0, "notice_s": 30}}
    profiles = {"schema": 1, "utilisation": 0.5, "profiles": {"a": {"modes": modes}}}
    (tmp_path / "profiles.yaml").write_text(json.dumps(profiles))
    paths = prepare(tmp_path, profiles="profiles.yaml")
    words = ("utilisation=1", "preempt_mtbf_h=2", "notice_s=120", "storage_price=0")
    found = json.loads(plan(paths, "--what-if", *words, "--json").output)
    rows = {row["name"]: row["value"] for row in found["after"]["assumptions"]}
    assert (rows["utilisation"], rows["notice_s"]) == (1.0, 120.0)
    assert rows["preemption_mtbf_s"] == 7200.0
    ratio = found["before"]["cost"]["compute"] / found["after"]["cost"]["compute"]
    assert ratio == pytest.approx(2.0, rel=1e-4)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ("mtfb_h=3", "did you mean mtbf_h"),
        ("storage_gb=5", "belongs to profiles"),
        ("=6", "KEY=VALUE"),
        ("mtbf_h=soon", "soon"),
        ("mtbf_h=-1", "-1"),
        ("count=2.5", "whole number"),
        ("mode=spot", "on-demand"),
    ],
)
def test_a_wrong_change_is_named(paths: RunPaths, change: str, named: str) -> None:
    done = plan(paths, "--what-if", change)
    assert isinstance(done.exception, ConfigError)
    assert named in str(done.exception)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"passed": False, "reason": "metric differs"}, "metric differs"),
        ({"contract_digest": "sha256:00"}, "sha256:00"),
    ],
)
def test_the_gate_refuses(paths: RunPaths, changes: dict[str, Any], named: str) -> None:
    write_json(paths.smoke, read_json(paths.smoke) | changes)
    done = plan(paths)
    assert isinstance(done.exception, Refused)
    assert done.exception.exit_code == 20
    assert named in str(done.exception)
    assert not paths.plan.exists()


def test_no_smoke_test_is_refused(paths: RunPaths) -> None:
    paths.smoke.unlink()
    assert isinstance(plan(paths).exception, Refused)


def test_attempts_of_the_run_are_read_and_a_live_one_is_no_failure(paths: RunPaths) -> None:
    live = paths.shard("0001")
    me = psutil.Process()
    holder = {"host": socket.gethostname(), "pid": me.pid, "process_start": me.create_time()}
    holder |= {"boot_id": boot_id(), "token": "t", "slurm_job_id": None, "attempt": 2}
    began = {"stop": None, "ended": None, "finding": None}
    killed = {"started": "2026-01-01T00:00:00Z", "last_sign": "2026-01-01T02:00:00Z"}
    write_json(live.attempt(1), {"attempt": 1, **began, **killed})
    at_work = {"started": "2026-01-01T02:00:00Z"}
    write_json(live.attempt(2), holder | began | at_work)
    write_json(live.attempts / "2.restored.json", {"lost_s": 1.0})  # no attempt, lies beside it
    write_json(live.lease, holder | {"heartbeat": "2026-01-01T03:00:00Z"})
    found = json.loads(plan(paths, "--json").output)
    source = next(row["source"] for row in found["assumptions"] if row["name"] == "mtbf_s")
    assert source == "1 failure in 3 node h of the run's attempts"


def test_a_profile_file_that_vanished_is_named(tmp_path: Path) -> None:
    profiles = tmp_path / "profiles.yaml"
    profiles.write_text("schema: 1\n")
    paths = prepare(tmp_path, profiles="profiles.yaml")
    assert plan(paths).exit_code == 0
    profiles.write_text("a: [")
    assert "is not YAML" in str(plan(paths).exception)
    profiles.unlink()
    done = plan(paths)
    assert isinstance(done.exception, ConfigError)
    assert "profiles.yaml" in str(done.exception)


def test_a_column_tells_the_work_of_each_row(tmp_path: Path) -> None:
    """The slice has two rows of 2 and two of 6: a row of 4 takes the 2 s that were measured."""
    paths = prepare(tmp_path, size="work")
    found = json.loads(plan(paths, "--json").output)
    assert found["size_unit"] == 4.0
    per_shard = found["tasks_per_shard"]
    sizes = [(2.0 if row < 20 else 6.0) / 4.0 for row in range(40)]
    shards = [sum(sizes[at : at + per_shard]) for at in range(0, 40, per_shard)]
    assert [one["size"] for one in found["classes"]] == sorted(set(shards))
    assert sum(one["shards"] for one in found["classes"]) == found["shard_count"]
    assert found["overhead"]["useful_s"] == pytest.approx(40 * 2.0 / 2)  # two at a time
    table = paths.root / "config" / "tasks.csv"
    table.write_text(table.read_text().replace("39,6", "39,none"))
    assert "'none' in line 41" in str(plan(paths).exception)


def test_a_column_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="'wrok' is no column of the table; did you mean work"):
        prepare(tmp_path, size="wrok")
