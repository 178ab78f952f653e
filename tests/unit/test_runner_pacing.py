"""A run that is killed again and again: its interval moves, what it lost is counted, and the
closeout tells both beside the plan."""

from __future__ import annotations

import json
import re
import signal
import textwrap
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from helpers.project import Project, ok
from milepost.checkpoint.options import parse_options
from milepost.checkpoint.policies import optimal_interval_s
from milepost.checkpoint.schedule import Schedule
from milepost.clock import epoch, iso, utc_now
from milepost.config.contract import load_contract
from milepost.durable import write_json
from milepost.journal import JournalWriter
from milepost.lease import Lease
from milepost.planner.make import make_plan
from milepost.runner import pacing
from milepost.runner.attempt import Attempt
from milepost.runner.signals import SignalLoop
from milepost.runner.sync import GroupSync
from milepost.shardtable import read_shard

WALK = textwrap.dedent(
    """
    import json, os, pathlib, signal, sys, time
    import numpy as np
    from milepost import Checkpointer

    attempt, deaths = int(os.environ["MILEPOST_ATTEMPT"]), int(sys.argv[2])

    def say(what, step):
        print(what, step, f"{time.time():.6f}", flush=True)

    def state():
        return {"x": np.full(200_000, float(step))}, {}

    with Checkpointer.from_env() as ck:
        saved = ck.restore()
        step = 0 if saved is None else saved.step
        say("began", step)
        for _ in range(40):
            step += 1
            time.sleep(0.005)
            say("step", step)
            if step % 25 == 0 and not (attempt == 2 and sys.argv[3] == "early"):
                ck.save(step, *state())
                ck.wait()
        if attempt <= deaths:
            say("killed", step)
            os.kill(os.getppid(), signal.SIGKILL)  # the node is lost: runner and work at once
            os.kill(os.getpid(), signal.SIGKILL)
        ck.finish()
    pathlib.Path(sys.argv[1], "walk.json").write_text(json.dumps({"step": step}))
    """
)
MTBF_H = 2.0
T_CKPT_S = 5.0
"""As the smoke test said; this run finds that it takes far less."""


def prepared(root: Path, deaths: int, how: str = "late", **planner: Any) -> Project:
    """A walk of 40 steps an attempt that saves at every 25th and dies so often, with its plan."""
    project = Project(root)
    project.table("walk", [{"seed": 1}])
    project.write("walk.py", WALK)
    project.run(
        "walk",
        work={
            "kind": "resumable",
            "members": "config/walk.csv",
            "command": f"python walk.py {{out}} {deaths} {how}",
        },
        artifacts=[{"path": "walk.json", "check": "json"}],
        resources={"cpus": 2, "mem_mb": 500, "runtime_s": 600},
        planner={"history_days": None, **planner},
        checkpoint={"uploader": {"enable": False}},
    )
    paths = project.launch("walk")
    cost = {"median": T_CKPT_S, "p95": T_CKPT_S, "n": 3}
    work = {"median": 300.0, "p95": 300.0, "n": 1}
    measured = {"task_s": work, "t_ckpt_s": cost, "restore_s": 0.5, "startup_s": 1.0}
    plan = make_plan(load_contract(paths).spec, {"measured": measured}, 1)
    write_json(paths.plan, plan)
    return project


def attempts(project: Project) -> list[dict[str, Any]]:
    folder = project.paths("walk").shard("0001").attempts
    files = sorted(p for p in folder.glob("*.json") if p.stem.isdigit())
    return [json.loads(path.read_text()) for path in files]


def said(project: Project, number: int) -> list[tuple[str, int, float]]:
    """What an attempt's application printed: word, step, time."""
    log = project.paths("walk").shard("0001").log(number).read_text()
    found = re.findall(r"^(began|step|killed) (\d+) (\d+\.\d+)$", log, re.MULTILINE)
    return [(word, int(step), float(at)) for word, step, at in found]


def at(project: Project, number: int, word: str, step: int | None = None) -> float:
    return next(t for w, s, t in said(project, number) if w == word and step in (None, s))


