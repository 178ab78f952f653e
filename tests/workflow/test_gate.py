"""The gate: what cannot be resumed to the same result is not launched."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers.project import Project, said

WALK = """\
import json, pathlib, random, sys
import numpy as np
from milepost import Checkpointer

out, steps = pathlib.Path(sys.argv[1]), int(sys.argv[2])
with Checkpointer.from_env() as ck:
    saved = ck.restore()
    x, first = (0.0, 0) if saved is None else (float(saved.arrays["x"][0]), saved.step + 1)
    for step in range(first, steps):
        x += {draw}
        {save}
        if ck.stopping:
            break
    else:
        (out / "walk.json").write_text(json.dumps({{"x": x}}))
"""
SAVE = 'ck.save(step, {"x": np.array([x])}, {}); ck.wait()'
UNSEEDED = "random.random()"
SEEDED = "random.Random(step).random()"


def walk(root: Path, draw: str, save: str, **keys: object) -> Project:
    project = Project(root)
    project.table("walk", [{"steps": 40}, {"steps": 41}])
    project.write("walk.py", WALK.format(draw=draw, save=save))
    project.run(
        "walk",
        work={
            "kind": "resumable",
            "members": "config/walk.csv",
            "command": "python walk.py {out} {steps}",
        },
        artifacts=[{"path": "walk.json", "check": "json"}],
        control={"file": "walk.json", "metric": "x"},
        smoke={"tasks": 1},
        retry={"limit": 0},
        **keys,
    )
    return project


def assert_nothing_was_launched(project: Project, reason: str) -> None:
    paths = project.paths("walk")
    assert not paths.frozen_submission.exists() and not paths.submission.exists()
    assert not paths.frozen_shards.exists() and not paths.shards.exists()
    assert not (paths.work / "shards").exists() and not (paths.results / "shards").exists()
    (kept,) = paths.smoke_work.glob("*/failed.json")
    assert reason in kept.read_text()


def test_a_program_that_resumes_to_another_result_is_not_launched(tmp_path: Path) -> None:
    project = walk(tmp_path, UNSEEDED, SAVE)
    done = project.snakemake()
    assert done.returncode != 0
    told = said(done)
    assert "the resumed slice came to another result: x is" in told
    assert "look whether all state, the random generator's included, is in the checkpoint" in told
    assert_nothing_was_launched(project, "came to another result")
    submit = project.milepost("submit", "walk")
    assert submit.returncode == 20
    # Snakemake removed the output of the rule that failed; the record kept below work/ speaks
    assert "smoke" in said(submit)


def test_a_program_that_never_checkpoints_is_not_launched(tmp_path: Path) -> None:
    project = walk(tmp_path, SEEDED, "pass")
    project.milepost("contract", "walk")
    done = project.milepost("smoke", "walk")
    assert done.returncode != 0
    assert "before it had made durable progress" in said(done)
    assert "let the program checkpoint more often" in said(done)
    assert_nothing_was_launched(project, "before it had made durable progress")
    submit = project.milepost("submit", "walk")
    assert submit.returncode == 20
    assert "the smoke test did not pass" in said(submit)


def test_a_gate_that_stays_shut_holds_up_no_other_run(mended: Project) -> None:
    mended.batch("bad", [1, 2], artifacts=[])
    mended.run("bad", work={**mended.runs["bad"]["work"], "command": "false {out} {n}"})
    done = mended.snakemake("--keep-going")
    assert done.returncode != 0
    assert "nothing was launched" in said(done)
    assert mended.markers("bad") == []
    assert mended.markers("sq") == ["0001", "0002", "0003"]
    assert mended.json("results/sq/closeout/record.json")["verdict"] == "CLOSED"


@pytest.mark.parametrize("tolerance", [None, 1e3])
def test_the_same_program_passes_when_its_state_is_whole_or_the_tolerance_allows(
    tmp_path: Path, tolerance: float | None
) -> None:
    draw = SEEDED if tolerance is None else UNSEEDED
    project = walk(tmp_path, draw, SAVE)
    if tolerance is not None:
        project.run("walk", control={"file": "walk.json", "metric": "x", "atol": tolerance})
    project.prepare("walk")
    smoke = project.json("results/walk/smoke/smoke.json")
    assert smoke["passed"]
    assert smoke["control"]["equal"]
    assert smoke["resumed"]["restored_step"] is not None
    measured = smoke["measured"]
    numbers = ("startup_s", "durable_s", "ckpt_bytes", "restore_s", "max_rss_bytes", "step_s")
    assert all(measured[name] > 0 for name in numbers), measured
    assert all(measured[name]["median"] > 0 for name in ("task_s", "t_ckpt_s"))
    plan = project.json("results/walk/plan/plan.json")
    source = {row["name"]: row["source"] for row in plan["assumptions"]}
    told = ("task_s", "t_ckpt_s", "durable_s", "ckpt_bytes", "restore_s", "max_rss_bytes", "step_s")
    assert {source[name] for name in told} == {"measured by the smoke test"}
    assert plan["memory"]["max_rss_bytes"] == measured["max_rss_bytes"]
