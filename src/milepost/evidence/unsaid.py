"""How an attempt ended that could not say so itself: the scheduler's word, kept beside its record.

An attempt that was killed at once leaves a record without an end. Slurm's accounting knows the
end of its job; what it says is classified once and written to attempts/<n>.slurm.json, because
resources of the next request, and whether there is to be one, depend on it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from milepost.clock import epoch
from milepost.durable import read_json, write_json
from milepost.errors import SchedulerError
from milepost.evidence.classify import classify
from milepost.slurm.history import history
from milepost.slurm.records import AttemptRecord
from milepost.slurm.states import State

SKEW_S = 5.0
"""The clocks of nodes and of slurmctld may differ by this much."""


def is_unsaid(record: Mapping[str, Any]) -> bool:
    """Did an attempt of a Slurm job leave no word of why it ended?"""
    if record.get("slurm_job_id") is None or record.get("finding") is not None:
        return False
    return record.get("ended") is None or record.get("stop") == "signal TERM"


def completed(live: Path, record: Mapping[str, Any]) -> Mapping[str, Any]:
    """The record, with finding, times and `stop` from Slurm where it has none of its own.

    Unchanged when the attempt ended with a word, and while Slurm does not know or is not heard.
    """
    if not is_unsaid(record):
        return record
    path = live / "attempts" / f"{record['attempt']}.slurm.json"
    try:
        said: Mapping[str, Any] = read_json(path)
    except FileNotFoundError:
        found = _ask(record)
        if found is None:
            return record
        said = found
        write_json(path, said)
    return {**record, **said}


def _ask(record: Mapping[str, Any]) -> dict[str, Any] | None:
    started = epoch(record["started"])
    try:
        known = history([record["slurm_job_id"]], started).get(record["slurm_job_id"], [])
    except SchedulerError:
        return None
    match = execution_of(known, started)
    return None if match is None else told(match)


def execution_of(known: Sequence[AttemptRecord], started: float) -> AttemptRecord | None:
    """The record of the execution in which an attempt started, if it has ended. Pure."""
    for one in known:
        is_over = one.state.is_terminal or one.state.is_requeued
        if one.start is None or one.end is None or not is_over:
            continue
        if one.start - SKEW_S <= started <= one.end + SKEW_S:
            return one
    return None


def told(record: AttemptRecord) -> dict[str, Any]:
    """What an attempt's record needs, out of Slurm's."""
    code = None if record.exit_code is None else str(record.exit_code)
    finding = classify(None, state=state_word(record.state), exit_code=code)
    is_cancelled = finding.subclass == "cancelled"
    return {
        "stop": "cancelled" if is_cancelled else f"Slurm says {record.state}",
        "finding": None if is_cancelled else finding.as_json(),
        "cpu_s": record.cpu_s,
        "useful_s": record.elapsed_s,
        "max_rss_bytes": record.max_rss_bytes,
    }


def state_word(state: State) -> str:
    """The state in the words of the failure signatures: who cancelled decides what it means.

    Slurm itself cancels as user 0; when that is also this user it was a person.
    """
    if state.base == "CANCELLED" and state.cancelled_by is not None:
        is_person = state.cancelled_by == os.getuid() or state.cancelled_by != 0
        return "CANCELLED by user" if is_person else "CANCELLED by 0"
    return state.base or state.raw
