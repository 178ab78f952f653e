"""The interval of an attempt: from the plan, then from what the run went through, within bounds."""

from __future__ import annotations

from pathlib import Path
from socket import gethostname
from typing import Any

import pytest

from milepost.checkpoint.policies import optimal_interval_s
from milepost.clock import iso
from milepost.config.spec import CheckpointSpec
from milepost.durable import write_json
from milepost.lease import boot_id
from milepost.model import Shard, Task
from milepost.paths import RunPaths
from milepost.runner.interval import Cost, plan_interval, read_cost
from milepost.shardtable import write_shards

HOUR = 3600.0
NOW = 1772359200.0
AUTO = CheckpointSpec()


def run(root: Path, deaths: int = 0, hours: float = 1.0, **plan: Any) -> RunPaths:
    """A run of two shards whose other one died so often after so many hours."""
    paths = RunPaths("walk", root)
    if plan:
        write_json(paths.plan, {"interval_s": 300.0, "interval_source": "planned"} | plan)
    for number in range(1, deaths + 1):
        times = {"started": iso(NOW), "last_sign": iso(NOW + hours * HOUR)}
        who = {"host": gethostname(), "pid": 999_999_999, "process_start": 1.0, "token": "t"}
        who |= {"boot_id": boot_id(), "slurm_job_id": None, "attempt": number}
        record = {"stop": None, "ended": None, **who, **times}
        write_json(paths.shard("0002").attempt(number), record)
    return paths


def believed(hours: float, **more: Any) -> dict[str, Any]:
    return {"sources": [], "believed": {"stated_h": hours, **more}}


def test_without_a_plan_it_is_120_seconds_and_a_default(tmp_path: Path) -> None:
    found = plan_interval(AUTO, run(tmp_path), "0001", Cost())
    assert (found.interval_s, found.source) == (120.0, "default, there is no plan")
    assert found.mtbf_s is None


def test_at_first_it_is_the_plans(tmp_path: Path) -> None:
    paths = run(tmp_path, mtbf=believed(24.0), overhead={"t_ckpt_s": 2.0})
    found = plan_interval(AUTO, paths, "0001", Cost())
    assert (found.interval_s, found.source) == (300.0, "planned")
    assert found.mtbf_s == pytest.approx(24 * HOUR)


def test_interruptions_of_other_shards_shorten_it(tmp_path: Path) -> None:
    paths = run(tmp_path, deaths=3, mtbf=believed(24.0), overhead={"t_ckpt_s": 2.0})
    found = plan_interval(AUTO, paths, "0001", Cost())
    assert found.mtbf_s == pytest.approx(27 * HOUR / 4)
    assert found.interval_s == pytest.approx(optimal_interval_s(2.0, 27 * HOUR / 4))
    assert (found.interruptions, found.exposure_s) == (3, 3 * HOUR)


def test_what_checkpoints_cost_here_counts_more_than_the_smoke_test(tmp_path: Path) -> None:
    paths = run(tmp_path, mtbf=believed(24.0), overhead={"t_ckpt_s": 2.0})
    found = plan_interval(AUTO, paths, "0001", Cost(blocked_s=8.0))
    assert found.t_ckpt_s == 8.0
    assert found.interval_s == pytest.approx(optimal_interval_s(8.0, 24 * HOUR))


def test_it_is_never_longer_than_120_seconds_in_interruptible_mode(tmp_path: Path) -> None:
    block = {"mtbf": believed(2400.0), "overhead": {"t_ckpt_s": 20.0}}
    paths = run(tmp_path, mode="interruptible", **block)
    for cost in (Cost(), Cost(blocked_s=20.0)):
        found = plan_interval(AUTO, paths, "0001", cost)
        assert (found.interval_s, found.most_s) == (120.0, 120.0)
    stated = plan_interval(CheckpointSpec(interval_s=500.0), paths, "0001", Cost())
    assert stated.interval_s == 120.0


def test_each_shard_has_the_interval_and_mode_of_its_place(tmp_path: Path) -> None:
    steady = {"profile": "a", "mode": "on-demand", "interval_s": 900.0, "mtbf_s": 9 * HOUR}
    spot = {"profile": "b", "mode": "interruptible", "interval_s": 77.0, "mtbf_s": 2 * HOUR}
    spot["believed"] = {"stated_h": 2.0, "is_exposed": True}
    paths = run(
        tmp_path,
        mode="on-demand",
        placement=[steady, spot],
        mtbf=believed(9.0),
        overhead={"t_ckpt_s": 20.0, "mtbf_s": 9 * HOUR},
    )
    task = Task("0123456789abcdef", {"n": "1"}, 2)
    shards = [
        Shard("0001", (task,), "a", "on-demand"),
        Shard("0002", (task,), "b", "interruptible"),
    ]
    write_shards(paths.frozen_shards, shards)
    first, second = (plan_interval(AUTO, paths, name, Cost()) for name in ("0001", "0002"))
    assert (first.interval_s, first.most_s) == (900.0, None)
    assert first.mtbf_s == pytest.approx(9 * HOUR)
    assert (second.interval_s, second.most_s) == (77.0, 120.0)
    assert second.mtbf_s == pytest.approx(2 * HOUR)


def test_only_interruptions_at_the_same_place_count(tmp_path: Path) -> None:
    paths = run(tmp_path, deaths=3, mtbf=believed(24.0), overhead={"t_ckpt_s": 2.0})
    task = Task("0123456789abcdef", {"n": "1"}, 2)
    for mode, seen in (("interruptible", 0), ("on-demand", 3)):
        shards = [Shard("0001", (task,), "a", "on-demand"), Shard("0002", (task,), "a", mode)]
        write_shards(paths.frozen_shards, shards)
        assert plan_interval(AUTO, paths, "0001", Cost()).interruptions == seen


def test_never_more_often_than_a_checkpoint_becomes_durable(tmp_path: Path) -> None:
    paths = run(tmp_path, deaths=20, hours=0.01, mtbf=believed(1.0))
    found = plan_interval(AUTO, paths, "0001", Cost(0.01, 45.0))
    assert found.interval_s == 45.0


def test_a_number_in_the_contract_stays(tmp_path: Path) -> None:
    paths = run(tmp_path, deaths=9, mtbf=believed(1.0), overhead={"t_ckpt_s": 2.0})
    found = plan_interval(CheckpointSpec(interval_s=700.0), paths, "0001", Cost(9.0))
    assert (found.interval_s, found.mtbf_s) == (700.0, None)
    assert found.source.startswith("stated in the config")


def test_a_plan_from_before_there_was_such_a_block(tmp_path: Path) -> None:
    paths = run(tmp_path, deaths=1, overhead={"t_ckpt_s": 2.0, "mtbf_s": 10 * HOUR})
    assert plan_interval(AUTO, paths, "0001", Cost()).mtbf_s == pytest.approx(11 * HOUR / 2)


def test_cost_is_that_of_the_latest_checkpoints() -> None:
    def row(blocked_s: float | None, durable_s: float | None) -> dict[str, Any]:
        return {"blocked_s": blocked_s, "durable_s": durable_s, "step": 1}

    assert read_cost([]) == Cost()
    assert read_cost([row(None, None)]) == Cost()
    old = [row(100.0, 900.0)] * 10
    latest = [row(1.0, 5.0)] * 25 + [row(3.0, 7.0)] * 25
    assert read_cost([*old, *latest]) == Cost(2.0, 7.0)
