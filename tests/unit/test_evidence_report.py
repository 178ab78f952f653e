"""The report and the records: complete, self-contained, and nothing private in the public ones."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from helpers.run_folder import RunFolder, finished_simulation, finished_sweep
from milepost.evidence import charts
from milepost.evidence.closing import close
from milepost.evidence.gather import gather

VOID = ("meta", "input", "br", "link", "img")


class Page(HTMLParser):
    """Checks that tags nest, and collects what a test wants to see."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.links: list[str] = []
        self.text: list[str] = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.links += [v or "" for k, v in attrs if k in ("src", "href")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open[-1:] not in (["style"], ["script"]):
            self.text.append(data)

    def __str__(self) -> str:
        return " ".join(" ".join(self.text).split())


def written(folder: RunFolder, partial: bool = False) -> dict[str, str]:
    close(folder.paths, now="2026-03-02T00:00:00.000Z", partial=partial)
    return {p.name: p.read_text(encoding="utf-8") for p in folder.paths.closeout.iterdir()}


def test_the_five_files_and_a_page_that_needs_nothing_else(tmp_path: Path) -> None:
    files = written(finished_sweep(tmp_path))
    assert set(files) == {
        "report.html",
        "record.json",
        "public.json",
        "public.md",
        "ro-crate-metadata.json",
    }
    page = Page(files["report.html"])
    assert page.links == []
    assert "url(" not in files["report.html"] and "@import" not in files["report.html"]


def test_the_page_of_a_sweep_says_what_a_person_asks(tmp_path: Path) -> None:
    text = str(Page(written(finished_sweep(tmp_path))["report.html"]))
    for words in (
        "Which setting separates the digits best?",
        "CLOSED",
        "4 of 4 tasks done",
        "accuracy = 0.92",
        "Time line of the attempts",
        "Where the core hours went",
    ):
        assert words in text, words
    assert "What to do next" not in text


def test_the_page_of_an_open_run_says_what_to_do(tmp_path: Path) -> None:
    folder = finished_sweep(tmp_path)
    folder.table({"0001": {"a1": {}, "a2": {}, "a3": {"C": "<b>&"}}, "0002": {"b1": {}, "b2": {}}})
    folder.failed("0001", "a3")
    files = written(folder)
    page = Page(files["report.html"])
    text = str(page)
    assert "NOT CLOSED" in text and "What to do next" in text
    assert "snakemake -c2 --force results/sweep/shards/0001/journal.csv" in text
    assert "runtime / python exception" in text and "ValueError: gamma must be positive" in text
    assert "C=<b>&" in text


def test_data_in_the_page_cannot_end_its_script(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path).contract().table({"0001": {"a": {"C": "</script><b>"}}})
    folder.done("0001", "a", {"accuracy": 0.5})
    page = written(folder)["report.html"]
    island = re.search(r'id="results">(.*?)</script>', page, re.DOTALL)
    assert island is not None
    assert json.loads(island[1])["rows"][0][1] == "</script><b>"


def test_the_page_of_a_simulation_shows_control_and_interruption(tmp_path: Path) -> None:
    text = str(Page(written(finished_simulation(tmp_path))["report.html"]))
    assert "Control metric: energy" in text and "1.00 σ" in text
    assert ": 1 killed." in text
    assert "0.00222 core hours lost" in text


def test_time_line_draws_attempts_checkpoints_interruptions_and_lost_work(tmp_path: Path) -> None:
    line = charts.time_line(gather(finished_simulation(tmp_path).paths).shards)
    assert line is not None
    counts = {kind: line.svg.count(f'class="{kind}"') for kind in ("work", "ckpt", "cut", "lost")}
    assert counts == {"work": 2, "ckpt": 2, "cut": 1, "lost": 1}
    assert line.end_s - line.start_s == 51.0


def test_time_line_of_many_shards_takes_those_with_most_attempts(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path).contract()
    names = [f"{n:04d}" for n in range(60)]
    folder.table({name: {f"k{name}": {}} for name in names})
    for name in names:
        folder.attempt(name, 1)
    folder.attempt("0059", 2)
    line = charts.time_line(gather(folder.paths).shards)
    assert line is not None and len(line.shards) == charts.MOST_ROWS
    assert line.shards[-1].name == "0059"


def test_nothing_at_all_still_gives_a_report(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.paths.work.mkdir(parents=True)
    text = str(Page(written(folder, partial=True)["report.html"]))
    assert "there is no contract" in text and "n/a: no attempt was measured." in text


def test_record_says_everything_in_json(tmp_path: Path) -> None:
    record = json.loads(written(finished_simulation(tmp_path))["record.json"])
    assert record["verdict"] == "CLOSED" and record["closed"] is True
    assert record["tasks"] == {"all": 1, "done": 1, "failed": 0, "damaged": 0, "missing": 0}
    assert record["control"][0]["sigmas"] == pytest.approx(1.0)
    assert {i["key"]: i["holds"] for i in record["items"]}["smoke_passed"] is True
    assert record["account"]["blocked_s"] == 0.01
