"""kill -9 of Snakemake and of everything below it, at random moments of the demo."""

from __future__ import annotations

import json
import random
import subprocess
import time
from pathlib import Path

import pytest

from helpers.demo import ALL_ROWS, Demo, kill_session

EARLY_KILLS = 2
LATE_KILLS = 8
RUN_LIMIT_S = 400
LOOK_S = 0.02
pytestmark = [pytest.mark.chaos, pytest.mark.workflow]


def finish(demo: Demo) -> None:
    """Run the command to its end; it must succeed."""
    head = demo.start()
    try:
        code = head.wait(timeout=RUN_LIMIT_S)
    except subprocess.TimeoutExpired:
        kill_session(head)
        raise
    assert code == 0, demo.output()[-6000:]


def is_closed(demo: Demo, run: str) -> bool:
    record = json.loads((demo.folder / "results" / run / "closeout" / "record.json").read_text())
    return bool(record["closed"])


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    demo = Demo(tmp_path_factory.mktemp("calm") / "demo")
    finish(demo)
    assert set(demo.executions().values()) == {1}
    return demo.results()


def test_ten_kills_lose_nothing_and_repeat_nothing(
    tmp_path: Path, undisturbed: dict[str, bytes]
) -> None:
    seed = random.SystemRandom().randrange(10**6)
    moments = random.Random(seed)
    print(f"seed {seed}")
    demo = Demo(tmp_path / "demo")
    sealed: dict[tuple[str, str], int] = {}
    killed = 0
    for wanted, delay_s in ten_moments(moments):
        if not kill_once(demo, wanted, delay_s):
            break  # it was done before its last moment came
        killed += 1
        done, executions = demo.done(), demo.executions()
        assert sealed.keys() <= done, "a row was lost"
        for name, count in sealed.items():
            assert executions[name] == count, f"{name} had a row and ran again"
        sealed = {name: executions[name] for name in done if name[0] != "ising"}
    assert killed >= EARLY_KILLS + LATE_KILLS - 1
    finish(demo)
    assert {name: demo.executions()[name] for name in sealed} == sealed
    assert demo.results() == undisturbed
    assert all(is_closed(demo, run) for run in ("sweep", "ising", "words"))


def ten_moments(moments: random.Random) -> list[tuple[int, float]]:
    """How many rows must be there, and how long to wait then: spread over the whole demo.

    Rows and not seconds, so that on a slow day the kills do not all fall into the smoke tests.
    """
    early = [(0, moments.uniform(1.0, 10.0)) for _ in range(EARLY_KILLS)]
    rows = sorted(moments.randrange(1, ALL_ROWS + 1) for _ in range(LATE_KILLS))
    return early + [(count, moments.uniform(0.0, 1.5)) for count in rows]


def kill_once(demo: Demo, wanted: int, delay_s: float) -> bool:
    """Run until `wanted` rows are there and `delay_s` longer, then kill; False if it ended."""
    head = demo.start()
    limit = time.monotonic() + RUN_LIMIT_S
    while len(demo.done()) < wanted and head.poll() is None:
        assert time.monotonic() < limit, demo.output()[-6000:]
        time.sleep(LOOK_S)
    try:
        code = head.wait(timeout=delay_s)
    except subprocess.TimeoutExpired:
        kill_session(head)
        return True
    assert code == 0, demo.output()[-6000:]
    return False
