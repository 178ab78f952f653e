"""plan.json from the contract, the smoke test, the attempts and the profiles."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from typing import Any

import pytest

from milepost.config.spec import (
    CheckpointSpec,
    PlannerSpec,
    Resources,
    RunSpec,
    ShardsSpec,
    SlurmSpec,
    StageSpec,
    WorkSpec,
)
from milepost.errors import ConfigError, Refused
from milepost.model import WorkKind
from milepost.planner.make import make_plan
from milepost.planner.report import report_html
from milepost.planner.summary import summarise
from milepost.planner.theory import exact_interval, exact_overhead
from milepost.slurm.past import PastJobs
from milepost.slurm.sacct_text import PAST, parse_rows

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:pulp")

HOUR = 3600.0
BATCH = RunSpec(
    "sweep",
    WorkSpec(WorkKind.BATCH, "tasks.csv", command="fit {C}"),
    resources=Resources(cpus=2, runtime_s=7200),
    shards=ShardsSpec(target_s=600),
)
RESUMABLE = RunSpec(
    "flow",
    WorkSpec(WorkKind.RESUMABLE, "members.csv", command="solve {case}"),
    resources=Resources(cpus=4, gpus=1, runtime_s=24 * 3600),
)


def smoke(**measured: Any) -> dict[str, Any]:
    found = {
        "task_s": {"median": 1.2, "p95": 1.9, "n": 4},
        "startup_s": 3.0,
        "t_ckpt_s": None,
        "durable_s": None,
        "ckpt_bytes": None,
        "restore_s": None,
        "step_s": None,
    }
    return {
        "contract_digest": "sha256:aa",
        "passed": True,
        "slice": {"tasks": 4, "set": {}},
        "measured": found | measured,
    }


def long_smoke(**measured: Any) -> dict[str, Any]:
    return smoke(
        **{
            "task_s": {"median": 36000.0, "p95": 40000.0, "n": 1},
            "startup_s": 30.0,
            "t_ckpt_s": {"median": 20.0, "p95": 30.0, "n": 5},
            "durable_s": 45.0,
            "ckpt_bytes": 10**10,
            "restore_s": 25.0,
            "step_s": 0.2,
        }
        | measured
    )


def profiles(**price: float | None) -> dict[str, Any]:
    """Two classes; `price` by mode of the small one, the large one costs three times as much."""
    modes = {
        "on-demand": {"price_per_h": price.get("on_demand", 2.0), "gpus_max": 4},
        "interruptible": {
            "price_per_h": price.get("interruptible", 0.6),
            "preempt_mtbf_h": 4.0,
            "notice_s": 30,
            "gpus_max": 4,
        },
    }
    large = copy.deepcopy(modes)
    for terms in large.values():
        terms["price_per_h"] = None if terms["price_per_h"] is None else terms["price_per_h"] * 3
    return {
        "schema": 1,
        "currency": "EUR",
        "utilisation": 0.8,
        "storage": {"price_per_gb_month": 0},
        "profiles": {
            "gpu-24gb": {"vram_gb": 24, "modes": modes},
            "gpu-80gb": {"vram_gb": 80, "speed": 2.0, "write_speed": 2.0, "modes": large},
        },
    }


def source(plan: dict[str, Any], name: str) -> str:
    return str(next(row["source"] for row in plan["assumptions"] if row["name"] == name))


def value(plan: dict[str, Any], name: str) -> Any:
    return next(row["value"] for row in plan["assumptions"] if row["name"] == name)


def test_batch_is_cut_by_measured_seconds() -> None:
    plan = make_plan(BATCH, smoke(), 5000)
    assert (plan["tasks_per_shard"], plan["shard_count"]) == (834, 6)
    assert plan["shard_s"] == pytest.approx(3 + 417 * 1.2)
    assert plan["walltime_s"] == 15 * 60
    assert plan["interval_s"] == 120.0
    assert (plan["mode"], plan["profile"], plan["cost"]) == ("on-demand", None, None)
    assert source(plan, "task_s") == "measured by the smoke test"
    assert source(plan, "mtbf_s") == "default"
    assert source(plan, "runtime_s") == "stated in the config"
    assert plan["overhead"]["fraction"] == pytest.approx(
        exact_overhead(1.2, 0, 24 * HOUR, 3.0, 60.0), rel=1e-5
    )


def test_a_long_start_up_is_noted() -> None:
    plan = make_plan(BATCH, smoke(startup_s=400.0), 5000)
    assert any("start-up takes 6.67 min" in note for note in plan["notes"])
    assert not make_plan(BATCH, smoke(), 5000)["notes"]


def test_walltime_is_never_above_the_stated_runtime() -> None:
    short = replace(BATCH, resources=Resources(cpus=2, runtime_s=500))
    plan = make_plan(short, smoke(), 5000)
    assert plan["walltime_s"] == 500
    assert any("allocations" in note for note in plan["notes"])
    assert source(plan, "walltime_s").startswith("stated")


def test_stages_and_resumable_work_have_a_shard_a_row() -> None:
    stages = tuple(StageSpec(name, "x", ("y",)) for name in ("align", "sort"))
    spec = replace(BATCH, work=WorkSpec(WorkKind.STAGES, "members.csv", stages=stages))
    plan = make_plan(spec, smoke(), 7)
    assert (plan["tasks_per_shard"], plan["shard_count"]) == (None, 7)
    assert plan["overhead"]["unit_s"] == pytest.approx(0.6)
    plan = make_plan(RESUMABLE, long_smoke(), 3)
    assert (plan["tasks_per_shard"], plan["shard_count"], plan["shard_s"]) == (None, 3, 36000.0)


DAILY = replace(RESUMABLE, planner=PlannerSpec(mtbf_h=24.0))


def test_interval_is_the_optimum_in_whole_chunks() -> None:
    plan = make_plan(DAILY, long_smoke(), 3)
    best = exact_interval(20.0, 24 * HOUR)
    chunks = 36000.0 / plan["interval_s"]
    assert chunks == pytest.approx(round(chunks), rel=1e-5)
    assert plan["interval_s"] == pytest.approx(best, rel=0.05)
    assert plan["interval_source"] == "computed from the measured t_ckpt and the MTBF"
    assert plan["overhead"]["fraction"] > plan["overhead"]["textbook_fraction"]
    assert any("textbook" in note for note in plan["notes"])


def test_interval_fits_the_walltime_when_the_work_does_not() -> None:
    spec = replace(DAILY, resources=Resources(cpus=4, gpus=1, runtime_s=4 * 3600))
    plan = make_plan(spec, long_smoke(), 1)
    left = 4 * HOUR - (30.0 + 0.2 + 60.0) - 25.0
    parts = left / (plan["interval_s"] + 20.0)
    assert parts == pytest.approx(round(parts), rel=1e-5)
    assert any("fitted to the walltime" in note for note in plan["notes"])


def test_the_number_of_the_contract_wins() -> None:
    spec = replace(RESUMABLE, checkpoint=CheckpointSpec(interval_s=300.0))
    plan = make_plan(spec, long_smoke(), 1)
    assert plan["interval_s"] == 300.0
    assert plan["interval_source"].startswith("stated in the config")


def test_nothing_measured_is_120_seconds_and_says_default() -> None:
    plan = make_plan(RESUMABLE, smoke(), 1)
    assert plan["interval_s"] == 120.0
    assert plan["interval_source"].startswith("default")
    assert plan["overhead"]["fraction"] is None
    assert value(plan, "t_ckpt_s") is None
    assert source(plan, "t_ckpt_s") == "not measured"


def test_nothing_known_of_failures_is_120_seconds_and_says_default() -> None:
    quick = long_smoke(t_ckpt_s={"median": 2.0, "p95": 3.0, "n": 5})
    plan = make_plan(RESUMABLE, quick, 1)
    assert plan["interval_s"] == 120.0
    assert plan["interval_source"] == "default, nothing is known of failures"
    assert source(plan, "mtbf_s") == "default"
    assert plan["mtbf"]["failures"]["is_known"] is False


def test_the_default_gives_way_to_a_checkpoint_that_takes_long() -> None:
    plan = make_plan(RESUMABLE, long_smoke(), 1)
    assert plan["interval_s"] == 400.0
    assert any("lengthened to 400 s" in note for note in plan["notes"])


def test_the_default_is_fitted_to_a_walltime_that_the_work_does_not_fit_into() -> None:
    spec = replace(RESUMABLE, resources=Resources(cpus=4, gpus=1, runtime_s=4 * 3600))
    plan = make_plan(spec, long_smoke(t_ckpt_s={"median": 2.0, "p95": 3.0, "n": 5}), 1)
    left = 4 * HOUR - (3.0 + 0.2 + 60.0) - 25.0
    assert left / (plan["interval_s"] + 2.0) == pytest.approx(round(left / 122.0), rel=1e-5)


@pytest.mark.parametrize("stated", [None, 900.0])
def test_interruptible_mode_keeps_to_120_seconds(stated: float | None) -> None:
    spec = replace(
        RESUMABLE,
        planner=PlannerSpec(mode="interruptible"),
        checkpoint=CheckpointSpec(interval_s=stated),
    )
    plan = make_plan(spec, long_smoke(), 1)
    assert plan["interval_s"] == 120.0
    assert any("interruptible" in note for note in plan["notes"])


@pytest.mark.parametrize("stated", [None, 10.0])
def test_interval_is_not_shorter_than_durability_takes(stated: float | None) -> None:
    spec = replace(
        RESUMABLE,
        planner=PlannerSpec(mode="interruptible"),
        checkpoint=CheckpointSpec(interval_s=stated),
    )
    plan = make_plan(spec, long_smoke(durable_s=200.0), 1)
    assert plan["interval_s"] == 200.0
    assert any("durable" in note for note in plan["notes"])


def test_a_reduced_slice_says_nothing_about_the_run() -> None:
    reduced = long_smoke()
    reduced["slice"]["set"] = {"sweeps": "10"}
    plan = make_plan(RESUMABLE, reduced, 2)
    assert plan["shard_s"] is None
    assert plan["overhead"]["seconds"] is None
    assert plan["overhead"]["fraction"] is not None
    assert plan["walltime_s"] == RESUMABLE.resources.runtime_s
    assert any("overwrote sweeps" in note for note in plan["notes"])


def test_attempts_of_the_run_move_the_mtbf() -> None:
    times = {"started": "2026-01-01T00:00:00Z", "last_sign": "2026-01-01T02:00:00Z"}
    lost = {"stop": None, "ended": None, "finding": None, **times}
    plan = make_plan(RESUMABLE, long_smoke(), 1, [lost, lost])
    assert value(plan, "mtbf_s") == pytest.approx(4 * HOUR / 2.5)
    assert source(plan, "mtbf_s") == "2 failures in 4 node h of the run's attempts"
    assert plan["interval_s"] == pytest.approx(exact_interval(20.0, 4 * HOUR / 2.5), rel=0.05)
    assert value(plan, "attempts_failures") == 2
    assert value(plan, "attempts_node_h") == pytest.approx(4.0)
    assert value(plan, "accounting_executions") is None, "nobody was asked: n/a, not 0"
    assert source(plan, "accounting_executions") == "not asked"
    assert plan["mtbf"]["sources"][0]["node_s"] is None
    assert plan["mtbf"]["sources"][1]["node_s"] == 4 * HOUR


def test_the_cheapest_pair_is_chosen_and_priced() -> None:
    plan = make_plan(RESUMABLE, long_smoke(), 4, profiles=profiles())
    assert (plan["profile"], plan["mode"]) == ("gpu-24gb", "interruptible")
    assert plan["interval_s"] == 120.0
    useful = 4 * 36000.0
    startup = 4 * 30.0
    expected = 0.6 / 0.8 * (useful * (1 + plan["overhead"]["fraction"]) + startup) / 3600
    assert plan["cost"]["total"] == pytest.approx(expected, rel=1e-5)
    assert plan["cost"]["currency"] == "EUR"
    (part,) = plan["placement"]
    assert (part["profile"], part["mode"]) == ("gpu-24gb", "interruptible")
    assert (part["shards"], part["interval_s"]) == (4, 120.0)
    assert source(plan, "notice_s") == "stated in the profile"


def test_a_deadline_chooses_the_fast_machine() -> None:
    spec = replace(RESUMABLE, planner=PlannerSpec(deadline_h=6.0))
    plan = make_plan(spec, long_smoke(), 4, profiles=profiles())
    assert plan["profile"] == "gpu-80gb"
    assert plan["expected_s"] <= 6 * HOUR


def test_a_budget_alone_asks_for_the_soonest() -> None:
    spec = replace(RESUMABLE, planner=PlannerSpec(budget=500.0))
    plan = make_plan(spec, long_smoke(), 4, profiles=profiles())
    assert (plan["profile"], plan["mode"]) == ("gpu-80gb", "on-demand")
    assert plan["cost"]["total"] <= 500.0


def test_what_cannot_be_met_is_refused_with_the_least_change() -> None:
    spec = replace(RESUMABLE, planner=PlannerSpec(deadline_h=1.0, budget=1000.0))
    with pytest.raises(Refused, match="deadline binds") as caught:
        make_plan(spec, long_smoke(), 4, profiles=profiles())
    assert "deadline_h: 5." in str(caught.value)
    larger = long_smoke(ckpt_bytes=10**11)
    with pytest.raises(Refused, match="memory binds"):
        make_plan(RESUMABLE, larger, 4, profiles=profiles())


def test_memory_excludes_the_small_class() -> None:
    plan = make_plan(RESUMABLE, long_smoke(ckpt_bytes=40 * 10**9), 4, profiles=profiles())
    assert plan["profile"] == "gpu-80gb"


def test_prices_that_are_not_known_make_the_cost_not_known() -> None:
    unknown = profiles(on_demand=None, interruptible=None)
    plan = make_plan(RESUMABLE, long_smoke(), 4, profiles=unknown)
    assert (plan["profile"], plan["cost"]) == (None, None)
    assert any("no profile has a price" in note for note in plan["notes"])


def test_profiles_are_not_for_work_without_gpus() -> None:
    spec = replace(BATCH, planner=PlannerSpec(deadline_h=1.0))
    plan = make_plan(spec, smoke(), 100, profiles=profiles())
    assert plan["profile"] is None
    assert any("were not checked" in note for note in plan["notes"])


def test_a_mode_that_no_profile_offers() -> None:
    spec = replace(RESUMABLE, planner=PlannerSpec(mode="reserved"))
    with pytest.raises(ConfigError, match="no profile offers mode reserved"):
        make_plan(spec, long_smoke(), 1, profiles=profiles())


def test_work_that_cannot_finish_is_said_and_not_a_number() -> None:
    spec = replace(
        RESUMABLE,
        planner=PlannerSpec(mtbf_h=0.001),
        checkpoint=CheckpointSpec(interval_s=36000.0),
    )
    plan = make_plan(spec, long_smoke(), 1)
    assert plan["overhead"]["fraction"] is None
    assert any("leave no time to finish" in note for note in plan["notes"])
    json.dumps(plan, allow_nan=False)
    report_html(plan)


def test_same_inputs_same_bytes() -> None:
    def once() -> tuple[str, str, str]:
        plan = make_plan(RESUMABLE, long_smoke(), 4, [], profiles())
        return json.dumps(plan), report_html(plan), summarise(plan)

    assert once() == once()


@pytest.mark.parametrize("spec", [BATCH, RESUMABLE])
def test_summary_is_ten_lines_of_eighty_columns(spec: RunSpec) -> None:
    for measured in (smoke(), long_smoke()):
        lines = summarise(make_plan(spec, measured, 5000)).splitlines()
        assert len(lines) == 10
        assert max(map(len, lines)) <= 80


def test_report_stands_alone_and_names_every_assumption() -> None:
    plan = make_plan(RESUMABLE, long_smoke(), 4, [], profiles())
    page = report_html(plan)
    for forbidden in ("http:", "https:", "<script", "src=", "@import", "<link"):
        assert forbidden not in page
    for row in plan["assumptions"]:
        assert f"<code>{row['name']}</code>" in page
    assert page.count('class="curve"') == 1
    for kind in ("chosen", "best", "usual"):
        assert f'class="{kind}"' in page
    assert 'class="band"' in page
    assert "prefers-color-scheme: dark" in page


def test_report_escapes_what_users_write() -> None:
    plan = make_plan(BATCH, smoke(), 4)
    plan["notes"] = ["<b>bold</b>"]
    assert "<b>" not in report_html(plan)
    assert "no interval to choose" in report_html(plan)


def test_preemptions_of_the_past_count_in_interruptible_mode_only() -> None:
    lines = [
        "|".join(PAST),
        "1|1|PREEMPTED|2026-02-22T00:00:00|2026-02-22T00:00:00|2026-02-22T03:00:00|10800|1||spare|low",
        "2|2|NODE_FAIL|2026-02-22T00:00:00|2026-02-22T00:00:00|2026-02-22T09:00:00|32400|1||main|n",
    ]
    rows = parse_rows("\n".join(lines), separator="|")
    jobs = PastJobs(1771000000.0, 1772359200.0, tuple(rows))
    calm = make_plan(RESUMABLE, long_smoke(), 1, jobs=jobs)
    assert calm["mtbf"]["preemptions"] is None
    assert calm["overhead"]["mtbf_s"] == pytest.approx(12 * HOUR / 1.5)
    spot = replace(RESUMABLE, planner=PlannerSpec(mode="interruptible"))
    exposed = make_plan(spot, long_smoke(), 1, jobs=jobs)
    assert value(exposed, "preemption_mtbf_s") == pytest.approx(3 * HOUR / 1.5)
    assert exposed["overhead"]["mtbf_s"] < 2 * HOUR
    named = replace(RESUMABLE, slurm=SlurmSpec(partition="spare"))
    assert make_plan(named, long_smoke(), 1, jobs=jobs)["mtbf"]["preemptions"] is not None


@pytest.mark.parametrize(
    ("key", "number", "moved"),
    [
        ("task_s", {"median": 100000.0, "p95": 110000.0, "n": 1}, ("shard_s", "notes")),
        ("t_ckpt_s", {"median": 80.0, "p95": 90.0, "n": 5}, ("interval_s", "overhead")),
        ("durable_s", 5000.0, ("interval_s",)),
        ("restore_s", 4000.0, ("overhead", "walltime_s")),
        ("startup_s", 4000.0, ("overhead", "walltime_s")),
        ("step_s", 900.0, ("walltime_s",)),
        ("ckpt_bytes", 30 * 10**9, ("profile", "cost")),
        ("max_rss_bytes", 3 << 30, ("memory", "notes")),
    ],
)
def test_each_number_of_the_smoke_test_moves_the_plan(
    key: str, number: Any, moved: tuple[str, ...]
) -> None:
    spec = replace(
        RESUMABLE,
        resources=Resources(cpus=4, gpus=1, runtime_s=24 * 3600, mem_mb=3000),
        planner=PlannerSpec(mtbf_h=24.0, mode="on-demand"),
    )
    before = make_plan(spec, long_smoke(max_rss_bytes=1 << 30), 4, profiles=profiles())
    changed = long_smoke(**{"max_rss_bytes": 1 << 30, key: number})
    after = make_plan(spec, changed, 4, profiles=profiles())
    for name in moved:
        assert after[name] != before[name], name


def test_memory_is_that_of_all_tasks_that_run_at_once() -> None:
    plan = make_plan(BATCH, smoke(max_rss_bytes=500 << 20), 100)
    assert plan["memory"] == {
        "max_rss_bytes": 500 << 20,
        "at_once": 2,
        "needed_mb": 1200,
        "asked_mb": 1000,
    }
    note = "a task took up to 500 MB, 2 run at once: resources.mem_mb 1000 is too little"
    assert any(one.startswith(note) for one in plan["notes"])
    ample = replace(BATCH, resources=Resources(cpus=2, mem_mb=64000, runtime_s=7200))
    assert any("far more" in one for one in make_plan(ample, smoke(max_rss_bytes=1), 9)["notes"])
    unknown = make_plan(BATCH, smoke(), 100)
    assert (unknown["memory"]["needed_mb"], unknown["notes"]) == (None, [])
