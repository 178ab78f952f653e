"""The plan's page in a real browser: it says what plan.json says, to every reader."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.browser import Browser
from milepost.config.spec import PlannerSpec, Resources, RunSpec, ShardsSpec, WorkSpec
from milepost.model import WorkKind
from milepost.planner.axes import Linear, LogSeconds
from milepost.planner.chart import draw
from milepost.planner.chart_cost import draw_cost
from milepost.planner.make import make_plan
from milepost.planner.report import report_html
from milepost.planner.theory import exact_interval

Json = dict[str, Any]
HOUR = 3600.0
FLOW = RunSpec(
    "flow",
    WorkSpec(WorkKind.RESUMABLE, "members.csv", command="solve {case}"),
    resources=Resources(cpus=4, gpus=1, runtime_s=24 * 3600),
    planner=PlannerSpec(deadline_h=26.0, budget=900.0),
)
BATCH = RunSpec(
    "sweep",
    WorkSpec(WorkKind.BATCH, "tasks.csv", command="fit {C}"),
    resources=Resources(cpus=2, runtime_s=7200),
    shards=ShardsSpec(target_s=600),
)
SMOKE: Json = {
    "contract_digest": "sha256:aa",
    "passed": True,
    "slice": {"tasks": 1, "set": {}},
    "measured": {
        "task_s": {"median": 36000.0, "p95": 40000.0, "n": 1},
        "startup_s": 30.0,
        "t_ckpt_s": {"median": 20.0, "p95": 30.0, "n": 5},
        "durable_s": 45.0,
        "ckpt_bytes": 10**10,
        "restore_s": 25.0,
        "step_s": 0.2,
    },
}
SIZES = pytest.mark.parametrize("width", [1200, 390])


def profiles() -> Json:
    def modes(price: float) -> Json:
        spot = {"preempt_mtbf_h": 30.0, "notice_s": 30, "gpus_max": 4}
        return {
            "on-demand": {"price_per_h": price, "gpus_max": 4},
            "interruptible": {"price_per_h": 0.3 * price, **spot},
        }

    return {
        "schema": 1,
        "currency": "EUR",
        "utilisation": 0.8,
        "storage": {"price_per_gb_month": 0.02, "capacity_gb": 5000},
        "profiles": {
            "gpu-24gb": {"vram_gb": 24, "modes": modes(2.0)},
            "gpu-80gb": {"vram_gb": 80, "speed": 2.0, "write_speed": 2.0, "modes": modes(6.0)},
        },
    }


@pytest.fixture(scope="module")
def plan() -> Json:
    """Two places, a deadline and a budget: everything that the page may have to say."""
    found = make_plan(FLOW, SMOKE, 24, [], profiles())
    assert len(found["placement"]) > 1
    return found


@pytest.fixture(scope="module")
def page(plan: Json, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(report_html(plan), encoding="utf-8")
    return path


def seconds(text: str) -> float:
    """Seconds of `12.5 min` and the like."""
    number, unit = text.split()
    return float(number) * {"s": 1.0, "min": 60.0, "h": HOUR, "d": 24 * HOUR}[unit]


def number(text: str) -> float:
    """The number at the start of `1 234.5 EUR` and the like."""
    found = re.match(r"-?[\d\u202f]+(\.\d+)?(e[+-]?\d+)?", text)
    assert found is not None, text
    return float(found[0].replace("\u202f", ""))


def near(value: float) -> Any:
    """As exact as three digits."""
    return pytest.approx(value, rel=6e-3)


def facts(chromium: Browser) -> dict[str, str]:
    return dict(zip(chromium.texts(".facts dt"), chromium.texts(".facts .value"), strict=True))


def rows(chromium: Browser, table: str) -> list[list[str]]:
    """The cells of a table as a screen reader finds them."""
    script = (
        "return [...document.querySelectorAll(arguments[0] + ' tbody tr')]"
        ".map(row => [...row.children].map(cell => cell.textContent.trim()))"
    )
    found: list[list[str]] = chromium.driver.execute_script(script, table)
    return found


class TestSaysWhatThePlanSays:
    def test_facts(self, chromium: Browser, page: Path, plan: Json) -> None:
        chromium.open(page)
        said = facts(chromium)
        assert int(said["shards"]) == plan["shard_count"] == 24
        assert seconds(said["walltime"]) == near(plan["walltime_s"])
        assert seconds(said["checkpoint interval"]) == near(plan["interval_s"])
        assert number(said["expected overhead"]) == near(100 * plan["overhead"]["fraction"])
        assert said["machine"] == plan["profile"]
        assert number(said["expected cost"]) == near(plan["cost"]["total"])
        assert said["expected cost"].endswith(" EUR")

    def test_chosen_optimum_and_default(self, chromium: Browser, page: Path, plan: Json) -> None:
        chromium.open(page)
        found = {}
        for kind in ("chosen", "best", "usual"):
            (text,) = chromium.texts(f".mark.{kind}")
            found[kind] = seconds(text.partition(",")[0])
        known = plan["overhead"]
        assert found["chosen"] == near(plan["placement"][0]["interval_s"])
        assert found["best"] == near(exact_interval(known["t_ckpt_s"], known["mtbf_s"]))
        assert found["usual"] == 120.0

    def test_places(self, chromium: Browser, page: Path, plan: Json) -> None:
        chromium.open(page)
        said = rows(chromium, ".places")
        assert len(said) == len(plan["placement"])
        for cells, part in zip(said, plan["placement"], strict=True):
            assert cells[0] == f"{part['profile']}, {part['mode']}"
            assert int(cells[1]) == part["shards"]
            assert seconds(cells[2]) == near(part["interval_s"])
            assert seconds(cells[3]) == near(part["walltime_s"])
            assert number(cells[4]) == near(part["price_per_h"])

    def test_frontier(self, chromium: Browser, page: Path, plan: Json) -> None:
        chromium.open(page)
        said = rows(chromium, ".points")
        assert len(said) == len(plan["frontier"]) > 3
        for cells, point in zip(said, plan["frontier"], strict=True):
            assert seconds(cells[0]) == near(point["time_s"])
            assert number(cells[1]) == near(point["cost"])
            assert ("(chosen)" in cells[2]) == point["is_chosen"]
            for name, count in point["shards"].items():
                assert f"{count} on {name}" in cells[2]
        (chosen,) = [point for point in plan["frontier"] if point["is_chosen"]]
        assert chosen["cost"] == near(plan["cost"]["total"])
        assert chosen["time_s"] == near(plan["expected_s"])

    def test_textbook_and_exact_numbers(self, chromium: Browser, page: Path, plan: Json) -> None:
        chromium.open(page)
        said = {name: (textbook, exact) for name, textbook, exact in rows(chromium, ".numbers")}
        assert list(said) == [row["name"] for row in plan["numbers"]]
        for row in plan["numbers"]:
            for text, value in zip(said[row["name"]], (row["textbook"], row["exact"]), strict=True):
                if value is None:
                    assert text == "n/a"
                elif row["unit"] == "s":
                    assert seconds(text) == near(value)
                else:
                    assert number(text) == near(100 * value if row["unit"] == "" else value)
        notable = [row["name"] for row in plan["numbers"] if row["is_notable"]]
        (note,) = chromium.texts("p.notable")
        assert "more than 5 %" in note and all(f"{name} by" in note for name in notable)

    @SIZES
    def test_every_assumption_and_note(
        self, chromium: Browser, page: Path, plan: Json, width: int
    ) -> None:
        chromium.open(page, width)
        said = rows(chromium, ".assumptions")
        assert [cells[0] for cells in said] == [row["name"] for row in plan["assumptions"]]
        for cells, row in zip(said, plan["assumptions"], strict=True):
            assert cells[2:] == [row["unit"], row["source"]]
            assert_says(cells[1], row)
        assert chromium.texts("#notes li") == plan["notes"]


def assert_says(text: str, row: Mapping[str, Any]) -> None:
    if row["value"] is None:
        assert text == "n/a"
    elif isinstance(row["value"], str):
        assert text == row["value"]
    else:
        assert number(text) == pytest.approx(row["value"], rel=1e-3)


class TestReadsWellEverywhere:
    @SIZES
    @pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
    def test_nothing_is_fetched_cut_off_or_complained_of(
        self, chromium: Browser, page: Path, width: int, dark: bool
    ) -> None:
        chromium.open(page, width, 844, dark=dark)
        assert chromium.overflow_px() == 0
        assert chromium.complaints() == []
        script = "return performance.getEntriesByType('resource').map(one => one.name)"
        assert chromium.driver.execute_script(script) == []
        inner = (
            "return [...document.querySelectorAll('body *')].filter(one =>"
            " one.scrollWidth > one.clientWidth + 1 && getComputedStyle(one).overflowX == 'auto')"
            ".length"
        )
        assert chromium.driver.execute_script(inner) == 0
        page_colour = chromium.driver.execute_script(
            "return getComputedStyle(document.body).backgroundColor"
        )
        assert page_colour == ("rgb(20, 23, 27)" if dark else "rgb(255, 255, 255)")

    @SIZES
    def test_texts_of_the_drawings_do_not_overlap_and_can_be_read(
        self, chromium: Browser, page: Path, width: int
    ) -> None:
        chromium.open(page, width)
        script = (
            "return [...document.querySelectorAll('.plot')].map(plot => {"
            " const edge = plot.getBoundingClientRect();"
            " return [...plot.querySelectorAll('text')].map(one => {"
            "  const box = one.getBoundingClientRect();"
            "  return [one.textContent, box.left - edge.left, box.top - edge.top,"
            "   edge.right - box.right, box.right - box.left, box.bottom - box.top]})})"
        )
        plots = chromium.driver.execute_script(script)
        assert len(plots) == 2
        for texts in plots:
            for said, left, top, right, _, height in texts:
                assert left >= -0.5 and right >= -0.5 and top >= -0.5, said
                assert height >= 11, f"{said} is too small"
            for at, (said, left, top, _, wide, high) in enumerate(texts):
                for other, x, y, _, w, h in texts[at + 1 :]:
                    apart = x >= left + wide or left >= x + w or y >= top + high or top >= y + h
                    assert apart, f"{said} and {other} overlap"

    def test_drawings_are_told_to_those_who_cannot_see(self, chromium: Browser, page: Path) -> None:
        chromium.open(page)
        script = (
            "return [...document.querySelectorAll('svg[role=img]')].map(one =>"
            " one.getAttribute('aria-labelledby').split(' ')"
            "  .map(id => document.getElementById(id).textContent))"
        )
        titles = chromium.driver.execute_script(script)
        assert [one[0] for one in titles] == [
            "Expected overhead against checkpoint interval",
            "Least cost against deadline",
        ]
        assert all(len(one[1]) > 20 for one in titles)
        headings = chromium.driver.execute_script(
            "return [...document.querySelectorAll('h1, h2, h3')].map(one => one.tagName)"
        )
        assert headings[0] == "H1" and set(headings[1:]) == {"H2"}

    def test_on_paper_it_is_dark_on_light(self, chromium: Browser, page: Path) -> None:
        chromium.open(page, dark=True)
        chromium.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
        try:
            colour = "return getComputedStyle(document.body).backgroundColor"
            assert chromium.driver.execute_script(colour) == "rgb(255, 255, 255)"
            paper = chromium.driver.execute_cdp_cmd("Page.printToPDF", {})
            assert len(paper["data"]) > 10_000
        finally:
            chromium.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})


def test_a_batch_without_prices_says_what_is_not_known(chromium: Browser, tmp_path: Path) -> None:
    plan = make_plan(BATCH, SMOKE | {"measured": {"task_s": {"median": 1.2, "p95": 2, "n": 4}}}, 50)
    page = tmp_path / "report.html"
    page.write_text(report_html(plan), encoding="utf-8")
    chromium.open(page, 390)
    assert facts(chromium)["expected cost"] == "n/a"
    assert "no interval to choose" in chromium.texts("#overhead p")[0]
    assert "nothing to choose between" in chromium.texts("#cost p")[0]
    assert rows(chromium, ".places")[0][4] == "n/a"
    assert chromium.overflow_px() == 0 and chromium.complaints() == []


class TestDrawings:
    def test_the_band_needs_an_interval_of_the_mtbf(self, plan: Json) -> None:
        chart = draw(plan)
        assert chart is not None and chart.best_s is not None
        low, high = chart.best_s
        assert low < chart.marks[1].interval_s < high
        stated = make_plan(replace(FLOW, planner=PlannerSpec(mtbf_h=6.0)), SMOKE, 4)
        without = draw(stated)
        assert without is not None and without.best_s is None
        assert 'class="band"' not in without.svg

    def test_the_frontier_marks_modes_and_the_chosen_one(self, plan: Json) -> None:
        chart = draw_cost(plan)
        assert chart is not None
        assert chart.svg.count('class="ring"') == 1
        assert {"interruptible", "mixed"} <= set(chart.kinds)
        assert [p.cost for p in chart.points] == sorted(
            (p.cost for p in chart.points), reverse=True
        )
        assert draw_cost(make_plan(BATCH, SMOKE, 4)) is None

    def test_a_profile_name_cannot_break_the_page(self) -> None:
        files = profiles()
        files["profiles"]['<b title="x">'] = files["profiles"].pop("gpu-24gb")
        text = report_html(make_plan(FLOW, SMOKE, 24, [], files))
        assert "<b title" not in text and "&lt;b title=" in text


@given(last=st.floats(1e-6, 1e9), first=st.sampled_from([0.0, -1.0]))
def test_an_axis_has_three_to_seven_round_ticks(last: float, first: float) -> None:
    axis = Linear(first * last, last)
    ticks = axis.ticks()
    assert 3 <= len(ticks) <= 7
    assert all(-1e-9 <= axis.share(tick) <= 1.0 + 1e-9 for tick in ticks)


@given(first=st.floats(1e-2, 1e4), factor=st.floats(64.0, 1e6))
def test_a_logarithmic_axis_has_ticks_in_order(first: float, factor: float) -> None:
    axis = LogSeconds(first, first * factor)
    ticks = axis.ticks()
    assert len(ticks) >= 1 and ticks == sorted(ticks)
    assert not set(ticks) & set(axis.small_ticks())
