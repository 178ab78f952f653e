"""milepost as a peer: one shard with all tasks, run by `milepost shard` as in a real run."""

from __future__ import annotations

import datetime
import subprocess
import sys
import time
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from bench.peers import WORKERS

ROOT = Path(__file__).resolve().parents[1]
RUN, SHARD = "bench", "0001"


class MilepostProcesses:
    """A command for each task."""

    name = "milepost"
    durable = "journal, fsync"

    def is_here(self) -> bool:
        return find_spec("milepost.cli.shard") is not None

    def work(self, place: Path) -> dict[str, Any]:
        return {"command": f"touch {place}/{{name}}"}

    def run(self, names: Sequence[str], place: Path, scratch: Path) -> float:
        prepare(names, self.work(place), scratch)
        command = [sys.executable, "-m", "milepost.cli.main", "shard", RUN, SHARD]
        began = time.perf_counter()
        ended = subprocess.run(
            [*command, "--root", str(scratch)],
            cwd=ROOT,
            check=False,
            capture_output=True,
            text=True,
        )
        seconds = time.perf_counter() - began
        if ended.returncode != 0:
            raise SystemExit(f"bench: milepost ended with {ended.returncode}:\n{ended.stderr}")
        return seconds


class MilepostCallables(MilepostProcesses):
    """A Python callable for each task, in persistent workers."""

    def work(self, place: Path) -> dict[str, Any]:
        return {"function": f"{__package__}.work:touch_there", "environment": {"PLACE": str(place)}}


def prepare(names: Sequence[str], work: dict[str, Any], root: Path) -> None:
    """Freeze a contract and a table with one shard, as `milepost submit` would."""
    from milepost.config.freeze import freeze
    from milepost.config.load import parse_config
    from milepost.config.tasks import read_tasks
    from milepost.model import Shard
    from milepost.paths import RunPaths
    from milepost.shardtable import write_shards

    table = root / "tasks.csv"
    table.write_text("\n".join(["name", *names]) + "\n", encoding="utf-8")
    run = {
        "resources": {"cpus": WORKERS, "runtime_s": 86400},
        "work": {"kind": "batch", "tasks": str(table), **work},
    }
    spec = parse_config({"runs": {RUN: run}}, root=ROOT).runs[RUN]
    paths = RunPaths(RUN, root)
    freeze(spec, paths, datetime.datetime.now(datetime.UTC))
    write_shards(paths.frozen_shards, [Shard(SHARD, tuple(read_tasks(table)))])
