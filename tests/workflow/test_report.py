"""`snakemake --report` shows what the closeout found, out of the same files."""

from __future__ import annotations

import base64
from pathlib import Path

from jsonschema import Draft202012Validator

from helpers.browser import Browser
from helpers.project import Project, ok
from milepost.resources import load_yaml

STEPS = ("smoke test", "plan", "reconcile", "closeout", "record", "results")


def test_the_report_of_snakemake_holds_the_record_and_shows_each_step(
    finished_once: tuple[Project, object], tmp_path: Path, chromium: Browser
) -> None:
    project = finished_once[0]
    page = tmp_path / "all.html"
    ok(project.snakemake("--report", str(page), cores=0))
    text = page.read_text(encoding="utf-8")
    for name in ("closeout/report.html", "closeout/record.json", "reconcile.csv", "results.csv"):
        content = (project.root / "results" / "sq" / name).read_bytes()
        assert base64.b64encode(content).decode() in text, name
    for words in (
        "is it closed, and how is that known?",
        "one verdict a shard",
        "killed and resumed",
    ):
        assert words in text, words
    chromium.open(page)
    results = ("xpath", "//*[normalize-space(text())='Results']")  # of the only run there is
    chromium.wait().until(lambda driver: driver.find_elements(*results))[-1].click()
    chromium.wait().until(lambda driver: "closeout" in driver.find_element("id", "app").text)
    shown = " ".join(chromium.texts("#app"))
    assert [step for step in STEPS if step not in shown] == []
    assert "a verdict is DONE only when journal, scheduler and artifacts agree" in shown


def test_the_record_of_a_real_run_fits_its_schema(
    finished_once: tuple[Project, object], troubled_once: tuple[Project, object]
) -> None:
    schema = Draft202012Validator(load_yaml("schemas", "record.schema.yaml"))
    for project in (finished_once[0], troubled_once[0]):
        record = project.json("results/sq/closeout/record.json")
        assert [e.message for e in schema.iter_errors(record)] == []
