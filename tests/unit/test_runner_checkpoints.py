"""What a run's configuration says of checkpoints changes what its process does, and can be seen."""

from __future__ import annotations

import json
import os
import subprocess
import textwrap
from pathlib import Path
from typing import Any

import pytest

from helpers.packages import have
from helpers.project import Project, ok, said
from milepost.checkpoint.checkpointer import Checkpointer
from milepost.checkpoint.crypt import WrongKey, key_id_of
from milepost.checkpoint.metrics import metric_names
from milepost.checkpoint.policies import optimal_interval_s
from milepost.clock import epoch
from milepost.durable import write_json
from milepost.journal import read_journal

WALK = textwrap.dedent(
    """
    import json, pathlib, sys
    import numpy as np
    from milepost import Checkpointer

    def peak_mb():
        words = pathlib.Path("/proc/self/status").read_text().split()
        return int(words[words.index("VmHWM:") + 1]) / 1000

    x = np.ones(12_000_000)
    with Checkpointer.from_env() as ck:
        ck.restore()
        before = peak_mb()
        step = 0
        while len(ck.commits) < 6:
            step += 1
            ck.step(step, lambda: ({"x": x}, {}))
        ck.finish()
    found = {"skipped": ck.saves_skipped, "waited": ck.saves_waited, "steps": step}
    found["copy_mb"] = peak_mb() - before
    pathlib.Path(sys.argv[1], "walk.json").write_text(json.dumps(found))
    """
)
BASE = {"interval_seconds": 0.001, "rotation": 1, "compression": "none"}


def walk(project: Project, **checkpoint: Any) -> tuple[dict[str, Any], list[str]]:
    """Run it to its end; what the process found, and the generations that are left."""
    project.table("walk", [{"seed": 1}])
    project.write("walk.py", WALK)
    project.run(
        "walk",
        work={
            "kind": "resumable",
            "members": "config/walk.csv",
            "command": "python walk.py {out} {seed}",
        },
        artifacts=[{"path": "walk.json", "check": "json"}],
        checkpoint=BASE | checkpoint,
    )
    project.launch("walk")
    ok(project.milepost("shard", "walk", "0001"))
    listed = ok(project.milepost("ckpt", "ls", "work/scratch/walk/0001/ckpt", "--json"))
    names = [row["generation"] for row in json.loads(listed.stdout)]
    return project.json("results/walk/artifacts/0001/walk.json"), names


