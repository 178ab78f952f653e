"""Plan and outcome of each shard beside each other; n/a where there is no number."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from helpers.run_folder import RunFolder, finished_simulation, finished_sweep
from milepost.evidence.account import account
from milepost.evidence.gather import gather
from milepost.evidence.planned import observed_cost
from milepost.evidence.shard_accounts import ShardAccount, shard_accounts
from milepost.planner.theory import cost_overhead


def accounts(folder: RunFolder) -> list[ShardAccount]:
    return shard_accounts(gather(folder.paths))


OVERHEAD = {
    "fraction": 0.1,
    "seconds": 8.0,
    "useful_s": 80.0,
    "t_ckpt_s": 0.5,
    "restore_s": 2.0,
    "downtime_s": 3.0,
    "mtbf_s": 88.0,
}
COST = {"currency": "EUR", "total": 5.0, "price_per_h": 0.9, "units": 2, "utilisation": 0.5}


def simulation(root: Path, **plan: Any) -> RunFolder:
    folder = finished_simulation(root)
    return folder.plan(interval_s=10.0, shard_count=1, **plan)


def test_a_killed_and_resumed_shard(tmp_path: Path) -> None:
    """Attempt 1: 5 to 15 s (its last row), lost 4 s; attempt 2: 20 to 56 s."""
    (found,) = accounts(simulation(tmp_path, overhead=OVERHEAD, cost=COST))
    assert (found.shard, found.attempts, found.interruptions) == ("beta-1", 2, 1)
    seen = found.observed
    assert seen.lost_s == 4.0
    assert seen.waiting_s == 5.0
    assert seen.checkpoint_s == pytest.approx(0.02)
    assert seen.useful_s == pytest.approx(10 + 36 - 4 - 0.02)
    assert seen.mtbf_s == 46.0
    assert seen.core_h == pytest.approx(2 * 46 / 3600)
    assert seen.cost == pytest.approx(cost_overhead(0.9, 2, 0.5, 46.0))
    assert seen.overhead_fraction == pytest.approx(4.02 / seen.useful_s)
    assert (seen.restart_s, seen.interval_s) == (None, None)


def test_what_was_planned_of_it(tmp_path: Path) -> None:
    (found,) = accounts(simulation(tmp_path, overhead=OVERHEAD, cost=COST))
    planned = found.planned
    assert (planned.interval_s, planned.mtbf_s, planned.overhead_fraction) == (10.0, 88.0, 0.1)
    assert planned.useful_s == 80.0
    assert planned.checkpoint_s == 4.0  # 8 checkpoints
    assert (planned.restart_s, planned.waiting_s) == (2.0, 3.0)  # one failure is expected
    assert planned.lost_s == 0.0  # no time is left for it: 8 s are 4 + 2 + 3 already
    assert planned.core_h == pytest.approx(2 * 85 / 3600)
    assert (planned.cost, found.currency) == (5.0, "EUR")


def test_without_a_plan_nothing_is_planned(tmp_path: Path) -> None:
    folder = finished_simulation(tmp_path)
    folder.paths.plan.unlink()
    (found,) = accounts(folder)
    assert set(found.as_json()["planned"].values()) == {None}
    assert (found.currency, found.observed.cost) == (None, None)
    assert found.observed.lost_s == 4.0


def test_a_batch_shares_its_tasks_among_the_cores(tmp_path: Path) -> None:
    folder = finished_sweep(tmp_path)
    folder.plan(shard_count=2, overhead=OVERHEAD, cost=COST)
    first, second = accounts(folder)
    for found in (first, second):
        assert (found.attempts, found.interruptions) == (1, 0)
        assert found.observed.useful_s == 6.0  # 12 s of tasks on 2 cores
        assert found.observed.lost_s == 0.0
        assert found.observed.waiting_s == 0.0
        assert found.observed.mtbf_s is None  # no failure: no number, and not infinity
        assert found.planned.useful_s == 40.0
        assert found.planned.checkpoint_s is None
        assert found.planned.cost == 2.5


def test_the_sums_are_those_of_the_run(tmp_path: Path) -> None:
    folder = finished_sweep(tmp_path)
    folder.plan(shard_count=2, overhead=OVERHEAD, cost=COST)
    run = gather(folder.paths)
    whole = account(run)
    parts = [found.observed.cost for found in shard_accounts(run)]
    assert observed_cost(run, whole) == pytest.approx(sum(part or 0.0 for part in parts))


def test_shards_that_were_not_tried_have_no_account(tmp_path: Path) -> None:
    folder = finished_sweep(tmp_path)
    folder.paths.shard("0002").attempt(1).unlink()
    assert [found.shard for found in accounts(folder)] == ["0001"]


def test_the_interval_is_that_between_checkpoints_of_one_attempt(tmp_path: Path) -> None:
    folder = finished_simulation(tmp_path)
    for number, second in ((3, 44.0), (4, 50.0)):
        folder.checkpoint("beta-1", f"00000{number}", attempt=2, time=second)
    folder.marker("beta-1")
    (found,) = accounts(folder)
    # 15 and 40 lie in different attempts; 4 s and 6 s between the others, less what they cost
    assert found.observed.interval_s == pytest.approx(5.0 - 0.01)
