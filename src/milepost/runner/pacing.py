"""How often the application of an attempt checkpoints: planned at its start, and again on the way."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from milepost.durable import write_json
from milepost.lease import update_attempt
from milepost.runner.attempt import Attempt
from milepost.runner.interval import Planned, plan_interval, read_cost

MTBF_FILE = "mtbf.json"
"""Beside the generations: what the run has learned of failures since the application began."""
REPLAN_S = 60.0


class Pacing:
    """Plans the interval of one attempt, and records with what: also for the case that it dies.

    The application measures itself what its checkpoints cost. What it cannot see is what happens
    to other shards: the runner looks every minute, and tells it the MTBF when that has moved.
    """

    def __init__(self, attempt: Attempt, folder: str, costs: Sequence[Mapping[str, Any]]) -> None:
        """`costs` grows: what the journal rows of the shard's checkpoints say."""
        self._attempt, self._costs = attempt, costs
        self._file = Path(folder) / MTBF_FILE
        self._is_stated = attempt.spec.checkpoint.interval_s is not None
        self._planned: Planned | None = None
        self._next_s = 0.0

    @property
    def planned(self) -> Mapping[str, Any] | None:
        """What the checkpoints are planned with, as it is recorded; None before `start`."""
        return None if self._planned is None else self._planned.as_json()

    def start(self) -> dict[str, Any]:
        """Plan for an application that starts now: the options of its Checkpointer."""
        self._file.unlink(missing_ok=True)  # an earlier attempt's
        planned = self._record(self._plan())
        return {
            "interval_s": planned.interval_s,
            "mtbf_s": planned.mtbf_s,
            "interval_most_s": planned.most_s,
            "mtbf_file": None if self._is_stated else str(self._file),
        }

    def look(self) -> None:
        """Plan anew when it is time, and tell the application when the run was interrupted since."""
        before = self._planned
        if before is None or self._is_stated or time.monotonic() < self._next_s:
            return
        now = self._plan()
        if now.mtbf_s is not None and now.interruptions != before.interruptions:
            self._record(now)
            self._file.parent.mkdir(parents=True, exist_ok=True)
            write_json(self._file, {"mtbf_s": now.mtbf_s})

    def _plan(self) -> Planned:
        self._next_s = time.monotonic() + REPLAN_S
        attempt = self._attempt
        cost = read_cost(self._costs)
        return plan_interval(attempt.spec.checkpoint, attempt.run, attempt.shard.name, cost)

    def _record(self, planned: Planned) -> Planned:
        self._planned = planned
        attempt = self._attempt
        update_attempt(attempt.paths.attempt(attempt.number), planned=planned.as_json())
        return planned
