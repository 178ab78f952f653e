"""`milepost simulate` on the plan of a run, on numbers alone, and on a recorded trace."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

from milepost.cli import simulate as simulate_cli
from milepost.cli.simulate import command
from milepost.durable import write_json
from milepost.errors import ConfigError
from milepost.paths import RunPaths


def invoke(*options: str) -> Result:
    return CliRunner().invoke(command, list(options))


def run(root: Path, *options: str, **overhead: Any) -> Result:
    known = {
        "useful_s": 4e6,
        "unit_s": 500.0,
        "t_ckpt_s": 5.0,
        "restore_s": 10.0,
        "downtime_s": 0.0,
        "durable_lag_s": 0.0,
        "mtbf_s": 20000.0,
    }
    value = {"run": "flow", "shard_count": 4, "overhead": known | overhead}
    write_json(RunPaths("flow", root).plan, value)
    return invoke("flow", "--root", str(root), *options)


def rows(done: Result) -> dict[str, dict[str, Any]]:
    assert done.exit_code == 0, done.exception
    return {row["policy"]: row for row in json.loads(done.output)["policies"]}


def test_prediction_and_simulation_agree(tmp_path: Path) -> None:
    done = run(tmp_path, "--json")
    found = rows(done)
    assert list(found) == ["as planned", "optimum", "adaptive", "default"]
    for title in ("as planned", "optimum", "default"):
        row = found[title]
        assert row["predicted"] == pytest.approx(row["overhead"]["mean"], rel=0.03)
    assert found["optimum"]["overhead"]["mean"] == pytest.approx(
        min(row["overhead"]["mean"] for row in found.values()), rel=0.01
    )
    assert found["adaptive"]["predicted"] is None
    assert found["as planned"]["checkpoints"]["mean"] == pytest.approx(2000, rel=0.01)
    assert run(tmp_path, "--json").output == done.output
    assert run(tmp_path, "--json", "--seed", "2").output != done.output


def test_lines_for_people(tmp_path: Path) -> None:
    done = run(tmp_path, "--interval", "1000", "preempt_mtbf_h=9", "notice_s=60",
               "walltime_h=30", "far_every=3", "node_loss=0.4", "lag_s=1e4",
               t_ckpt_s=0.000896123, useful_s=None)  # fmt: skip
    assert done.exit_code == 0, done.exception
    lines = done.output.splitlines()
    named = [line.split()[0] for line in lines if line and not line.startswith(" ")]
    assert named == [
        "job", "failures", "walltime", "preempted", "far", "played", "policy",
        "as", "optimum", "adaptive", "default", "fixed", "least",
    ]  # fmt: skip
    assert max(map(len, lines)) <= 80


def test_the_price_is_a_column_where_there_is_one(tmp_path: Path) -> None:
    done = run(tmp_path, "price_per_h=3", "--policy", "plan")
    assert "cost" in done.output and max(map(len, done.output.splitlines())) <= 80
    row = rows(run(tmp_path, "--json", "price_per_h=3", "--policy", "plan"))["as planned"]
    assert row["cost"]["mean"] == pytest.approx(row["makespan_s"]["mean"] / 1200.0, rel=1e-3)


def test_the_page_shows_what_is_printed() -> None:
    """The session in docs/planner.md, typed again."""
    page = Path(__file__).resolve().parents[2] / "docs" / "planner.md"
    sessions = page.read_text(encoding="utf-8").split("```console\n")[1:]
    (session,) = (text for text in sessions if text.startswith("$ milepost simulate "))
    typed, _, shown = session.split("```")[0].partition("\n")
    assert invoke(*typed.split()[3:]).output == shown


def test_numbers_alone_are_enough() -> None:
    found = rows(invoke("t_ckpt_s=60", "mtbf_h=6", "work_h=200", "--json", "--jobs", "300"))
    assert list(found) == ["optimum", "adaptive", "default"]
    assert found["optimum"]["overhead"]["mean"] == pytest.approx(0.0775, abs=0.003)
    more = rows(invoke("t_ckpt_s=60", "mtbf_h=6", "--interval", "500", "--json", "--jobs", "50"))
    assert list(more) == ["optimum", "adaptive", "default", "fixed"]
    done = invoke("t_ckpt_s=0", "mtbf_h=6", "interval_s=600", "--interval", "600", "--json")
    assert rows(done)["fixed"]["overhead"]["mean"] == pytest.approx(600 / 2 / 21600, rel=0.1)


def test_a_trace_is_replayed(tmp_path: Path) -> None:
    gaps = np.random.default_rng(1).weibull(0.6, 500) * 10000 + 2
    trace = tmp_path / "failures.csv"
    trace.write_text("cluster,gap_s\n" + "".join(f"a,{gap:.1f}\nb,1\n" for gap in gaps))
    only = ("--trace", str(trace), "--trace-only", "cluster=a", "--jobs", "200")
    found = json.loads(run(tmp_path, *only, "--json").output)
    assert found["failures"]["kind"] == "replay" and found["failures"]["count"] == 500
    assert found["failures"]["mtbf_s"] == pytest.approx(gaps.mean(), rel=0.01)
    assert found["failures"]["gaps_c2"] > 1.5
    assert {row["predicted"] for row in found["policies"]} == {None}
    assert "500 of a trace" in run(tmp_path, *only).output
    scaled = json.loads(run(tmp_path, *only, "--json", "mtbf_h=1").output)
    assert scaled["failures"]["mtbf_s"] == pytest.approx(3600.0)
    assert scaled["failures"]["gaps_c2"] == pytest.approx(found["failures"]["gaps_c2"])
    alone = invoke(*only, "t_ckpt_s=10", "--json", "--from-start", "--policy", "optimal")
    assert rows(alone)["optimum"]["failures"]["mean"] > 50


def test_too_few_interruptions_are_said(tmp_path: Path) -> None:
    few = run(tmp_path, "--jobs", "20", useful_s=4000.0)
    assert "interruptions in all: the intervals say little" in few.output
    assert max(map(len, few.output.splitlines())) <= 80
    assert "say little" not in run(tmp_path, "--jobs", "20").output


def test_work_of_unknown_length_is_said(tmp_path: Path) -> None:
    assert "(assumed)" in run(tmp_path, "--jobs", "20", useful_s=None).output
    assert "(assumed)" not in run(tmp_path, "--jobs", "20", "work_h=9", useful_s=None).output


def test_a_long_simulation_tells_a_terminal_how_far_it_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = [0.0]
    monkeypatch.setattr("milepost.clock.monotonic", lambda: now[0])
    assert simulate_cli._progress("optimum") is None, "nobody looks"
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    tell = simulate_cli._progress("optimum")
    tell(0.1)
    assert capsys.readouterr().err == "", "a short one is quiet"
    now[0] = 3.0
    tell(0.5)
    tell(1.0)
    shown = capsys.readouterr().err
    assert "optimum:  50 % simulated" in shown and shown.endswith("\r\x1b[K")


def test_clustered_failures_are_said(tmp_path: Path) -> None:
    done = run(tmp_path, "--shape", "0.7", "--jobs", "50")
    assert "Weibull of shape 0.7" in done.output
    found = json.loads(run(tmp_path, "--shape", "0.7", "--jobs", "50", "--json").output)
    assert found["failures"] == {"kind": "weibull", "mtbf_s": 20000.0, "shape": 0.7}
    assert {row["predicted"] for row in found["policies"]} == {None}


def test_finished_tasks_leave_nothing_to_choose(tmp_path: Path) -> None:
    assert list(rows(run(tmp_path, "--json", "--jobs", "50", t_ckpt_s=0.0))) == ["as planned"]


@pytest.mark.parametrize(
    ("options", "overhead", "named"),
    [
        ((), {"t_ckpt_s": None}, "nothing to simulate"),
        (("--interval", "0"), {}, "interval is 0"),
        (("--interval", "1e7"), {}, "never ends"),
        (("walltime_h=0.01",), {}, "leaves no time for work"),
        (("--trace", "none.csv"), {}, "no such trace"),
        (("t_cpkt_s=5",), {}, "did you mean t_ckpt_s"),
        (("--jobs", "0"), {}, "jobs is 0"),
        (("--shape", "0"), {}, "shape is 0"),
    ],
)
def test_what_cannot_be_simulated_is_named(
    tmp_path: Path, options: tuple[str, ...], overhead: dict[str, Any], named: str
) -> None:
    done = run(tmp_path, *options, **overhead)
    assert isinstance(done.exception, ConfigError)
    assert named in str(done.exception)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (("flow", "other"), "more than one run: flow, other"),
        (("t_ckpt_s=1", "mtbf_h=1", "--policy", "plan"), "--policy plan needs a RUN"),
        (("t_ckpt_s=1", "mtbf_h=1", "--from-start"), "need --trace"),
        (("t_ckpt_s=1", "--trace", "x.csv", "--trace-only", "a"), "COLUMN=VALUE"),
    ],
)
def test_wrong_usage_is_named(options: tuple[str, ...], named: str) -> None:
    done = invoke(*options)
    assert done.exit_code == 2 and named in done.output


def test_no_plan_is_named(tmp_path: Path) -> None:
    done = invoke("flow", "--root", str(tmp_path))
    assert isinstance(done.exception, ConfigError)
    assert "milepost plan flow" in str(done.exception)
