"""Each illness is made for real and diagnosed; a healthy run gets none."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from helpers.disks import SmallDisks, disks
from helpers.packages import have
from helpers.project import Project, ok, said, wait_for_reader

__all__ = ["disks"]  # the fixture

pytestmark = pytest.mark.chaos

SOLVER = """\
import json, os, pathlib, sys, time
import numpy as np
from milepost import Checkpointer

out, steps, how = pathlib.Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
rng = np.random.default_rng(7 if how != "forgets" else None)
x, first = np.zeros(1000), 0
with Checkpointer.from_env() as ck:
    saved = ck.restore()
    if saved is not None:
        x, first = saved.arrays["x"], saved.step + 1
        if how != "forgets":
            rng.bit_generator.state = saved.meta["rng"]
    for step in range(first, steps):
        x += rng.random(1000)
        meta = {} if how == "forgets" else {"rng": rng.bit_generator.state}
        if step % 50 == 0 and not (how == "hangs" and step):
            ck.save(step, {"x": x}, meta)
        ck.step(step, lambda: ({"x": x}, meta))
        if how == "hangs" and step == 120 and first == 0:
            end = time.monotonic() + 2.5
            while time.monotonic() < end:  # works on, without calling step
                print("still at it", flush=True)
                time.sleep(0.05)
            open("held/now").read()
        if ck.stopping:
            sys.exit(75)
(out / "sum.json").write_text(json.dumps({"sum": float(x.sum())}))
"""
RANKS = """\
import os, sys
import numpy as np
from milepost import Checkpointer

rank = int(os.environ["OMPI_COMM_WORLD_RANK"])
with Checkpointer.from_env() as ck:
    ck.restore()
    for step in range(3):
        if rank == 1 and step == 1:
            os._exit(0)  # gone, as if its node were
        ck.save(step, {"x": np.zeros(100)}, {})
