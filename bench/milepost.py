"""milepost as a peer: one shard with all tasks, run by `milepost shard` as in a real run."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path


class MilepostProcesses:
    """A command for each task."""

    name = "milepost"
    durable = "journal, fsync"

    def is_here(self) -> bool:
        return (
            find_spec("milepost.runner") is not None and find_spec("milepost.cli.shard") is not None
        )

    def run(self, names: Sequence[str], place: Path, scratch: Path) -> float:
        raise NotImplementedError


class MilepostCallables(MilepostProcesses):
    """A Python callable for each task, in persistent workers."""
