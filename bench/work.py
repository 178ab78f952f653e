"""The task of the overhead benchmark as a Python callable."""

from __future__ import annotations

from pathlib import Path


def touch(name: str, place: str, out: str = "") -> dict[str, str]:
    """Make the empty file `place`/`name`; `out`, the task's private folder, stays unused."""
    (Path(place) / name).touch()
    return {}