def run_to_the_end(project: Project, deaths: int) -> None:
    for _ in range(deaths):
        killed = project.milepost("shard", "walk", "0001")
        assert killed.returncode == -signal.SIGKILL, killed.stderr
    ok(project.milepost("shard", "walk", "0001"))


@pytest.fixture(scope="module")
def walked(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """Killed three times, then finished and closed out."""
    root = tmp_path_factory.mktemp("walk")
    project = prepared(root, 3, mtbf_h=MTBF_H, mode="interruptible")
    run_to_the_end(project, 3)
    project.milepost("closeout", "walk")
    return project


def test_the_first_attempt_uses_the_plan(walked: Project) -> None:
    first = attempts(walked)[0]["planned"]
    plan = walked.json("results/walk/plan/plan.json")
    assert first["interval_s"] == plan["interval_s"]
    assert first["source"] == plan["interval_source"]
    assert first["mtbf_s"] == pytest.approx(MTBF_H * 3600, rel=1e-3)
    assert (first["interruptions"], first["exposure_s"]) == (0, pytest.approx(0.0, abs=60.0))


def test_it_stays_within_the_bounds_of_the_contract(walked: Project) -> None:
    """The smoke test's 5 s would make it 268 s; interruptible mode allows 120."""
    planned = [one["planned"] for one in attempts(walked)]
    assert planned[0]["interval_s"] == 120.0
    assert all(0 < one["interval_s"] <= one["most_s"] == 120.0 for one in planned)


def test_each_interruption_makes_the_next_interval_shorter(walked: Project) -> None:
    planned = [one["planned"] for one in attempts(walked)]
    assert [one["interruptions"] for one in planned] == [0, 1, 2, 3]
    for before, after in pairwise(planned):
        assert after["mtbf_s"] < 0.85 * before["mtbf_s"]
    for one in planned[1:]:
        # worth one failure in what the contract states, and what the run went through
        told_s = (MTBF_H * 3600 + one["exposure_s"]) / (1 + one["interruptions"])
        assert one["mtbf_s"] == pytest.approx(told_s, rel=1e-6)
        assert one["mtbf_source"].endswith("of the run's attempts, and the config's value")
        best_s = optimal_interval_s(one["t_ckpt_s"], one["mtbf_s"])
        assert one["interval_s"] == pytest.approx(best_s)
        assert one["t_ckpt_s"] < T_CKPT_S / 5, "measured by this run, not by the smoke test"
        assert one["interval_s"] < planned[0]["interval_s"]


def test_the_time_at_risk_is_that_of_the_attempts(walked: Project) -> None:
    found = attempts(walked)
    lived = 0.0
    for number, one in enumerate(found[:3], start=1):
        assert one["ended"] is None
        killed_at = at(walked, number, "killed")
        assert epoch(one["last_sign"]) == pytest.approx(killed_at, abs=0.05)
        lived += killed_at - epoch(one["started"])
    running_s = found[3]["planned"]["exposure_s"] - lived
    assert -0.2 < running_s < 20.0, "the fourth attempt had just begun"


def really_lost(project: Project, number: int) -> float:
    """From the step that the next attempt began with to the kill."""
    step = next(s for word, s, _ in said(project, number + 1) if word == "began")
    return at(project, number, "killed") - at(project, number, "step", step)


def test_lost_work_is_what_was_really_lost(walked: Project) -> None:
    lost = [one["restored"]["lost_s"] for one in attempts(walked)[1:]]
    truth = [really_lost(walked, number) for number in (1, 2, 3)]
    assert lost == pytest.approx(truth, abs=0.05)
    assert min(truth) > 15 * 0.005


def test_the_closeout_compares_plan_and_outcome_of_the_shard(walked: Project) -> None:
    record = walked.json("results/walk/closeout/record.json")
    (account,) = record["shard_accounts"]
    assert (account["shard"], account["attempts"], account["interruptions"]) == ("0001", 4, 3)
    planned, observed = account["planned"], account["observed"]
    truth = sum(really_lost(walked, number) for number in (1, 2, 3))
    assert observed["lost_s"] == pytest.approx(truth, abs=0.15)
    assert record["account"]["lost_core_s"] == pytest.approx(2 * observed["lost_s"])
    found = attempts(walked)
    ends = [at(walked, number, "killed") for number in (1, 2, 3)]
    starts = [epoch(one["started"]) for one in found]
    waited = sum(start - end for start, end in zip(starts[1:], ends, strict=True))
    assert observed["waiting_s"] == pytest.approx(waited, abs=0.15)
    wall = sum(end - start for start, end in zip(starts, ends, strict=False))
    wall += epoch(found[3]["ended"]) - starts[3]
    assert observed["core_h"] == pytest.approx(2 * wall / 3600, rel=0.02)
    assert observed["mtbf_s"] == pytest.approx(wall / 3, rel=0.02)
    saves = walked.paths("walk").shard("0001").journal.read_text().count(",committed,")
    assert saves == 4, "at 25, 50, 75 and 100: each attempt goes on from the last one"
    assert 0 < observed["checkpoint_s"] < saves * T_CKPT_S
    spent = (observed["lost_s"], observed["checkpoint_s"], observed["restart_s"])
    assert observed["useful_s"] == pytest.approx(wall - sum(spent), rel=0.05)
    fraction = (observed["lost_s"] + observed["checkpoint_s"]) / observed["useful_s"]
    assert observed["overhead_fraction"] == pytest.approx(fraction)
    assert planned["overhead_fraction"] > 0
    assert planned["useful_s"] == 300.0
    assert planned["checkpoint_s"] == pytest.approx(300 / planned["interval_s"] * T_CKPT_S)
    assert (planned["cost"], observed["cost"]) == (None, None)


def test_an_attempt_without_a_checkpoint_of_its_own_lost_all_it_did(tmp_path: Path) -> None:
    """And no more: what the one before it had lost is counted already."""
    project = prepared(tmp_path, 2, "early", mtbf_h=MTBF_H)
    run_to_the_end(project, 2)
    lost = [one["restored"]["lost_s"] for one in attempts(project)[1:]]
    second = at(project, 2, "killed") - at(project, 2, "began")
    assert lost == pytest.approx([really_lost(project, 1), second], abs=0.05)


def test_what_was_lost_is_known_also_when_the_runner_died_before_it_asked(tmp_path: Path) -> None:
    project = prepared(tmp_path, 2, mtbf_h=MTBF_H)
    assert project.milepost("shard", "walk", "0001").returncode == -signal.SIGKILL
    assert project.milepost("shard", "walk", "0001").returncode == -signal.SIGKILL
    record = project.paths("walk").shard("0001").attempt(2)
    said_at_once = json.loads(record.read_text())
    write_json(record, {k: v for k, v in said_at_once.items() if k != "restored"})
    ok(project.milepost("shard", "walk", "0001"))
    assert attempts(project)[1]["restored"]["lost_s"] == pytest.approx(
        really_lost(project, 1), abs=0.05
    )


def test_killed_before_the_first_checkpoint_all_is_lost(tmp_path: Path) -> None:
    project = prepared(tmp_path, 1, "late", mtbf_h=MTBF_H)
    text = (tmp_path / "walk.py").read_text()
    project.write("walk.py", text.replace("step % 25 == 0 and", "attempt > 1 and"))
    project.launch("walk")
    run_to_the_end(project, 1)
    first = attempts(project)[0]
    whole = at(project, 1, "killed") - epoch(first["started"])
    assert first["lost_s"] == pytest.approx(whole, abs=0.05)
    project.milepost("closeout", "walk")
    (account,) = project.json("results/walk/closeout/record.json")["shard_accounts"]
    assert account["observed"]["lost_s"] == pytest.approx(whole, abs=0.05)


TOLD = textwrap.dedent(
    """
    import os, pathlib, signal, sys, time
    import numpy as np
    from milepost import Checkpointer

    state = lambda: ({"x": np.zeros(1000)}, {})
    try:
        with Checkpointer.from_env() as ck:
            saved = ck.restore()
            for step in range(0 if saved is None else saved.step + 1, 10_000):
                if saved is None and step == 20:
                    os.kill(os.getppid(), signal.SIGTERM)  # the runner is told to go, and tells us
                if saved is not None and step == saved.step + 5:
                    ck.finish()
                    break
                time.sleep(0.01)
                ck.step(step, state)
                if ck.stopping:
                    break
    except SystemExit:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTERM)  # as Slurm does: it tells every process, twice
    pathlib.Path(sys.argv[1], "walk.json").write_text("{}")
    """
)


def test_an_end_by_a_second_signal_after_the_last_checkpoint_loses_nothing(tmp_path: Path) -> None:
    project = prepared(tmp_path, 0, mtbf_h=MTBF_H)
    project.write("walk.py", TOLD)
    project.launch("walk")
    assert project.milepost("shard", "walk", "0001").returncode == 75
    ok(project.milepost("shard", "walk", "0001"))
    first, second = attempts(project)
    assert (first["stop"], first["is_saved"]) == ("signal TERM", True)
    assert second["restored"]["lost_s"] == 0.0


@pytest.fixture
def attempt(tmp_path: Path) -> Iterator[Attempt]:
    """The first attempt of one of two shards, in this process."""
    project = prepared(tmp_path, 0, mtbf_h=MTBF_H)
    project.table("walk", [{"seed": 1}, {"seed": 2}])
    paths = project.launch("walk")
    shard = paths.shard("0001")
    lease = Lease(shard.live)
    lease.acquire()
    with JournalWriter(shard.journal, 1) as journal:
        sync = GroupSync(journal)
        yield Attempt(
            spec=load_contract(paths).spec,
            contract_digest="",
            run=paths,
            shard=read_shard(paths.frozen_shards, "0001"),
            paths=shard,
            lease=lease,
            journal=journal,
            sync=sync,
            loop=SignalLoop(),
            deadline=None,
            is_automatic=False,
            drill=False,
            say=print,
        )
        sync.close()
    lease.release()


def test_a_running_application_hears_of_interruptions_of_other_shards(
    attempt: Attempt, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pacing, "REPLAN_S", 0.0)
    ours = pacing.Pacing(attempt, str(attempt.run.root / "ckpt"), [{"blocked_s": 0.2}])
    assert ours.planned is None
    schedule = Schedule(parse_options({**ours.start(), "folder": "ckpt"}))
    schedule.durable(0.1, 0.2)
    first = schedule.interval_s()
    assert first == pytest.approx(optimal_interval_s(0.2, MTBF_H * 3600), rel=0.01)
    ours.look()
    schedule.durable(0.1, 0.2)
    assert schedule.interval_s() == first, "nothing happened"
    for number in (1, 2, 3):
        times = {"started": iso(time.time() - 600), "ended": utc_now()}
        record = {"attempt": number, "stop": "error", "finding": {"action": "retry_same"}, **times}
        write_json(attempt.run.shard("0002").attempt(number), record)
    ours.look()
    schedule.durable(0.1, 0.2)
    later = schedule.interval_s()
    assert later is not None and later < 0.6 * first
    kept = json.loads(attempt.paths.attempt(1).read_text())["planned"]
    assert kept == ours.planned
    assert (kept["interruptions"], kept["interval_s"]) == (3, pytest.approx(later, rel=1e-3))


def test_an_interval_that_the_contract_states_is_left_alone(
    attempt: Attempt, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pacing, "REPLAN_S", 0.0)
    spec = replace(attempt.spec, checkpoint=replace(attempt.spec.checkpoint, interval_s=33.0))
    ours = pacing.Pacing(replace(attempt, spec=spec), str(attempt.run.root / "ckpt"), [])
    told = ours.start()
    assert (told["interval_s"], told["mtbf_s"], told["mtbf_file"]) == (33.0, None, None)
    ours.look()
    assert not (attempt.run.root / "ckpt").exists()
