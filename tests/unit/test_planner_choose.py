"""The choice of profile and mode in a plan: each constraint where it binds, and what it says."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import pytest

from milepost.config.spec import CheckpointSpec, PlannerSpec, Resources, RunSpec, WorkSpec
from milepost.errors import Refused
from milepost.model import WorkKind
from milepost.planner.make import make_plan
from milepost.planner.report import report_html
from milepost.planner.sharding import RowSizes

Json = dict[str, Any]
HOUR = 3600.0
FLOW = RunSpec(
    "flow",
    WorkSpec(WorkKind.RESUMABLE, "members.csv", command="solve {case}"),
    resources=Resources(cpus=4, gpus=1, runtime_s=24 * 3600),
    checkpoint=CheckpointSpec(gold_every=None),
)
SMOKE: Json = {
    "contract_digest": "sha256:aa",
    "passed": True,
    "slice": {"tasks": 1, "set": {}},
    "measured": {
        "task_s": {"median": 10 * HOUR, "p95": 11 * HOUR, "n": 3},
        "startup_s": 30.0,
        "t_ckpt_s": {"median": 20.0, "p95": 30.0, "n": 5},
        "durable_s": 45.0,
        "ckpt_bytes": 10**10,
        "restore_s": 25.0,
        "step_s": 0.2,
    },
}


def offer(price: float | None, **terms: Any) -> Json:
    return {"price_per_h": price, "gpus_max": 4} | terms


def profile(vram_gb: float = 80, **modes: Json) -> Json:
    return {"vram_gb": vram_gb, "modes": {key.replace("_", "-"): one for key, one in modes.items()}}


def file(storage: Json | None = None, utilisation: float = 1.0, **profiles: Json) -> Json:
    free = {"price_per_gb_month": 0}
    return {
        "schema": 1,
        "currency": "EUR",
        "utilisation": utilisation,
        "storage": free if storage is None else storage,
        "profiles": profiles,
    }


def planned(files: Json, spec: RunSpec = FLOW, rows: int = 4, **wishes: Any) -> Json:
    spec = replace(spec, planner=PlannerSpec(**wishes))
    return make_plan(spec, SMOKE, rows, [], files)


def where(plan: Json) -> dict[str, int]:
    return {f"{one['profile']}, {one['mode']}": one["shards"] for one in plan["placement"]}


def refusal(files: Json, spec: RunSpec = FLOW, rows: int = 4, **wishes: Any) -> str:
    with pytest.raises(Refused) as caught:
        planned(files, spec, rows, **wishes)
    return str(caught.value)


CHEAP_SLOW = profile(24, on_demand=offer(1.0))
DEAR_FAST = profile(80, on_demand=offer(4.0)) | {"speed": 2.0, "write_speed": 2.0}


class TestConstraintsBind:
    def test_deadline(self) -> None:
        files = file(slow=CHEAP_SLOW, fast=DEAR_FAST)
        assert where(planned(files)) == {"slow, on-demand": 4}
        plan = planned(files, deadline_h=6.0)
        assert where(plan) == {"fast, on-demand": 4} and plan["expected_s"] <= 6 * HOUR
        assert "deadline" in refusal(files, deadline_h=5.0)

    def test_budget(self) -> None:
        files = file(slow=CHEAP_SLOW, fast=DEAR_FAST)
        assert where(planned(files, budget=200.0)) == {"fast, on-demand": 4}
        plan = planned(files, rows=8, budget=140.0)
        assert plan["cost"]["total"] <= 140.0
        assert where(plan) == {"slow, on-demand": 4, "fast, on-demand": 4}
        least = planned(files)["cost"]["total"]
        assert f"budget: {least:.1f}"[:10] in refusal(files, budget=30.0)

    def test_capacity(self) -> None:
        few = file(slow=profile(24, on_demand=offer(1.0, gpus_max=1)))
        assert planned(few)["expected_s"] == pytest.approx(4 * planned(few, rows=1)["expected_s"])
        assert "gpus_max: 4 for slow, on-demand" in refusal(few, deadline_h=12.0)

    def test_gpus_of_a_profile_are_shared_by_its_modes(self) -> None:
        modes = {"on_demand": offer(1.0), "reserved": offer(1.0)}
        shared = file(slow=profile(24, **modes) | {"gpus_max": 4})
        own = file(slow=profile(24, **modes))
        assert planned(own, rows=8, budget=1e3)["expected_s"] < 12 * HOUR
        assert planned(shared, rows=8, budget=1e3)["expected_s"] > 20 * HOUR

    def test_memory(self) -> None:
        files = file(slow=profile(8, on_demand=offer(1.0)), fast=DEAR_FAST)
        assert where(planned(files)) == {"fast, on-demand": 4}
        assert "a GPU needs 10 GB" in refusal(file(slow=profile(8, on_demand=offer(1.0))))

    def test_walltime(self) -> None:
        """Two minutes do not hold a start, a checkpoint and the margin."""
        short = profile(24, on_demand=offer(1.0, walltime_max_h=1 / 30))
        assert where(planned(file(slow=short, fast=DEAR_FAST))) == {"fast, on-demand": 4}
        assert "walltime_max_h: 0.0" in refusal(file(slow=short))

    def test_a_short_walltime_costs_further_starts(self) -> None:
        long = planned(file(slow=profile(24, on_demand=offer(1.0))))
        short = planned(file(slow=profile(24, on_demand=offer(1.0, walltime_max_h=1.0))))
        assert short["placement"][0]["walltime_s"] == 3600
        assert short["expected_s"] > long["expected_s"] + 9 * 60
        assert any("walltime_max_h is 1 h" in note for note in short["notes"])

    def test_storage(self) -> None:
        """20 GB a checkpoint on the fast class until one is measured; 4 shards keep three each."""
        files = file({"price_per_gb_month": 0, "capacity_gb": 121}, slow=CHEAP_SLOW)
        assert planned(files)["choice"]["stored_gb"] == pytest.approx(120)
        tight = file({"price_per_gb_month": 0, "capacity_gb": 119}, slow=CHEAP_SLOW)
        assert "storage.capacity_gb: 120" in refusal(tight)

    def test_utilisation(self) -> None:
        """A reservation that is half idle costs twice as much, and is not chosen then."""
        busy = file(a=profile(24, on_demand=offer(1.0), reserved=offer(0.6, utilisation=1.0)))
        idle = file(a=profile(24, on_demand=offer(1.0), reserved=offer(0.6, utilisation=0.5)))
        assert planned(busy)["mode"] == "reserved"
        assert planned(idle)["mode"] == "on-demand"
        costs = [planned(file(utilisation=u, a=CHEAP_SLOW))["cost"]["total"] for u in (1.0, 0.5)]
        assert costs[1] == pytest.approx(2 * costs[0], rel=1e-4)
        assert "budget" in refusal(file(utilisation=0.5, a=CHEAP_SLOW), budget=60.0)
        planned(file(a=CHEAP_SLOW), budget=60.0)


class TestModes:
    def test_each_has_its_own_failures_notice_and_price(self) -> None:
        """Interruptible is cheap until it is interrupted too often with too little notice."""
        rare = offer(0.8, preempt_mtbf_h=100.0, notice_s=300)
        often = offer(0.8, preempt_mtbf_h=0.2, notice_s=1)
        assert planned(file(a=profile(24, on_demand=offer(1.0), interruptible=rare)))["mode"] == (
            "interruptible"
        )
        assert planned(file(a=profile(24, on_demand=offer(1.0), interruptible=often)))["mode"] == (
            "on-demand"
        )
        noticed = planned(
            file(a=profile(24, interruptible=offer(0.5, preempt_mtbf_h=0.5, notice_s=600)))
        )
        sudden = planned(file(a=profile(24, interruptible=offer(0.5, preempt_mtbf_h=0.5))))
        assert noticed["overhead"]["fraction"] < sudden["overhead"]["fraction"]

    def test_the_mtbf_of_a_mode_moves_cost_and_interval(self) -> None:
        frail = offer(1.0, mtbf_h=2.0)
        sound = offer(1.0, mtbf_h=200.0)
        plans = [planned(file(a=profile(24, on_demand=one))) for one in (frail, sound)]
        assert plans[0]["interval_s"] < plans[1]["interval_s"]
        assert plans[0]["cost"]["total"] > plans[1]["cost"]["total"]
        both = planned(file(a=profile(24, on_demand=frail, reserved=sound)))
        assert both["mode"] == "reserved"


class TestStorageCost:
    PRICED: ClassVar[Json] = {"price_per_gb_month": 0.1}

    def test_it_is_part_of_the_total(self) -> None:
        plan = planned(file(self.PRICED, a=CHEAP_SLOW))
        cost = plan["cost"]
        kept = next(r["value"] for r in plan["assumptions"] if r["name"] == "kept_bytes")
        assert kept == 3 * 10**10
        expected = 4 * 30.0 * 0.1 * 30.0 / (365.25 / 12)
        assert cost["storage"] == pytest.approx(expected, rel=1e-4)
        parts = cost["compute"] + cost["overhead"] + cost["storage"]
        assert cost["total"] == pytest.approx(parts, rel=1e-5)
        assert "budget" in refusal(file(self.PRICED, a=CHEAP_SLOW), budget=cost["total"] - 0.5)

    def test_an_unknown_price_is_not_zero(self) -> None:
        for storage in ({}, {"price_per_gb_month": None}):
            cost = planned(file(storage, a=CHEAP_SLOW))["cost"]
            assert (cost["storage"], cost["total"]) == (None, None)
            assert cost["running"] > 40.0
        plan = planned(file({}, a=CHEAP_SLOW), budget=60.0)
        assert any("checked without storage" in note for note in plan["notes"])

    def test_checkpoints_without_an_end_have_no_price(self) -> None:
        forever = replace(FLOW, checkpoint=CheckpointSpec(ttl_days=None))
        assert planned(file(self.PRICED, a=CHEAP_SLOW), forever)["cost"]["storage"] is None

    def test_gold_generations_are_kept_too(self) -> None:
        often = replace(FLOW, checkpoint=CheckpointSpec(interval_s=360.0, gold_every=10))
        plan = planned(file(self.PRICED, a=CHEAP_SLOW), often)
        kept = next(r["value"] for r in plan["assumptions"] if r["name"] == "kept_bytes")
        assert kept == (3 + 10) * 10**10

    def test_batch_stores_no_checkpoints(self) -> None:
        spec = replace(FLOW, work=WorkSpec(WorkKind.STAGES, "m.csv", command="x"))
        assert planned(file({}, a=CHEAP_SLOW), spec)["cost"]["storage"] == 0.0


def test_without_a_measured_checkpoint_no_overhead_is_made_up() -> None:
    blind = {**SMOKE, "measured": {**SMOKE["measured"], "t_ckpt_s": None}}
    spec = replace(FLOW, planner=PlannerSpec(budget=60.0))
    plan = make_plan(spec, blind, 4, [], file(slow=CHEAP_SLOW, fast=DEAR_FAST))
    assert where(plan) == {"slow, on-demand": 4}
    assert (plan["cost"], plan["expected_s"], plan["frontier"]) == (None, None, [])
    assert any("by useful time alone" in note for note in plan["notes"])
    assert "overhead of a shard are not known" in report_html(plan)


class TestSizes:
    def sized(self, *values: float, **wishes: Any) -> Json:
        spec = replace(FLOW, planner=PlannerSpec(**wishes))
        files = file(slow=CHEAP_SLOW, fast=DEAR_FAST)
        return make_plan(spec, SMOKE, len(values), [], files, None, RowSizes(values, 2.0))

    def test_rows_of_different_work_take_different_times(self) -> None:
        plan = self.sized(1.0, 2.0, 2.0, 6.0)
        assert [one["size"] for one in plan["classes"]] == [0.5, 1.0, 3.0]
        assert [one["useful_s"] for one in plan["classes"]] == [5 * HOUR, 10 * HOUR, 30 * HOUR]
        assert plan["overhead"]["useful_s"] == 55 * HOUR
        assert plan["size_unit"] == 2.0

    def test_a_deadline_moves_the_long_ones(self) -> None:
        plan = self.sized(1.0, 2.0, 2.0, 6.0, deadline_h=17.0)
        by_profile = {one["profile"]: one["classes"] for one in plan["placement"]}
        assert by_profile["fast"] == [{"class": 2, "shards": 1}]
        assert by_profile["slow"] == [{"class": 0, "shards": 1}, {"class": 1, "shards": 2}]
        assert plan["choice"]["class_error"] == 0.0
        walltimes = {one["profile"]: one["walltime_s"] for one in plan["placement"]}
        assert walltimes["fast"] > walltimes["slow"]


class TestRefusal:
    def test_it_names_each_binding_constraint_with_one_number(self) -> None:
        files = file(a=profile(24, on_demand=offer(1.0, gpus_max=1)))
        text = refusal(files, deadline_h=20.0)
        assert "deadline and capacity bind" in text or "capacity and deadline bind" in text
        for part in text.partition("the least change is ")[2].split(" (or "):
            assert any(character.isdigit() for character in part)

    def test_each_number_works_and_a_bit_less_does_not(self) -> None:
        files = file(a=profile(24, on_demand=offer(1.0, gpus_max=1)))
        text = refusal(files, deadline_h=20.0)
        hours = float(text.partition("deadline_h: ")[2].split()[0].rstrip(";)"))
        planned(files, deadline_h=hours)
        refusal(files, deadline_h=hours * 0.99)
        gpus = int(text.partition("gpus_max: ")[2].split()[0])
        planned(file(a=profile(24, on_demand=offer(1.0, gpus_max=gpus))), deadline_h=20.0)
        refusal(file(a=profile(24, on_demand=offer(1.0, gpus_max=gpus - 1))), deadline_h=20.0)


class TestNumbers:
    def test_the_textbook_stands_beside_the_exact(self) -> None:
        plan = planned(file(a=profile(24, on_demand=offer(1.0, mtbf_h=1.0))))
        rows = {row["name"]: row for row in plan["numbers"]}
        interval_s, mtbf_s = plan["interval_s"], plan["overhead"]["mtbf_s"]
        assert rows["I_opt"]["textbook"] == pytest.approx((2 * 20 * mtbf_s) ** 0.5, rel=1e-5)
        assert rows["Overhead_ckpt"]["textbook"] == pytest.approx(20 / interval_s, rel=1e-4)
        assert rows["Loss_expected"]["textbook"] == pytest.approx(
            interval_s / (2 * mtbf_s), rel=1e-4
        )
        lost = rows["Overhead_seconds"]["textbook"]
        assert rows["Cost_overhead"]["textbook"] == pytest.approx(lost / 3600, rel=1e-4)
        total = sum(rows[n]["textbook"] for n in ("Cost_compute", "Cost_overhead", "Storage_cost"))
        assert rows["Cost_total"]["textbook"] == pytest.approx(total, rel=1e-5)
        assert rows["Cost_total"]["exact"] == pytest.approx(plan["cost"]["total"])
        assert rows["Cost_overhead"]["is_notable"]
        assert any("textbook formula gives" in note for note in plan["notes"])

    def test_without_prices_money_is_not_known(self) -> None:
        rows = {row["name"]: row for row in make_plan(FLOW, SMOKE, 4)["numbers"]}
        assert rows["Cost_total"]["exact"] is None and rows["Cost_total"]["textbook"] is None
        assert not rows["Cost_total"]["is_notable"]


class TestFrontier:
    def test_no_point_is_beaten_and_the_chosen_is_among_them(self) -> None:
        plan = planned(file(slow=CHEAP_SLOW, fast=DEAR_FAST), rows=12, deadline_h=15.0)
        points = plan["frontier"]
        assert [p["time_s"] for p in points] == sorted(p["time_s"] for p in points)
        assert [p["cost"] for p in points] == sorted((p["cost"] for p in points), reverse=True)
        (chosen,) = [p for p in points if p["is_chosen"]]
        assert chosen["shards"] == where(plan)
        assert all(sum(p["shards"].values()) == 12 for p in points)
        for point in points:  # each is what a plan with that deadline comes to
            again = planned(
                file(slow=CHEAP_SLOW, fast=DEAR_FAST), rows=12, deadline_h=point["time_s"] / 3599.0
            )
            assert again["cost"]["total"] == pytest.approx(point["cost"], rel=1e-4)
