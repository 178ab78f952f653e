"""The simulator's benchmark: all peers play the same job, and one that does not is refused."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT))
    return importlib.import_module("bench.simulate")


@pytest.fixture
def options(bench: Any) -> Any:
    said: list[str] = []
    found = importlib.import_module("bench.part").Options("quick", say=said.append)
    return found, said


def test_peers_come_to_the_same_overhead(bench: Any) -> None:
    for player in bench.PLAYERS:
        if player.is_here():
            found = player.play(60)
            assert found.overhead == pytest.approx(bench.EXPECTED, rel=0.1), player.name
            assert found.events == pytest.approx(60 * 100 * (1 + bench.EXPECTED), rel=0.1)


def test_a_peer_that_plays_something_else_is_refused(bench: Any, options: Any) -> None:
    wrong = bench.Player("wrong", "", 10, lambda jobs: bench.Played(jobs, 0.0))
    with pytest.raises(SystemExit, match=r"wrong comes to 0\.0000"):
        bench.measure([wrong], options[0], 1, True)


def test_a_peer_that_is_not_here_is_left_out_by_name(bench: Any, options: Any) -> None:
    away = bench.Player("Away", "", 10, bench.play_ours, "there_is_no_such_module")
    assert bench.measure([away], options[0], 1, True) == []
    assert options[1] == ["Away is not installed and is left out"]


def test_bars_and_tables(bench: Any) -> None:
    measure = importlib.import_module("bench.measure")
    ours = measure.Summary("simulate", "milepost", 1, 1e-7, 1e-7, 2e-7, 3)
    slow = measure.Summary("simulate", "everything", 1, 2e-6, 2e-6, 2e-6, 3)
    first, second = bench.bars([ours], [slow])
    assert (first.value, first.is_met()) == (pytest.approx(1e7), True)
    assert (second.value, second.is_met()) == (pytest.approx(5e5), False)
    rows = list(bench.table([ours], bench.PLAYERS))
    assert "| milepost |" in rows[2] and "| 10,000,000 | 5,000,000 - 10,000,000 | 1 |" in rows[2]
