"""A slice: a few rows of the table with a root of their own, so that a smoke test touches nothing.

The slice runs under the run's own contract, with tiers inside its root and, for resumable work,
with an interval short enough that there is something to resume from.
"""

from __future__ import annotations

import copy
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from milepost.config.contract import Contract
from milepost.config.spec import SmokeSpec
from milepost.config.tasks import task_key
from milepost.durable import write_json
from milepost.model import Shard, Task, WorkKind
from milepost.paths import RunPaths
from milepost.runner.step import STEP_OF
from milepost.shardtable import shard_name, write_shards
from milepost.slurm.environment import inside_job

LOG_TAIL_CHARACTERS = 2000


@dataclass(frozen=True, slots=True)
class SliceRun:
    """One execution of `milepost shard` in a slice; `exit_code` is negative for a signal."""

    exit_code: int
    seconds: float
    said: str


def choose_rows(tasks: Sequence[Task], smoke: SmokeSpec) -> list[Task]:
    """Rows spread evenly over the table, with the fields of `smoke.set` overwritten."""
    count = max(1, min(smoke.tasks, len(tasks)))
    step = len(tasks) / count
    rows = []
    for number in range(count):
        task = tasks[int(number * step)]
        params: Mapping[str, str] = {**task.params, **smoke.set}
        rows.append(Task(task_key(params), params, task.line))
    return list({row.key: row for row in rows}.values())


@dataclass(frozen=True, slots=True)
class Slice:
    """A prepared slice: its root and its shards."""

    paths: RunPaths
    shards: tuple[Shard, ...]

    @classmethod
    def prepare(
        cls, contract: Contract, rows: Sequence[Task], root: Path, interval_s: float
    ) -> Slice:
        """Make an empty root with the contract and the shard table of the slice."""
        shutil.rmtree(root, ignore_errors=True)
        paths = RunPaths(contract.run, root)
        data = copy.deepcopy(dict(contract.data))
        tiers = {"scratch": str(root / "scratch"), "warm": str(root / "warm"), "cold": None}
        data["accepted"]["tiers"] = tiers
        data["accepted"]["checkpoint"]["interval_seconds"] = interval_s
        write_json(paths.frozen_contract, data)
        if contract.spec.work.kind is WorkKind.BATCH:
            groups = [tuple(rows)]
        else:
            groups = [(row,) for row in rows]
        shards = tuple(Shard(shard_name(n), group) for n, group in enumerate(groups, start=1))
        write_shards(paths.frozen_shards, shards)
        return cls(paths, shards)

    def run(self, shard: Shard, *, drill: bool = False) -> SliceRun:
        """Run `milepost shard` as a process of its own, as a job would."""
        command = [sys.executable, "-m", "milepost.cli.main", "shard", self.paths.run, shard.name]
        command += ["--root", str(self.paths.root)] + (["--drill"] if drill else [])
        # the smoke test waits for this process and must see how it is killed: no step of its own
        env = os.environ | {STEP_OF: inside_job() or ""}
        began = time.monotonic()
        done = subprocess.run(command, env=env, stderr=subprocess.PIPE, text=True, check=False)
        seconds = time.monotonic() - began
        return SliceRun(done.returncode, seconds, done.stderr[-LOG_TAIL_CHARACTERS:])

    def attempt(self, shard: Shard, number: int) -> Mapping[str, object]:
        """The record of an attempt."""
        text = self.paths.shard(shard.name).attempt(number).read_text(encoding="utf-8")
        record: Mapping[str, object] = json.loads(text)
        return record

    def folder(self, shard: Shard, task: Task) -> Path:
        """Where the task's verified output is."""
        by_task = self.paths.artifact(task.key)
        return by_task if by_task.exists() else self.paths.artifact(shard.name)
