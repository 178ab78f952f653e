"""When to save and what to keep: small values, compared with what theory and brute force say."""

from __future__ import annotations

import math
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from milepost.checkpoint.checkpointer import Checkpointer
from milepost.checkpoint.options import Options
from milepost.checkpoint.policies import (
    AnyOf,
    BeforeWalltime,
    EveryOptimal,
    EverySeconds,
    Moment,
    OnSignal,
    Periodic,
    optimal_interval_s,
)
from milepost.checkpoint.retention import Kept, Retention, plan_prune
from milepost.checkpoint.schedule import Schedule
from milepost.checkpoint.store import CheckpointStore
from milepost.durable import write_json
from milepost.errors import ConfigError
from milepost.planner.theory import exact_interval


@pytest.mark.parametrize("mtbf_s", [900.0, 21600.0, 86400.0, 1e9])
@pytest.mark.parametrize("blocked_s", [1e-6, 0.05, 1.0, 300.0, 5000.0])
def test_the_optimum_is_the_planners(blocked_s: float, mtbf_s: float) -> None:
    found = optimal_interval_s(blocked_s, mtbf_s)
    assert found == pytest.approx(exact_interval(blocked_s, mtbf_s), rel=1e-5)


def test_dalys_published_optima() -> None:
    for mtbf_h, minutes in ((24, 117), (6, 57), (0.25, 9.1)):
        found = optimal_interval_s(300, mtbf_h * 3600) / 60
        assert found == pytest.approx(minutes, rel=0.01)


def test_the_optimal_interval_follows_what_was_measured() -> None:
    policy = EveryOptimal(3600, unknown_s=120, least_s=2, most_s=100)
    assert policy.interval_s(Moment(0, 0)) == 120
    assert policy.interval_s(Moment(0, 0, blocked_s=0.02)) == pytest.approx(12.0, rel=0.01)
    assert policy.interval_s(Moment(0, 0, blocked_s=1e-6)) == 2
    assert policy.interval_s(Moment(0, 0, blocked_s=60)) == 100
    slow = Moment(0, 0, blocked_s=0.02, save_s=300)
    assert policy.interval_s(slow) == 300, "not before the one before is durable"
    assert policy.reason(Moment(11, 0, blocked_s=0.02)) is None
    assert policy.reason(Moment(12.1, 0, blocked_s=0.02)) == "interval"


def saves(policy: BeforeWalltime, moment: dict[str, Any], end_s: float) -> list[float]:
    """When it saves, asked each second and whenever it says that there is nothing before."""
    found, last, now = [], 0.0, 0.0
    while now < end_s:
        asked = Moment(now - last, now, **moment)
        reason = policy.reason(asked)
        if reason is not None:
            found.append(now)
            last = now
            if reason == "walltime":
                break
        now += max(policy.wait_s(Moment(now - last, now, **moment)), 1.0)
    return found


@pytest.mark.parametrize("left_s", [100, 600, 1000, 3333, 86400])
@pytest.mark.parametrize("every", [EverySeconds(120), EveryOptimal(86400, 120)])
def test_the_time_left_is_split_evenly_and_the_last_one_fits(left_s: int, every: Periodic) -> None:
    measured = {"save_s": 4.0, "blocked_s": 2.0, "step_s": 1.0}
    policy = BeforeWalltime(left_s, 10, every)
    found = saves(policy, measured, left_s)
    latest = left_s - 10 - 4 - 1
    assert latest <= found[-1] <= latest + 2
    gaps = np.diff([0.0, *found])
    assert len(found) == every.count(latest, Moment(0, 0, **measured))
    assert gaps.max() - gaps.min() <= 3
    if isinstance(every, EverySeconds):
        assert gaps.max() <= 121


@pytest.mark.parametrize("left_s", [100, 125, 170, 181, 299, 1000, 86400])
@pytest.mark.parametrize("blocked_s", [None, 0.02, 5.0, 60.0])
def test_no_piece_is_longer_than_the_longest_interval(left_s: int, blocked_s: float | None) -> None:
    """As promised in interruptible mode, also where the time left is split evenly."""
    policy = EveryOptimal(1e6, unknown_s=120, most_s=120)
    moment = Moment(0, 0, blocked_s=blocked_s)
    pieces = policy.count(left_s, moment)
    assert left_s / pieces - (blocked_s or 0.0) <= 120 + 1e-6
    assert EveryOptimal(1e6, unknown_s=120).count(left_s, moment) <= pieces


