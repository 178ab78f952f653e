"""A note that somebody cancelled a shard's job: a job cancelled while it waited leaves no other.

Slurm forgets the job's comment, and with it the shard, within minutes. Whoever sees the
cancelled job meanwhile writes it down beside the shard's attempts; an attempt that starts later
makes the note void.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from milepost.clock import epoch
from milepost.durable import read_json, write_json
from milepost.slurm.jobs import FolderJob

NOTE = "cancelled.json"


def note_cancelled(live: Path, job: FolderJob) -> None:
    """Write down that the job was cancelled, unless a later one is noted."""
    known = _read(live)
    if job.end is not None and (known is None or known["time_s"] < job.end):
        write_json(live / NOTE, {"job": job.job_id, "time_s": job.end})


def cancelled_job(live: Path, starts: Iterable[str]) -> str | None:
    """The id of the job that was cancelled after the last attempt began; None without.

    `starts` are the times at which the attempts began.
    """
    known = _read(live)
    if known is None or any(epoch(start) > known["time_s"] for start in starts):
        return None
    return str(known["job"])


def _read(live: Path) -> Mapping[str, Any] | None:
    try:
        note: Mapping[str, Any] = read_json(live / NOTE)
        return note
    except FileNotFoundError:
        return None
