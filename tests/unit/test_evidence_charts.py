"""Many shards in one chart: heights are means, marks stand where something happened."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from helpers.run_folder import RunFolder, at, finished_simulation
from milepost.evidence.charts_activity import AREA_PX, STEPS, activity
from milepost.evidence.gather import gather


def heights(svg: str, kind: str) -> list[float]:
    """Shares of the highest step, in order; empty when there is no such area."""
    path = re.search(rf'<path class="{kind}" d="M0 {AREA_PX}(.*?)V{AREA_PX}Z"', svg)
    tops = [] if path is None else re.findall(r"V([\d.]+)H", path[1])
    return [1 - float(top) / AREA_PX for top in tops]


def test_heights_are_how_many_are_at_work(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path).contract().table({"0001": {"a": {}}, "0002": {"b": {}}})
    folder.attempt("0001", 1, started=at(0), ended=at(100))
    folder.attempt("0002", 1, started=at(50), ended=at(100))
    found = activity(gather(folder.paths).shards)
    assert found is not None
    assert (found.most, found.end_s - found.start_s) == (pytest.approx(2.0), 100.0)
    steps = heights(found.svg, "work")
    assert len(steps) == STEPS
    assert steps[10] == pytest.approx(0.5, abs=0.01) and steps[-10] == pytest.approx(1.0, abs=0.01)
    assert heights(found.svg, "lost") == [] and found.strips == ()


def test_marks_tell_interruptions_checkpoints_and_lost_work(tmp_path: Path) -> None:
    found = activity(gather(finished_simulation(tmp_path).paths).shards)
    assert found is not None and found.strips == ("interrupted", "checkpoints")
    counts = {k: found.svg.count(f'class="many-{k}"') for k in ("cut", "fail", "ckpt")}
    assert counts == {"cut": 1, "fail": 0, "ckpt": 2}
    # from the fifth to the 56th second; four seconds before the 15th were for nothing
    lost = [n for n, height in enumerate(heights(found.svg, "lost")) if height > 0.5]
    assert (lost[0] * 51 / STEPS, lost[-1] * 51 / STEPS) == pytest.approx((6.1, 9.8), abs=0.4)


def test_without_an_attempt_there_is_no_chart(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path).contract().table({"0001": {"a": {}}})
    assert activity(gather(folder.paths).shards) is None
