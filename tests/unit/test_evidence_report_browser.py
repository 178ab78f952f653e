"""The report in a real browser: it says what the record says, and 10,000 shards are no burden."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from helpers.browser import Browser
from helpers.run_folder import RunFolder, at, finished_simulation, finished_sweep
from helpers.slurm_answers import Recorded
from milepost.clock import iso
from milepost.evidence.account import account
from milepost.evidence.closeout import Closeout, Facts
from milepost.evidence.closing import Closing, close
from milepost.evidence.items import items
from milepost.evidence.reconcile import reconcile
from milepost.evidence.records import record
from milepost.evidence.report import render, shown
from milepost.evidence.results import Merged
from milepost.evidence.states import Scheduler
from milepost.evidence.types import (
    AttemptEvidence,
    CheckpointEvidence,
    RunEvidence,
    ShardEvidence,
    TaskProblem,
)
from milepost.evidence.words import duration
from milepost.paths import RunPaths
from milepost.slurm.command import SEPARATOR, replaced_by

NOW = "2026-03-02T00:00:00.000Z"
MANY = 10_000
SCREENS = [(1200, False), (1200, True), (390, False), (390, True)]


def troubled(root: Path) -> RunFolder:
    """Two shards on Slurm; a task failed, one artifact is gone, an attempt was killed."""
    folder = finished_sweep(root)
    (folder.paths.artifact("b1") / "score.json").unlink()
    folder.table({"0001": {"a1": {}, "a2": {}, "a3": {"C": 3}}, "0002": {"b1": {}, "b2": {}}})
    folder.failed("0001", "a3")
    folder.attempt("0001", 1, slurm_job_id="71", ended=None, exit_code=None, stop=None)
    folder.attempt("0001", 2, slurm_job_id="71", started=at(60), ended=at(90), stop="failed")
    return folder


def page_of(folder: RunFolder) -> tuple[Path, dict[str, Any]]:
    columns = ("JobID", "State", "ExitCode", "Submit", "Eligible", "Start", "End", "ElapsedRaw")
    times = [f"2026-03-01T08:{text}" for text in ("00:00", "00:02", "00:05", "00:25")]
    rows = [columns, ("71", "FAILED", "1:0", *times, "20")]
    sacct = "\n".join(map(SEPARATOR.join, rows)) + "\n"
    answers = {"sacct": sacct, "sacct --version": "slurm-wlm 22.05.8", "squeue": ""}
    with replaced_by(Recorded(answers)):
        close(folder.paths, now=NOW, partial=False)
    read = (folder.paths.closeout / "record.json").read_text(encoding="utf-8")
    return folder.paths.closeout / "report.html", json.loads(read)


def fact(record: Any, path: str) -> Any:
    """What stands at a path of the record, such as `hours.useful.observed_core_h`."""
    for word in path.split("."):
        if isinstance(record, list):
            named = {one.get("part", number): one for number, one in enumerate(record)}
            record = named[int(word) if word.isdigit() else word]
        else:
            record = record.get(word, 0 if path.startswith("shards.") else None)
    return record


@pytest.mark.parametrize("make", [finished_sweep, finished_simulation, troubled])
def test_every_number_of_the_page_is_that_of_the_record(
    tmp_path: Path, chromium: Browser, make: Any
) -> None:
    page, told = page_of(make(tmp_path))
    chromium.open(page)
    found = chromium.driver.execute_script(
        "return [...document.querySelectorAll('[data-fact]')]"
        ".map(e => [e.dataset.fact, e.dataset.as, e.textContent])"
    )
    assert len(found) >= 7 + 10
    for path, form, text in found:
        assert text == shown(fact(told, path), form), path
    paths = [path for path, _, _ in found]
    assert "tasks.done" in paths and "hours.lost.observed_core_h" in paths
    assert ("queue.pending_s" in paths) is (make is troubled)
    assert chromium.texts(".badge") == [told["verdict"]]
    signs = {True: "✓", False: "✗", None: "–"}
    shown_items = chromium.texts(".items .sign")
    assert shown_items[: len(told["items"])] == [signs[i["holds"]] for i in told["items"]]
    evidence = chromium.texts(".items .why")
    assert evidence[: len(told["items"])] == [i["evidence"] for i in told["items"]]
    rows = chromium.texts("[data-table=shards] tbody tr")
    assert [row.split()[:2] for row in rows] == [
        [s["shard"], s["verdict"]]
        for s in sorted(told["per_shard"], key=lambda s: s["verdict"] == "DONE")
    ]


def test_the_queue_is_split_where_slurm_told_and_not_measured_elsewhere(
    tmp_path: Path, chromium: Browser
) -> None:
    chromium.open(page_of(troubled(tmp_path / "slurm"))[0])
    facts = ("held_s", "pending_s", "longest_held_s", "longest_pending_s")
    assert [chromium.texts(f"[data-fact='queue.{f}']") for f in facts] == [
        ["2 s"],
        ["3 s"],
        ["2 s"],
        ["3 s"],
    ]
    chromium.open(page_of(finished_sweep(tmp_path / "here"))[0])
    assert "n/a: no wait in a queue of Slurm was measured." in chromium.texts("main")[0]


@pytest.mark.parametrize("make", [finished_simulation, troubled])
def test_a_phone_and_a_desk_in_light_and_dark(tmp_path: Path, chromium: Browser, make: Any) -> None:
    page, _ = page_of(make(tmp_path))
    backgrounds = set()
    for width, dark in SCREENS:
        chromium.open(page, width, dark=dark)
        assert chromium.overflow_px() == 0, (width, dark)
        assert chromium.complaints() == []
        style = "return getComputedStyle(document.body).backgroundColor"
        backgrounds.add((dark, chromium.driver.execute_script(style)))
        chromium.screenshot(tmp_path / f"{width}-{dark}.png")
    assert len(backgrounds) == 2


def many(root: Path) -> Closing:
    """A run of many shards that was never on a disk: some failed, some were killed and resumed."""
    start = 1_772_352_000.0
    shards = []
    for n in range(MANY):
        killed, failed = n % 9 == 1, n % 500 == 3
        first = start + n % 1900
        attempts = [attempt(1, first, 30.0, None if killed else ("failed" if failed else "done"))]
        if killed:
            attempts.append(attempt(2, first + 40, 20.0 + n % 7, "done", lost_s=5.0 + n / 1e4))
        problem = TaskProblem(f"k{n}", "failed in attempt 1", finding=None, exit=1)
        shards.append(
            ShardEvidence(
                name=f"{n:05d}",
                tasks=(f"k{n}",),
                done=0 if failed else 1,
                failed=(problem,) if failed else (),
                started=True,
                rows=3,
                attempts=tuple(attempts),
                checkpoints=(checkpoint(first + 25),) if killed else (),
            )
        )
    paths = RunPaths("sweep", root)
    run = RunEvidence(paths, None, None, None, None, None, None, tuple(shards))
    facts = Facts(run, reconcile(run, lambda shard: Scheduler.NONE), account(run), (), ())
    table = Merged(("task", "shard"), 0, (), None, None, 0)
    return Closing(facts, Closeout(items(facts)), table, NOW, True)


def attempt(
    number: int, start: float, wall_s: float, stop: str | None, lost_s: float | None = None
) -> AttemptEvidence:
    restored = None if lost_s is None else {"lost_s": lost_s}
    end = None if stop is None else iso(start + wall_s)
    code = {"done": 0, "failed": 11}.get(stop or "")
    known = (wall_s - 1, 0.5, None, wall_s, 1 << 20, None, restored)
    return AttemptEvidence(
        number, iso(start), end, code, stop, None, *known, last_sign=iso(start + 28)
    )


def checkpoint(time: float) -> CheckpointEvidence:
    return CheckpointEvidence("000001-a1", iso(time), 1, 1000, 0.1, 0.2, None)


@pytest.fixture(scope="module")
def of_many(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict[str, Any]]]:
    root = tmp_path_factory.mktemp("many")
    closing = many(root)
    told = record(closing)
    page = root / "report.html"
    page.write_text(render(closing, told), encoding="utf-8")
    return page, told["per_shard"]


def column(browser: Browser, name: str) -> list[str]:
    """The cells of a column that are shown."""
    heads = browser.texts("[data-table=shards] thead th")
    place = [head.split()[0] for head in heads].index(name.split()[0]) + 1
    return browser.texts(f"[data-table=shards] tbody td:nth-child({place})")


def press(browser: Browser, head: str) -> None:
    for button in browser.driver.find_elements("css selector", "[data-table=shards] th button"):
        if button.text == head:
            browser.driver.execute_script("arguments[0].click()", button)
            return
    raise AssertionError(f"there is no column {head!r}")


def search(browser: Browser, words: str) -> None:
    box = browser.driver.find_element("css selector", "[data-table=shards] input")
    box.clear()
    box.send_keys(words)


def told_rows(browser: Browser) -> str:
    return browser.texts("[data-table=shards] output")[0]


def test_many_shards_are_sorted_and_filtered_right(
    of_many: tuple[Path, list[dict[str, Any]]], chromium: Browser
) -> None:
    page, shards = of_many
    chromium.open(page)
    rows = chromium.driver.execute_script("return document.querySelectorAll('tr').length")
    assert rows < 200  # never all of them
    assert told_rows(chromium) == "1–25 of 10,000"
    bad = [s["shard"] for s in shards if s["verdict"] == "FAILED"]
    assert column(chromium, "shard")[: len(bad)] == bad

    press(chromium, "lost")  # ascending, then descending; what was not measured stands last
    open_first = sorted(shards, key=lambda s: s["verdict"] == "DONE")
    known = [s for s in open_first if s["lost_s"] is not None]
    rising = sorted(known, key=lambda s: s["lost_s"])
    assert column(chromium, "shard") == [s["shard"] for s in rising[:25]]
    press(chromium, "lost")
    falling = sorted(known, key=lambda s: -s["lost_s"])
    assert column(chromium, "shard") == [s["shard"] for s in falling[:25]]
    assert column(chromium, "lost") == [duration(s["lost_s"]) for s in falling[:25]]
    arrows = chromium.driver.find_elements("css selector", "[data-table=shards] [aria-sort]")
    assert [a.get_attribute("aria-sort") for a in arrows] == ["descending"]

    search(chromium, "0999")
    wanted = {s["shard"] for s in shards if "0999" in s["shard"]}
    assert set(column(chromium, "shard")) == wanted
    search(chromium, "failed 0350")
    assert column(chromium, "shard") == [n for n in bad if "0350" in n]
    search(chromium, "nothing of this kind")
    assert (column(chromium, "shard"), told_rows(chromium)) == ([], "none")
    assert chromium.complaints() == []


def test_many_shards_are_paged_and_chosen_by_verdict(
    of_many: tuple[Path, list[dict[str, Any]]], chromium: Browser
) -> None:
    page, shards = of_many
    chromium.open(page)
    bad = [s["shard"] for s in shards if s["verdict"] == "FAILED"]
    words = chromium.driver.find_elements("css selector", "[data-table=shards] .words button")
    assert [w.text for w in words] == [f"FAILED {len(bad)}", f"DONE {MANY - len(bad):,}"]
    words[0].click()
    assert told_rows(chromium) == f"1–{len(bad)} of {len(bad)}"
    words[0].click()
    back, on = chromium.driver.find_elements("css selector", "[data-table=shards] .pages button")
    assert not back.is_enabled()
    on.click()
    assert told_rows(chromium) == "26–50 of 10,000"
    assert back.is_enabled()
    lines = "[data-table=shards] td.line svg"
    assert len(chromium.driver.find_elements("css selector", lines)) == 25
    assert chromium.complaints() == []


def test_many_shards_are_one_chart_and_a_window(
    of_many: tuple[Path, list[dict[str, Any]]], chromium: Browser
) -> None:
    page, _ = of_many
    for width, dark in SCREENS:
        chromium.open(page, width, dark=dark)
        assert (chromium.overflow_px(), chromium.complaints()) == (0, [])
    charts = chromium.driver.find_elements(
        "css selector", "svg[aria-label='shards at work over time']"
    )
    assert len(charts) == 1
    assert chromium.texts(".names.area div")[1:] == ["interrupted", "failed", "checkpoints"]
    assert len(chromium.texts(".names:not(.area) div")) == 40
    assert page.stat().st_size < 2_000_000
