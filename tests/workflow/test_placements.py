"""A plan with two places: the shards of each ask for what is theirs, and the closeout knows."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
import yaml

from helpers.project import REPOSITORY, Project, ok, said

PROFILES = {
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


def places(project: Project) -> dict[str, tuple[str, str]]:
    rows = project.csv("results/sq/shards.csv")
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
