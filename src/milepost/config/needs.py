"""Runs that another run needs: it starts only when the closeout of each says closed.

What lies below `results/<needed>/` is given by the needed run. It need not exist while the
configuration is only read, and is checked when the contract is frozen.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from milepost.durable import read_json
from milepost.errors import Refused
from milepost.paths import RunPaths


def is_given(name: str, needs: Sequence[str]) -> bool:
    """Does the path or glob lie below the results of a needed run?"""
    path = os.path.normpath(name)
    return any(path.startswith(f"results/{run}/") for run in needs)


def record_of(run: str, root: Path) -> Path:
    """The record of the closeout of a run."""
    return RunPaths(run, root).closeout / "record.json"


def read_record(run: str, root: Path) -> Mapping[str, Any] | None:
    """The closeout of a run, or None when there is none."""
    try:
        record: Mapping[str, Any] = read_json(record_of(run, root))
    except FileNotFoundError:
        return None
    return record


def is_closed(run: str, root: Path) -> bool:
    record = read_record(run, root)
    return record is not None and record["closed"] is True


def is_accepted(run: str, root: Path) -> bool:
    """Is the run closed though something in it is not as it should be?"""
    record = read_record(run, root)
    return record is not None and record["closed"] is True and bool(record["accepted"])


def awaits(name: str, needs: Sequence[str], root: Path) -> bool:
    """Is the file still to be given by a needed run that is not closed?"""
    return is_given(name, needs) and not all(is_closed(run, root) for run in needs)


def closed_needs(run: str, needs: Sequence[str], root: Path) -> dict[str, str]:
    """The contract digest in the closeout of each needed run; Refused unless all are closed.

    So it is before the first launch when another run took the place of a needed one.
    """
    digests: dict[str, str] = {}
    is_launched = RunPaths(run, root).frozen_submission.exists()
    for name in needs:
        record = read_record(name, root)
        if record is None or record["closed"] is not True:
            state = "has no closeout yet" if record is None else f"is {record['verdict']}"
            raise Refused(
                f"run {run} needs run {name}, which {state}",
                where=record_of(name, root),
                fix=f"run snakemake, which finishes {name} first; what is open there is said by"
                f" milepost closeout {name}",
            )
        successor = (record.get("superseded") or {}).get("by")
        if successor is not None and not is_launched:
            raise Refused(
                f"run {run} needs run {name}, which is superseded by {successor}",
                where=record_of(name, root),
                fix=f"name {successor} in the needs of {run}",
            )
        digests[name] = record["contract"]
    return digests


def find_circles(needs: Mapping[str, Sequence[str]]) -> Iterator[tuple[str, ...]]:
    """Each circle once, from its first run by name back to itself: (a, b, a)."""
    for start in sorted(needs):
        circle = _way_back(start, start, needs, frozenset())
        if circle is not None and start == min(circle):
            yield (start, *circle)


def _way_back(
    at: str, start: str, needs: Mapping[str, Sequence[str]], seen: frozenset[str]
) -> tuple[str, ...] | None:
    """The runs from the one after `at` up to `start`, along what each needs."""
    for name in needs.get(at, ()):
        if name == start:
            return (start,)
        if name not in seen:
            rest = _way_back(name, start, needs, seen | {name})
            if rest is not None:
                return (name, *rest)
    return None
