"""The planner's interval, estimated anew after each failure, against the best fixed one in
hindsight: on recorded failures that come in bursts and with a trend."""

from __future__ import annotations

import lzma
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from milepost.planner.history import WINDOW_DAYS, History, Source, Tally
from milepost.planner.interval import choose_interval
from milepost.planner.mtbf import estimate
from milepost.planner.simulate import simulate
from milepost.planner.simulation.failures import Replay
from milepost.planner.simulation.job import Job
from milepost.planner.simulation.policies import Pace, View, exact_intervals
from milepost.planner.simulation.trace import read_trace
from milepost.planner.theory import exact_interval, exact_overhead

Array = NDArray[np.float64]

RECORD = (
    Path(__file__).resolve().parents[2].parent
    / "shared/data/traces/lanl_LA-UR-05-7318_failures_1996-2005.csv.xz"
)
"""A public record of failures, used where it lies beside the checkout."""

COSTS = (5.0, 60.0, 300.0, 600.0)
NEAR = 1.02
DAY_S = 86400.0
FEWEST = 50
"""Failures of a system that are enough for a comparison."""


def planned_mtbf(failures: int, exposure_s: float) -> float | None:
    """What the planner makes of attempts that ran so long and failed so often."""
    tally = Tally(failures + 1, exposure_s, exposure_s, None, {1: failures} if failures else {})
    found = estimate(None, History((Source("attempts", "", tally),)), None)
    return found.value_s if found.is_known else None


@dataclass(frozen=True, eq=False)
class Compared:
    """Fixed intervals, and in the last job the planner's: at each start from the failures and the
    time at risk of the window before."""

    intervals_s: Array
    t_ckpt_s: float
    times_s: Array
    saves_last: bool = True

    def pace(self, view: View) -> Pace:
        interval_s = self.intervals_s[view.ids]
        last = np.flatnonzero(view.ids == len(self.intervals_s) - 1)
        if len(last):
            interval_s[last] = self.planned(float(view.now_s[last[0]]))
        return Pace(interval_s, interval_s)

    def planned(self, now_s: float) -> float:
        """The interval for what is known at that moment; the record holds the truth."""
        since_s = max(0.0, now_s - WINDOW_DAYS * DAY_S)
        first, end = np.searchsorted(self.times_s, (since_s, now_s), side="right")
        failures, exposure_s = int(end - first), now_s - since_s
        if not failures:
            mtbf_s = planned_mtbf(0, exposure_s) if exposure_s > 0.0 else None
            return choose_interval(None, self.t_ckpt_s, mtbf_s).seconds
        rate = (failures + 0.5) / exposure_s
        return float(exact_intervals(self.t_ckpt_s, np.array([1.0 / rate]))[0])


@pytest.mark.parametrize(("failures", "exposure_s"), [(1, 5e3), (3, 1e6), (400, 7.7e6)])
def test_the_short_way_to_the_interval_is_the_planners(failures: int, exposure_s: float) -> None:
    times = np.linspace(1.0, exposure_s, failures)
    for cost in COSTS:
        found = Compared(np.ones(1), cost, times).planned(exposure_s)
        wanted = choose_interval(None, cost, planned_mtbf(failures, exposure_s)).seconds
        assert found == pytest.approx(wanted, rel=1e-3)


def compare(record: Replay, t_ckpt_s: float) -> dict[str, float]:
    """Total time with the planner's interval, 120 s, an hour and the best one in hindsight.

    One long job over the whole record: a restore takes as long as a checkpoint, a minute of
    downtime. Nothing is known at its beginning.
    """
    middle = exact_interval(t_ckpt_s, record.mtbf_s)
    expected = exact_overhead(middle, t_ckpt_s, record.mtbf_s, t_ckpt_s, 60.0)
    work_s = 0.97 * record.span_s / (1.0 + expected)
    # Checkpoints alone make some intervals so long that failures need not be played.
    least = {name: work_s * (1.0 + t_ckpt_s / float(name)) for name in ("120", "3600")}
    played = [name for name, wall_s in least.items() if wall_s < 1.5 * record.span_s]
    fixed = [*map(float, played), *(middle * np.geomspace(0.25, 4.0, 33))]
    policy = Compared(np.array([*fixed, 1.0]), t_ckpt_s, record.times_s)
    job = Job(work_s, t_ckpt_s, t_ckpt_s, 60.0)
    wall_s = simulate(job, record, policy, len(fixed) + 1).wall_s
    found = least | {name: float(wall_s[place]) for place, name in enumerate(played)}
    return found | {"planned": float(wall_s[-1]), "best": float(wall_s[:-1].min())}


def bursts(seed: int, count: int = 1200) -> Replay:
    """Gaps of two kinds, seconds to hours in a burst and days between bursts, and an MTBF that
    triples on the way."""
    rng = np.random.default_rng(seed)
    short = rng.random(count) < 0.5
    gaps = np.where(short, rng.exponential(1800.0, count), rng.exponential(50000.0, count))
    times = np.cumsum(gaps * np.linspace(1.0, 3.0, count))
    return Replay(times - times[0], float(times[-1] - times[0]) + 3600.0, from_start=True)


@pytest.mark.parametrize("t_ckpt_s", COSTS)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_planner_is_near_the_best_interval_of_a_bursty_record(
    seed: int, t_ckpt_s: float
) -> None:
    record = bursts(seed)
    gaps = record.gaps_s
    assert gaps.var() / gaps.mean() ** 2 > 2.0
    found = compare(record, t_ckpt_s)
    assert found["planned"] <= NEAR * found["best"]
    assert found["planned"] <= 1.005 * min(found["120"], found["3600"])
    assert max(found["120"], found["3600"]) > NEAR * found["best"]


@pytest.mark.skipif(not RECORD.is_file(), reason="the public record is not beside the checkout")
@pytest.mark.parametrize("t_ckpt_s", COSTS)
def test_the_planner_is_near_the_best_interval_of_every_recorded_system(
    t_ckpt_s: float, systems: dict[str, Replay]
) -> None:
    assert len(systems) >= 20
    for name, record in systems.items():
        found = compare(record, t_ckpt_s)
        assert found["planned"] <= NEAR * found["best"], (name, found)


@pytest.fixture(scope="module")
def systems(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Replay]:
    """The systems of the record with enough failures: each as one job on the whole of it."""
    header, *lines = lzma.decompress(RECORD.read_bytes()).decode().splitlines(keepends=True)
    rows: dict[str, list[str]] = {}
    for line in lines:
        rows.setdefault(line.partition(",")[0], [header]).append(line)
    folder, found = tmp_path_factory.mktemp("record"), {}
    for name, mine in rows.items():
        if len(mine) > FEWEST:
            path = folder / f"{name}.csv"
            path.write_text("".join(mine), encoding="utf-8")
            found[name] = read_trace(path, from_start=True)
    assert read_trace(RECORD, only={"System": "3"}).times_s.tolist() == found["3"].times_s.tolist()
    return found
