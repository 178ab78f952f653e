"""A plan with two places: the shards of each ask for what is theirs, and the closeout knows."""

from __future__ import annotations

import copy
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from helpers.project import REPOSITORY, Project, ok, said

PROFILES: dict[str, Any] = {
    "schema": 1,
    "currency": "EUR",
    "profiles": {
        "a": {
            "modes": {
                "on-demand": {
                    "price_per_h": 1.0,
                    "nodes_max": 1,
                    "slurm": {"partition": "steady", "qos": "high"},
                }
            }
        },
        "b": {
            "modes": {
                "interruptible": {
                    "price_per_h": 0.25,
                    "nodes_max": 1,
                    "preempt_mtbf_h": 10,
                    "notice_s": 60,
                    "slurm": {"partition": "spot", "reservation": "night"},
                }
            }
        },
    },
}
SHARDS = ["0001", "0002", "0003", "0004"]
REFUSING = "#!/bin/sh\nprintf '%s\\n' \"$*\" >> asked.txt\ncat > /dev/null\nexit 1\n"
QUICK = ("--slurm-init-seconds-before-status-checks", "1")
SILENT = "#!/bin/sh\nexit 0\n"


@pytest.fixture(scope="module")
def launched(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """Four shards, submitted: one node of each profile, and money for the soonest end."""
    project = Project(tmp_path_factory.mktemp("placed"))
    project.write("config/profiles.yaml", yaml.safe_dump(PROFILES))
    planner = {"budget": 1000.0, "profiles": "config/profiles.yaml"}
    project.batch("sq", [1, 2, 3, 4], planner=planner, shards={"tasks_per_shard": 1})
    project.prepare("sq")
    return project


def places(project: Project, run: str = "sq") -> dict[str, tuple[str, str]]:
    rows = project.csv(f"results/{run}/shards.csv")
    return {row["shard"]: (row["profile"], row["mode"]) for row in rows}


def test_each_shard_asks_sbatch_for_its_own_place(
    launched: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = launched.copy_to(tmp_path)
    for name in ("sbatch", "squeue", "sacct", "scontrol", "sinfo", "sacctmgr"):
        project.write(f"bin/{name}", REFUSING if name == "sbatch" else SILENT).chmod(0o755)
    seen = project.environment()
    seen["PATH"] = f"{project.root / 'bin'}:{seen['PATH']}"
    monkeypatch.setattr(project, "environment", lambda: seen)
    markers = [f"results/sq/shards/{shard}/journal.csv" for shard in SHARDS]
    done = project.snakemake("--executor", "slurm", "--jobs", "4", "-k", *QUICK, *markers, cores=0)
    assert done.returncode != 0  # this sbatch takes none
    lines = (project.root / "asked.txt").read_text().splitlines()
    asked = {}
    for line in lines:
        words = shlex.split(line.partition(" --wrap")[0])
        shard = words[words.index("--comment") + 1].rpartition("_")[2]
        partition, minutes = words[words.index("-p") + 1], words[words.index("-t") + 1]
        options = {word for word in words if word.startswith(("--qos", "--reservation"))}
        asked[shard] = (partition, int(minutes), options)
    planned = {
        one["profile"]: one["walltime_s"]
        for one in project.json("results/sq/plan/plan.json")["placement"]
    }
    assert set(asked) == set(SHARDS), said(done)
    for shard, (profile, _) in places(project).items():
        named = ("steady", {"--qos=high"}) if profile == "a" else ("spot", {"--reservation=night"})
        assert asked[shard] == (named[0], planned[profile] // 60, named[1])
        assert planned[profile] < project.runs["sq"]["resources"]["runtime_s"]


def test_it_runs_to_its_end_under_the_local_profile_and_the_closeout_knows(
    launched: Project,
) -> None:
    done = ok(launched.snakemake("--profile", str(REPOSITORY / "profiles" / "local"), cores=0))
    assert launched.executions("sq") == launched.squares("sq", [1, 2, 3, 4]), said(done)
    found = places(launched)
    assert sorted(found.values()) == [("a", "on-demand")] * 2 + [("b", "interruptible")] * 2
    assert launched.json("results/sq/plan/plan.json")["choice"]["solver"] == "HiGHS"
    record = launched.json("results/sq/closeout/record.json")
    assert record["closed"]
    accounts = {one["shard"]: one for one in record["shard_accounts"]}
    assert {n: (one["profile"], one["mode"]) for n, one in accounts.items()} == found
    for shard, (profile, _) in found.items():
        price = 1.0 if profile == "a" else 0.25
        observed = accounts[shard]["observed"]
        assert observed["cost"] == pytest.approx(observed["core_h"] * price)
    page = (launched.root / "results/sq/closeout/report.html").read_text()
    assert "2 on a, on-demand; 2 on b, interruptible" in page
    total = sum(one["observed"]["cost"] for one in accounts.values())
    assert record["account"]["cost"] == pytest.approx(total)


SOLVER = """\
import json, os, pathlib, sys

import numpy as np

from milepost import Checkpointer

settings = json.loads(os.environ["MILEPOST_CKPT"])
with Checkpointer.from_env() as ck:
    saved = ck.restore()
    for step in range(0 if saved is None else saved.step + 1, 4):
        ck.save(step, {"x": np.full(10, float(step))}, {})
        ck.wait()
        if ck.stopping:
            break
    else:
        ck.finish()
out = pathlib.Path(sys.argv[1])
told = {key: settings[key] for key in ("interval_s", "interval_most_s", "mtbf_s")}
(out / "told.json").write_text(json.dumps(told))
"""


def test_a_long_process_is_told_the_interval_of_its_place(tmp_path: Path) -> None:
    """Two members, one node of each profile, which differ in how often they fail."""
    project = Project(tmp_path)
    files = copy.deepcopy(PROFILES)
    files["profiles"]["a"]["modes"]["on-demand"]["mtbf_h"] = 500
    files["storage"] = {"price_per_gb_month": 0}
    project.write("config/profiles.yaml", yaml.safe_dump(files))
    project.write("solve.py", SOLVER)
    project.table("walk", [{"seed": 1}, {"seed": 2}])
    work = {"kind": "resumable", "members": "config/walk.csv"}
    project.run(
        "walk",
        work={**work, "command": "python solve.py {out}"},
        artifacts=[{"path": "told.json", "check": "json"}],
        resources={"cpus": 1, "mem_mb": 500, "runtime_s": 3600},
        smoke={"tasks": 1},
        planner={"budget": 1000.0, "profiles": "config/profiles.yaml", "history_days": None},
        checkpoint={"uploader": {"enable": False}},
    )
    project.prepare("walk")
    plan = project.json("results/walk/plan/plan.json")
    planned = {one["profile"]: one for one in plan["placement"]}
    assert {profile: one["shards"] for profile, one in planned.items()} == {"a": 1, "b": 1}
    for shard, (profile, mode) in places(project, "walk").items():
        ok(project.milepost("shard", "walk", shard))
        told = project.json(f"results/walk/artifacts/{shard}/told.json")
        assert told["interval_s"] == pytest.approx(planned[profile]["interval_s"])
        assert told["interval_most_s"] == (120.0 if mode == "interruptible" else None)
        assert told["mtbf_s"] == pytest.approx(planned[profile]["mtbf_s"], rel=0.01)
        attempt = project.json(f"work/walk/shards/{shard}/attempts/1.json")
        assert attempt["planned"]["interval_s"] == told["interval_s"]
    assert planned["a"]["mtbf_s"] > 10 * planned["b"]["mtbf_s"]
