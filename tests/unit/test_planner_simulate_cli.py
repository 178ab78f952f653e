"""`milepost simulate` on the plan of a run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from milepost.cli.simulate import command
from milepost.durable import write_json
from milepost.errors import ConfigError
from milepost.paths import RunPaths


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
    return CliRunner().invoke(command, ["flow", "--root", str(root), *options])


def test_prediction_and_simulation_agree(tmp_path: Path) -> None:
    done = run(tmp_path, "--json")
    assert done.exit_code == 0, done.exception
    found = json.loads(done.output)
    assert found["job"]["chunks"] == 2000
    assert found["predicted"] == pytest.approx(found["overhead"], rel=0.03)
    assert run(tmp_path, "--json").output == done.output


def test_lines_for_people(tmp_path: Path) -> None:
    lines = run(tmp_path, "--interval", "1000").output.splitlines()
    assert [line.split()[0] for line in lines] == ["interval", "predicted", "simulated"]
    assert max(map(len, lines)) <= 80


@pytest.mark.parametrize(
    ("options", "overhead", "named"),
    [
        ((), {"t_ckpt_s": None}, "nothing to simulate"),
        (("--interval", "0"), {}, "interval is 0"),
        (("--interval", "1e7"), {}, "never ends"),
    ],
)
def test_what_cannot_be_simulated_is_named(
    tmp_path: Path, options: tuple[str, ...], overhead: dict[str, Any], named: str
) -> None:
    done = run(tmp_path, *options, **overhead)
    assert isinstance(done.exception, ConfigError)
    assert named in str(done.exception)


def test_no_plan_is_named(tmp_path: Path) -> None:
    done = CliRunner().invoke(command, ["flow", "--root", str(tmp_path)])
    assert isinstance(done.exception, ConfigError)
    assert "milepost plan flow" in str(done.exception)