@pytest.fixture(scope="module")
def walked(
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[Project, dict[str, Any], list[str]]:
    """A run with the defaults."""
    project = Project(tmp_path_factory.mktemp("walked"))
    return project, *walk(project)


def test_saves_that_are_due_too_early_are_skipped_and_all_can_be_read(
    walked: tuple[Project, dict[str, Any], list[str]],
) -> None:
    project, found, names = walked
    assert found["waited"] == 0
    assert found["skipped"] > 0
    # Beside the newest one its base, which is what it was a delta of.
    assert len(names) == 2
    text = (project.paths("walk").metrics("0001")).read_text()
    lines = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    labels = '{run="walk",shard="0001"}'
    assert {line.partition("{")[0] for line in lines} <= metric_names()
    assert int(lines[f"milepost_checkpoint_commits_total{labels}"]) >= 6
    skipped = lines[f"milepost_checkpoint_saves_skipped_total{labels}"]
    assert int(skipped) == found["skipped"]
    assert float(lines[f"milepost_checkpoint_blocked_seconds_total{labels}"]) > 0
    assert float(lines[f"milepost_checkpoint_running{labels}"]) == 0
    assert int(lines[f"milepost_upload_queue_generations{labels}"]) == 0
    assert int(lines[f"milepost_upload_sent_generations_total{labels}"]) > 0


def test_waiting_gaps_and_bounded_memory_as_configured(
    tmp_path: Path, walked: tuple[Project, dict[str, Any], list[str]]
) -> None:
    found, names = walk(
        Project(tmp_path),
        when_busy="wait",
        staging_limit_mb=8,
        retention={"gold_every": None, "max_gap_s": 0.0001},
    )
    assert found["skipped"] == 0
    assert found["waited"] > 0
    _, whole, _ = walked
    assert found["copy_mb"] < whole["copy_mb"] - 60, "two buffers of 4 MB, not a copy of 96 MB"
    assert len(names) >= 6, "each is needed to keep the gaps small"


TIMED = textwrap.dedent(
    """
    import pathlib, sys
    import numpy as np
    from milepost import Checkpointer

    x = np.ones(2_000_000)
    with Checkpointer.from_env() as ck:
        ck.restore()
        step = 0
        while len(ck.commits) < 3:
            step += 1
            ck.step(step, lambda: ({"x": x}, {}))
        ck.finish()
    pathlib.Path(sys.argv[1], "walk.json").write_text("{}")
    """
)


def test_the_interval_of_a_run_is_planned_anew_from_what_its_saves_cost(tmp_path: Path) -> None:
    """The plan said 0.1 s; the MTBF and the measured saves say otherwise."""
    project = Project(tmp_path)
    project.write("walk.py", TIMED)
    project.table("walk", [{"seed": 1}])
    work = {"kind": "resumable", "members": "config/walk.csv"}
    project.run(
        "walk",
        work=work | {"command": "python walk.py {out} {seed}"},
        artifacts=[{"path": "walk.json", "check": "json"}],
        checkpoint={"compression": "none"},
    )
    paths = project.launch("walk")
    plan = {"interval_s": 0.1, "mode": "on-demand", "overhead": {"mtbf_s": 60.0}}
    write_json(paths.plan, plan)
    ok(project.milepost("shard", "walk", "0001"))
    rows = [row.data for row in read_journal(paths.shard("0001").journal).checkpoints]
    blocked = [row["blocked_s"] for row in rows]
    best_s = optimal_interval_s(sum(blocked) / len(blocked), 60.0)
    expected_s = max(best_s, 1.0, *(row["durable_s"] for row in rows))
    (line,) = [
        line
        for line in paths.metrics("0001").read_text().splitlines()
        if line.startswith("milepost_checkpoint_interval_seconds")
    ]
    assert float(line.split()[-1]) == pytest.approx(expected_s, rel=0.02)
    made = [epoch(row["created"]) for row in rows]
    assert made[2] - made[1] > 0.9, "and the process kept to it"


def test_the_key_of_an_encrypted_run_stands_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not in the contract, the journal, the records, the logs, nor in what the tiers hold."""
    key = os.urandom(32).hex()
    monkeypatch.setenv("WALK_KEY", key)
    project = Project(tmp_path)
    walk(project, encrypt={"key_env": "WALK_KEY"}, interval_seconds=0.05)
    named = secret = 0
    for path in tmp_path.rglob("*"):
        if path.is_file() and not path.is_symlink():
            data = path.read_bytes()
            named += b"WALK_KEY" in data
            secret += key.encode() in data or bytes.fromhex(key) in data
    assert named, "its name is in the contract"
    assert not secret
    folder = tmp_path / "work/scratch/walk/0001/ckpt"
    told = ok(project.milepost("ckpt", "keys", str(folder), "--json"))
    assert json.loads(told.stdout)[0]["key_ids"] == [key_id_of(bytes.fromhex(key))]
    with pytest.raises(WrongKey):
        Checkpointer(folder, allow=["code"]).restore()
    monkeypatch.setenv("WALK_KEY", os.urandom(32).hex())
    with pytest.raises(WrongKey, match="the key given is"):
        Checkpointer(folder, allow=["code"], encrypt={"key_env": "WALK_KEY"}).restore()


LATE = textwrap.dedent(
    """
    import os, pathlib, sys, time
    import numpy as np
    from milepost import Checkpointer

    out = pathlib.Path(sys.argv[1])
    if os.environ["OMPI_COMM_WORLD_RANK"] == "1":
        while not (out / "given-up").exists():
            time.sleep(0.02)
        sys.exit(0)
    try:
        with Checkpointer.from_env() as ck:
            ck.save(0, {"x": np.ones(3)})
    finally:
        (out / "given-up").touch()
    """
)


def test_a_rank_waits_for_the_others_as_long_as_configured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    have("mpirun", "openmpi-bin")
    monkeypatch.setenv("OMPI_ALLOW_RUN_AS_ROOT", "1")
    monkeypatch.setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
    project = Project(tmp_path)
    project.table("pair", [{"seed": 1}])
    project.write("late.py", LATE)
    command = "mpirun --oversubscribe -np 2 python late.py {out} {seed}"
    project.run(
        "pair",
        work={"kind": "resumable", "members": "config/pair.csv", "command": command},
        artifacts=[{"path": "x.json", "check": "json"}],
        checkpoint={"rank_timeout_s": 1.5},
        retry={"limit": 0},
    )
    project.launch("pair")
    done: subprocess.CompletedProcess[str] = project.milepost("shard", "pair", "0001")
    assert done.returncode not in (0, 75), said(done)
    log = (tmp_path / "work/pair/shards/0001/attempts/1.log").read_text()
    assert "rank 1 of 2 did not come within 1.5 s" in log
