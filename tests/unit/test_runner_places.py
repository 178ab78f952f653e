"""What the plan tells a solver about its checkpoints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from milepost.checkpoint.options import Options
from milepost.checkpoint.policies import Moment
from milepost.checkpoint.schedule import default_policy
from milepost.durable import write_json
from milepost.paths import RunPaths
from milepost.runner.places import checkpoint_place, planned_interval_s, replanned


def paths(root: Path, **plan: Any) -> RunPaths:
    found = RunPaths("walk", root)
    if plan:
        write_json(found.plan, plan)
    return found


def test_before_there_is_a_plan_nothing_is_known(tmp_path: Path) -> None:
    assert planned_interval_s(paths(tmp_path)) is None
    assert replanned(paths(tmp_path)) == {"mtbf_s": None, "interval_most_s": None}


@pytest.mark.parametrize(("mode", "most_s"), [("interruptible", 120.0), ("reserved", None)])
def test_the_interval_may_be_planned_anew(tmp_path: Path, mode: str, most_s: float | None) -> None:
    run = paths(tmp_path, interval_s=33, mode=mode, overhead={"mtbf_s": 86400})
    assert planned_interval_s(run) == 33
    assert replanned(run) == {"mtbf_s": 86400.0, "interval_most_s": most_s}
    policy = default_policy(Options(interval_s=33, **replanned(run)))  # type: ignore[arg-type]
    assert policy.wait_s(Moment(0, 0)) == 33
    dear = policy.wait_s(Moment(0, 0, blocked_s=60.0))
    assert dear == pytest.approx(180 if most_s else 3240, rel=0.01)


def test_a_place_holds_run_and_shard(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WHERE", "/fast")
    assert checkpoint_place("$WHERE/", "walk", "0001") == "/fast/walk/0001/ckpt"
    assert checkpoint_place("s3://bucket/a", "walk", "0001") == "s3://bucket/a/walk/0001/ckpt"
