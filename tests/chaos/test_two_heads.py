"""Two Snakemake heads on the same run at once: the lease lets one work, the other waits."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from helpers.demo import Demo, kill_session

HEAD_LIMIT_S = 400
pytestmark = [pytest.mark.chaos, pytest.mark.workflow]


def test_no_task_runs_twice_and_the_second_head_says_who_holds_the_lease(tmp_path: Path) -> None:
    demo = Demo(tmp_path / "demo")
    hold = demo.folder / "hold"
    hold.touch()
    heads = [demo.start("--nolock"), demo.start("--nolock")]
    try:
        wait_until_they_met(demo)
        hold.unlink()
        codes = [head.wait(timeout=HEAD_LIMIT_S) for head in heads]
    finally:
        for head in heads:
            kill_session(head)
    assert 0 in codes, demo.output()[-6000:]
    executions = demo.executions()
    assert len(executions) > 0
    assert set(executions.values()) == {1}, executions.most_common(3)
    last = demo.start()
    assert last.wait(timeout=HEAD_LIMIT_S) == 0, demo.output()[-6000:]
    assert demo.executions() == executions


def wait_until_they_met(demo: Demo) -> None:
    """Until one head says that the other one holds the lease of a shard."""
    deadline = time.monotonic() + HEAD_LIMIT_S
    while "the lease is held by attempt 1 (process " not in demo.output():
        assert time.monotonic() < deadline, demo.output()[-6000:]
        time.sleep(0.2)