def test_without_an_interval_there_is_one_save_at_the_end() -> None:
    assert len(saves(BeforeWalltime(1000, 10), {}, 1000)) == 1


def test_nothing_is_due_before_the_policy_said_so() -> None:
    policies = (OnSignal(), EverySeconds(7), EveryOptimal(1e4, 9))
    rng = np.random.default_rng(1)
    for since, now, save_s in rng.uniform(0, 30, (300, 3)):
        for policy in (*policies, AnyOf(policies), BeforeWalltime(40, 5, EverySeconds(6))):
            wait_s = policy.wait_s(Moment(since, now, save_s))
            assert wait_s >= 0
            early = 0.999 * wait_s if math.isfinite(wait_s) else 1e6
            if wait_s > 0:
                assert policy.reason(Moment(since + early, now + early, save_s)) is None


def test_the_schedule_is_built_from_the_options(tmp_path: Path) -> None:
    schedule = Schedule(Options(interval_s=3600, mtbf_s=86400.0))
    assert schedule.reason(None) is None, "nothing is measured yet"
    schedule.durable(0.0, 1e-9)
    schedule._last_save -= 2
    assert schedule.reason(None) == "interval"
    with pytest.raises(ConfigError, match="mtbf_s"):
        Checkpointer(tmp_path, mtbf_s=0)


def test_a_newer_mtbf_moves_the_interval_of_a_running_process(tmp_path: Path) -> None:
    told = tmp_path / "mtbf.json"
    options = Options(interval_s=50, mtbf_s=86400.0, interval_most_s=60, mtbf_file=str(told))
    schedule, own = Schedule(options), Schedule(options, EverySeconds(7))
    schedule.durable(0.1, 0.01)
    assert schedule.interval_s() == pytest.approx(optimal_interval_s(0.01, 86400.0), rel=1e-6)
    for mtbf_s in (3600.0, 36000.0):
        write_json(told, {"mtbf_s": mtbf_s})
        for one in (schedule, own):
            one.durable(0.1, 0.01)
        assert schedule.interval_s() == pytest.approx(optimal_interval_s(0.01, mtbf_s), rel=1e-6)
    assert own.interval_s() is None, "a policy of the application stays"
    write_json(told, {"mtbf_s": 1e12})
    schedule.durable(0.1, 0.01)
    assert schedule.interval_s() == 60, "within the bounds of the contract"


def test_it_begins_with_the_default_and_moves_once_failures_are_known(tmp_path: Path) -> None:
    told = tmp_path / "mtbf.json"
    schedule = Schedule(Options(interval_s=120, mtbf_file=str(told)))
    schedule.durable(0.1, 0.01)
    assert schedule.interval_s() == 120
    write_json(told, {"mtbf_s": 3600.0})
    schedule.durable(0.1, 0.01)
    assert schedule.interval_s() == pytest.approx(optimal_interval_s(0.01, 3600.0), rel=1e-6)


def test_a_policy_of_the_application_decides(tmp_path: Path) -> None:
    class AtStep:
        step = 0

        def reason(self, moment: Moment) -> str | None:
            return "wanted" if self.step % 3 == 2 else None

        def wait_s(self, moment: Moment) -> float:
            return 0.0

    policy = AtStep()
    with Checkpointer(tmp_path, policy=policy, rotation=9, when_busy="wait") as ck:
        for policy.step in range(9):
            ck.step(policy.step, lambda: ({"x": np.zeros(3)}, None))
        ck.wait()
    assert [c.step for c in ck.commits] == [2, 5, 8]