"""
MPIRUN = (
    "mpirun --allow-run-as-root --oversubscribe --mca plm isolated --mca ras ^slurm "
    "--enable-recovery --continuous -np 2 python ranks.py"
)


def run_of(root: Path, how: str = "calm", **keys: Any) -> Project:
    project = Project(root)
    project.write("solver.py", SOLVER)
    project.table("md", [{"steps": 301, "how": how}])
    block: dict[str, Any] = {
        "purpose": "Does the sum stay the same?",
        "work": {
            "kind": "resumable",
            "members": "config/md.csv",
            "command": "python solver.py {out} {steps} {how}",
        },
        "artifacts": [{"path": "sum.json", "check": "json"}],
        "control": {"file": "sum.json", "metric": "sum"},
        "resources": {"cpus": 1, "mem_mb": 200, "gpus": 0, "runtime_s": 600},
        "checkpoint": {"interval_seconds": 60},
        "smoke": {"tasks": 1},
        "retry": {"limit": 0},
    }
    project.run("md", **{**block, **keys})
    return project


def shard(project: Project, *words: str, env: dict[str, str] | None = None) -> Any:
    environ = project.environment() | (env or {})
    return subprocess.run(
        ["milepost", "shard", "md", "0001", *words],
        cwd=project.root,
        env=environ,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def diagnosed(project: Project) -> dict[str, Any]:
    """What the doctor says, and that its exit code and its page agree."""
    done = project.milepost("doctor", "md", "--json")
    report: dict[str, Any] = json.loads(done.stdout)
    assert done.returncode == (21 if report["diagnoses"] else 0), said(done)
    page = project.milepost("doctor", "md").stdout
    assert max(len(line) for line in page.splitlines() if "/" not in line) <= 80
    for one in report["diagnoses"]:
        assert one["symptom"] in page and one["evidence"] and one["commands"]
        assert "{" not in " ".join(one["commands"])
    return report


def only(project: Project) -> dict[str, Any]:
    report = diagnosed(project)
    assert len(report["diagnoses"]) == 1, report["diagnoses"]
    one: dict[str, Any] = report["diagnoses"][0]
    return one


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """Tested, planned, killed once, resumed and finished."""
    project = run_of(tmp_path_factory.mktemp("healthy"))
    project.prepare("md")
    assert shard(project, "--drill").returncode == -signal.SIGKILL
    ok(shard(project))
    return project


def test_a_healthy_run_gets_none_and_is_told_what_was_looked_at(healthy: Project) -> None:
    report = diagnosed(healthy)
    assert report["diagnoses"] == [] and report["healthy"] is True
    looked = report["looked_at"]
    assert "read and digested" in looked["corrupt_checkpoint"]
    assert "1 shard started more than once, 1 restore" in looked["resume_fails"]
    assert "one process in all manifests" in looked["ranks_apart"]
    assert "in the smoke test" in looked["slow_write"]
    assert looked["other_results"].startswith("sum of the smoke test")
    assert "nothing found of" in healthy.milepost("doctor", "md").stdout


def flip(path: Path, at: int = 4096) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def test_a_flipped_bit(tmp_path: Path, healthy: Project) -> None:
    project = healthy.copy_to(tmp_path / "copy")
    folder = project.root / "work/scratch/md/0001/ckpt"
    names = sorted(p.name for p in folder.glob("0*-a*"))
    assert len(names) >= 2
    flip(folder / max(names, key=lambda n: (n[-1], n)) / "rank_0.bin")
    one = only(project)
    assert (one["ailment"], one["cause"], one["shard"]) == ("corrupt_checkpoint", "damaged", "0001")
    assert "rank_0.bin" in one["evidence"][0] and "scratch" in one["evidence"][0]
    assert one["evidence"][-1].startswith("newest intact one: ")
    assert one["commands"][0].startswith("milepost ckpt verify ")
    assert project.milepost("doctor", "md", "--quick").returncode == 0, "sizes are as they were"


def test_no_generation_is_intact(tmp_path: Path, healthy: Project) -> None:
    project = healthy.copy_to(tmp_path / "copy")
    for tier in ("work/scratch", "results/warm"):
        for path in (project.root / tier / "md/0001/ckpt").glob("0*/ckpt.manifest.json"):
            path.write_text(path.read_text().replace('"step"', '"stop"'))
    causes = {(d["ailment"], d["cause"]) for d in diagnosed(project)["diagnoses"]}
    assert causes == {("corrupt_checkpoint", "no_intact_one")}


def test_somebody_else_wrote_into_the_folder(tmp_path: Path, healthy: Project) -> None:
    project = healthy.copy_to(tmp_path / "copy")
    log = project.root / "work/scratch/md/0001/ckpt/audit.jsonl"
    log.write_text(log.read_text().replace('"created"', '"found"', 1))
    one = only(project)
    assert one["cause"] == "log_broken"
    assert one["commands"] == ["milepost ckpt audit work/scratch/md/0001/ckpt"]


def test_a_small_disk_is_full(tmp_path: Path, disks: SmallDisks) -> None:
    project = run_of(tmp_path / "project")
    project.tiers = {"scratch": str(disks.mount(tmp_path / "disk", 40)), "warm": "warm"}
    project.run("md", checkpoint={"interval_seconds": 60, "uploader": {"enable": False}})
    project.launch("md")
    failed = shard(project)
    assert failed.returncode == 13, said(failed)
    report = diagnosed(project)
    one = next(d for d in report["diagnoses"] if d["ailment"] == "scratch_full")
    assert one["cause"] in ("full_now", "was_full")
    text = " ".join(one["evidence"])
    assert "no_space_left" in text or "scratch" in text
    disks.remount(tmp_path / "disk", "size=4m")
    one = next(d for d in diagnosed(project)["diagnoses"] if d["ailment"] == "scratch_full")
    assert one["cause"] == "was_full" and one["shard"] == "0001"
    ok(shard(project))
    assert diagnosed(project)["diagnoses"] == []


def test_a_disk_that_is_nearly_full_now(
    tmp_path: Path, healthy: Project, disks: SmallDisks
) -> None:
    project = healthy.copy_to(tmp_path / "copy")
    warm = project.root / "results/warm2"
    contract = project.paths("md").frozen_contract
    data = json.loads(contract.read_text())
    data["accepted"]["tiers"]["warm"] = str(disks.mount(warm, 100))
    contract.write_text(json.dumps(data))
    assert diagnosed(project)["diagnoses"] == []
    (warm / "rest").write_bytes(b"x" * (88 << 10))
    one = only(project)
    assert (one["ailment"], one["cause"]) == ("scratch_full", "full_now")
    assert one["evidence"] == [f"warm {warm}: 88% used"]


def test_a_rank_is_missing(tmp_path: Path) -> None:
    have("mpirun", "openmpi-bin")
    project = run_of(tmp_path)
    project.write("ranks.py", RANKS)
    work = project.runs["md"]["work"] | {"command": MPIRUN}
    project.run("md", work=work, checkpoint={"interval_seconds": 60, "rank_timeout_s": 2})
    project.launch("md")
    failed = shard(project)
    assert failed.returncode not in (0, 75), said(failed)
    one = only(project)
    assert (one["ailment"], one["cause"]) == ("ranks_apart", "missing_rank")
    assert "rank 1" in " ".join(one["evidence"])


def test_a_tier_that_is_slower_than_what_is_saved(tmp_path: Path) -> None:
    project = run_of(tmp_path)
    slow = {"interval_seconds": 60, "uploader": {"enable": True, "max_bandwidth_mb_s": 0.02}}
    project.run("md", checkpoint=slow)
    project.launch("md")
    ok(shard(project))
    one = only(project)
    assert (one["ailment"], one["cause"]) == ("slow_write", "slow_tier")
    assert "overtaken by newer ones" in one["evidence"][0]
    assert one["evidence"][-1] == "checkpoint.uploader.max_bandwidth_mb_s is 0.02"


def test_another_container(tmp_path: Path) -> None:
    project = run_of(tmp_path)
    project.launch("md")
    first, second = ({"MILEPOST_CONTAINER": f"sha256:{c * 64}"} for c in "ab")
    assert shard(project, "--drill", env=first).returncode == -signal.SIGKILL
    refused = shard(project, env=second)
    assert refused.returncode != 0
    one = only(project)
    assert (one["ailment"], one["cause"]) == ("resume_fails", "not_legal")
    assert "sha256:aaaa" in one["evidence"][0] and "sha256:bbbb" in one["evidence"][0]
    ok(shard(project, env=first))
    assert diagnosed(project)["diagnoses"] == []


def test_a_control_metric_that_differs(tmp_path: Path) -> None:
    project = run_of(tmp_path, how="forgets")
    ok(project.milepost("contract", "md"))
    assert project.milepost("smoke", "md").returncode != 0
    one = only(project)
    assert (one["ailment"], one["cause"]) == ("other_results", "generator_not_saved")
    assert one["evidence"][0].startswith("sum: undisturbed ")
    assert "no generator's state" in one["evidence"][1] and one["shard"] is None


@pytest.fixture
def hanging(tmp_path: Path) -> Iterator[Project]:
    project = run_of(tmp_path, how="hangs", checkpoint={"interval_seconds": 0.2})
    project.launch("md")
    yield project


def test_a_program_that_seldom_saves_loses_much(hanging: Project) -> None:
    fifo = hanging.hold("now")  # type: ignore[arg-type]
    process = hanging.start("shard", "md", "0001", stderr=subprocess.DEVNULL)
    gate = wait_for_reader(fifo)  # it has worked on for 2.5 s without saving
    os.killpg(process.pid, signal.SIGKILL)
    process.wait(timeout=30)
    os.close(gate)
    ok(shard(hanging))
    one = only(hanging)
    assert (one["ailment"], one["cause"]) == ("high_loss", "too_seldom")
    assert "attempt 1 lost" in one["evidence"][0] and "interval is 0.2 s" in one["evidence"][0]


def test_the_solver_fails_again_and_again(tmp_path: Path) -> None:
    project = run_of(tmp_path)
    project.launch("md")
    assert shard(project, "--drill").returncode == -signal.SIGKILL
    solver = SOLVER.replace("saved = ck.restore()", "saved = ck.restore(); 1 / 0")
    project.write("solver.py", solver)
    assert shard(project).returncode != 0
    assert shard(project).returncode != 0
    one = only(project)
    assert (one["ailment"], one["cause"]) == ("resume_fails", "ends_badly")
    assert [e.partition(":")[0] for e in one["evidence"][:2]] == ["attempt 2", "attempt 3"]
    assert one["evidence"][1].endswith("no new generation") and "exit 11" in one["evidence"][1]
    assert one["evidence"][2].endswith("in quarantine after 2 restores")
