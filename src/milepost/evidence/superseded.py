"""A run that another one has taken the place of: written down once, and never launched again.

`work/<run>/superseded.json` is the proof. The runs form chains without circles: whoever follows
the successors comes to a run that counts.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from milepost.durable import create_exclusive, read_json
from milepost.errors import ConfigError, Refused
from milepost.paths import RunPaths


@dataclass(frozen=True, slots=True)
class Superseded:
    """Which run took the place, when, and why if somebody said so."""

    by: str
    time: str
    reason: str | None = None


def superseded_path(paths: RunPaths) -> Path:
    return paths.work / "superseded.json"


def read_superseded(paths: RunPaths) -> Superseded | None:
    """By which run this one is superseded; None when it is not."""
    try:
        value: Mapping[str, Any] = read_json(superseded_path(paths))
    except FileNotFoundError:
        return None
    return Superseded(value["by"], value["time"], value["reason"])


def supersedes(paths: RunPaths) -> list[str]:
    """The runs beside this one that it has taken the place of, by name."""
    notes = sorted(paths.root.glob("work/*/superseded.json"))
    names = [note.parent.name for note in notes]
    return [n for n in names if _by(RunPaths(n, paths.root)) == paths.run]


def check_successor(paths: RunPaths, by: str) -> None:
    """Raise unless `by` may take the place of the run.

    ConfigError when it is not a run of this folder, is the run itself, or ends up at it again;
    Refused when another one has taken the place already: that holds for ever.
    """
    if by == paths.run:
        raise ConfigError(
            f"run {by!r} cannot supersede itself",
            where=paths.work,
            fix="name the run that took its place",
        )
    if not _exists(RunPaths(by, paths.root)):
        known = [name for name in _runs(paths.root) if name != paths.run]
        near = difflib.get_close_matches(by, known, 1)
        hint = f"did you mean {near[0]!r}?" if near else f"known are: {', '.join(known) or 'none'}"
        raise ConfigError(f"there is no run {by!r} here", where=paths.root.resolve(), fix=hint)
    chain = [paths.run, *_chain(by, paths.root)]
    if paths.run in chain[1:]:
        raise ConfigError(
            f"these runs would supersede each other: {' -> '.join(chain)}",
            where=superseded_path(RunPaths(chain[-2], paths.root)),
            fix="name a run that is not superseded by this one",
        )
    before = read_superseded(paths)
    if before is not None and before.by != by:
        raise Refused(
            f"run {paths.run} is superseded by {before.by} since {before.time}",
            where=superseded_path(paths),
            fix=f"that holds for ever; when {by} took the place of {before.by}:"
            f" milepost closeout {before.by} --superseded-by {by}",
        )


def supersede(paths: RunPaths, note: Superseded) -> Superseded:
    """Write it down for ever; what was written down before holds."""
    check_successor(paths, note.by)
    text = json.dumps({"schema": 1, "run": paths.run} | asdict(note), indent=2) + "\n"
    create_exclusive(superseded_path(paths), text)
    return read_superseded(paths) or note


def refuse_superseded(paths: RunPaths) -> None:
    """Raise Refused when the run is superseded: nothing of it is launched any more."""
    note = read_superseded(paths)
    if note is not None:
        *_, last = _chain(note.by, paths.root)
        raise Refused(
            f"run {paths.run} is superseded by {note.by} since {note.time}; it is not launched again",
            where=superseded_path(paths),
            fix=f"go on with {last}: milepost status {last}; for this work once more, name a new run",
        )


def _chain(start: str, root: Path) -> list[str]:
    """A run, its successor, that one's successor, …; a circle ends where it closes."""
    chain = [start]
    while (following := _by(RunPaths(chain[-1], root))) is not None:
        chain.append(following)
        if chain.count(following) > 1:
            break
    return chain


def _by(paths: RunPaths) -> str | None:
    note = read_superseded(paths)
    return None if note is None else note.by


def _exists(paths: RunPaths) -> bool:
    return paths.frozen_contract.exists() or paths.contract.exists()


def _runs(root: Path) -> list[str]:
    proofs = [*root.glob("work/*/contract.json"), *root.glob("results/*/contract.json")]
    return sorted({path.parent.name for path in proofs})