def busy(folder: Path, when_busy: str) -> Checkpointer:
    """Save at step 0, with the commit held up; then two steps with a save due at each."""
    reached, go_on = threading.Event(), threading.Event()

    def hook(step: str) -> None:
        if step == "data-durable":
            reached.set()
            assert go_on.wait(10)

    with Checkpointer(folder, interval_s=0, when_busy=when_busy, hook=hook) as ck:
        assert ck.step(0, lambda: ({"x": np.zeros(3)}, None))
        assert reached.wait(10)
        threading.Timer(0.2, go_on.set).start()
        end = time.monotonic() + 10
        while len(ck.commits) < 2 and time.monotonic() < end:
            ck.step(1, lambda: ({"x": np.zeros(3)}, None))
    return ck


def test_a_save_that_comes_too_early_is_skipped_and_counted_once(tmp_path: Path) -> None:
    ck = busy(tmp_path, "skip")
    assert ck.saves_skipped >= 1
    store = CheckpointStore(tmp_path)
    metrics = store.manifest("000002-a0").metrics
    assert (metrics.saves_skipped, metrics.saves_waited) == (1, 0)


def test_or_it_waits_and_that_is_counted_too(tmp_path: Path) -> None:
    ck = busy(tmp_path, "wait")
    assert ck.saves_skipped == 0
    assert ck.saves_waited >= 1
    assert ck.waited_s > 0
    metrics = CheckpointStore(tmp_path).manifest("000002-a0").metrics
    assert metrics.saves_waited == 1


def test_it_is_never_due_before_the_one_before_is_durable(tmp_path: Path) -> None:
    """A disk that takes long once: the interval that loses least would be far shorter."""
    begun: list[float] = []
    go_on = threading.Event()

    def hook(step: str) -> None:
        if step == "data-durable":
            assert go_on.wait(10)

    def state() -> tuple[dict[str, Any], None]:
        begun.append(time.monotonic())
        if len(begun) == 1:
            threading.Timer(0.3, go_on.set).start()
        return {"x": np.zeros(3)}, None

    policy = EveryOptimal(mtbf_s=1e-3, unknown_s=0.0, least_s=0.0)
    with Checkpointer(tmp_path, policy=policy, hook=hook) as ck:
        step = 0
        while len(ck.commits) < 3:
            step += 1
            ck.step(step, state)
    first = ck.commits[0].durable_s
    assert first >= 0.3
    assert all(gap >= first for gap in np.diff(begun[:3])), (begun, first)
    assert ck.saves_waited == 0


def test_what_is_left_is_split_evenly_and_the_last_one_is_durable_in_time(tmp_path: Path) -> None:
    begun: list[float] = []

    def state() -> tuple[dict[str, Any], None]:
        begun.append(time.time())
        return {"x": np.zeros(3)}, None

    start = time.time()
    deadline = start + 2.5
    with (
        pytest.raises(SystemExit) as ended,
        Checkpointer(tmp_path, deadline=deadline, deadline_margin_s=1, interval_s=0.6) as ck,
    ):
        step = 0
        while not ck.stopping:
            step += 1
            ck.step(step, state)
    assert ended.value.code == 75
    assert ck.stop_reason == "walltime"
    assert len(ck.commits) == 3, "1.5 s in pieces of at most 0.6 s"
    assert max(np.diff([start, *begun])) < 0.6 + 0.4
    assert begun[-1] + ck.commits[-1].durable_s < deadline


def rotate(gap_s: float, ages: list[float], rules: Retention) -> list[float]:
    """Commit one after the other, prune after each; returns the times that are left."""
    kept: list[Kept] = []
    for number, created_s in enumerate(ages, 1):
        kept.append(Kept(f"{number:06d}-a0", created_s))
        gone = plan_prune(kept, rules, created_s)
        kept = [one for one in kept if one.name not in gone]
    return [one.created_s for one in kept]


@pytest.mark.parametrize("seed", range(5))
def test_what_is_kept_is_never_further_apart_than_the_largest_gap(seed: int) -> None:
    rng = np.random.default_rng(seed)
    times = np.cumsum(rng.uniform(1, 60, 300)).tolist()
    left = rotate(100, times, Retention(rotation=2, max_gap_s=100))
    assert left[0] == times[0]
    assert max(np.diff(left)) <= 100
    assert len(left) < 2 * (times[-1] - times[0]) / 100 + 4, "and not more than it takes"
    left = rotate(100, times, Retention(rotation=2, max_gap_s=100, ttl_s=500))
    assert min(left) >= times[-1] - 600
