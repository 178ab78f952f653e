"""What is known of generations that may be gone: so that a restore can say what was lost with them.

The audit log of a store knows what was committed there. It goes with its disk, and so each commit is
also noted in the other tiers, at once and before the data is sent:

    known/<generation>.json     step and time; those of older generations are removed
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from milepost.checkpoint.audit import read_audit
from milepost.checkpoint.manifest import Manifest, commit_order, is_name
from milepost.checkpoint.store import CheckpointStore
from milepost.clock import epoch
from milepost.errors import DataError, MilepostError
from milepost.tiers.base import join

if TYPE_CHECKING:
    from milepost.checkpoint.upload import Remote

FOLDER = "known"
_SUFFIX = ".json"


@dataclass(frozen=True, slots=True)
class Known:
    """A generation that was committed; `step` is None where only the time was written down."""

    name: str
    created: str
    step: int | None = None

    @property
    def created_s(self) -> float:
        return epoch(self.created)


def known_here(store: CheckpointStore) -> list[Known]:
    """What the audit log says was committed into the store and not pruned there."""
    found: dict[str, Known] = {}
    for record in read_audit(store.folder).records:
        name, what = str(record.get("generation")), record.get("what")
        if what == "created" and is_name(name):
            found[name] = Known(name, str(record.get("time")))
        elif what == "pruned" and record.get("tier") is None:
            found.pop(name, None)
    return list(found.values())


def names_there(remote: Remote) -> list[str]:
    """The generations that were noted in a tier."""
    places = remote.tier.list(join(remote.prefix, FOLDER))
    names = (place.rpartition("/")[2].removesuffix(_SUFFIX) for place in places)
    return [name for name in names if is_name(name)]


def known_there(remote: Remote) -> list[Known]:
    """What was noted in a tier."""
    found = []
    for name in names_there(remote):
        place = _place(remote, name)
        found.append(_parse(name, remote.tier.read_bytes(place), place))
    return found


def note_there(remote: Remote, manifest: Manifest) -> None:
    """Note that a generation was committed; what was noted of older ones is removed."""
    place = _place(remote, manifest.name)
    value = {"step": manifest.step, "created": manifest.created}
    if remote.tier.stat(place) is None:
        remote.tier.put_bytes(place, json.dumps(value).encode())
    for name in names_there(remote):
        if commit_order(name) < commit_order(manifest.name):
            remote.tier.delete(_place(remote, name))


class Notes:
    """A thread that notes the newest commit in each tier, however long an upload takes.

    A tier that cannot be written is told on stderr, once: the commit does not depend on it.
    """

    def __init__(self, remotes: Sequence[Remote]) -> None:
        self._remotes = remotes
        self._condition = threading.Condition()
        self._next: Manifest | None = None
        self._is_busy = self._is_closed = self._is_told = False
        self._thread = threading.Thread(target=self._run, name="milepost-known", daemon=True)
        self._thread.start()

    def tell(self, manifest: Manifest) -> None:
        """Note this one as soon as the one under way is done."""
        with self._condition:
            self._next = manifest
            self._condition.notify_all()

    def close(self, timeout_s: float | None) -> None:
        """Finish what was told, as far as the time allows."""
        with self._condition:
            self._condition.wait_for(lambda: self._next is None and not self._is_busy, timeout_s)
            self._is_closed = True
            self._condition.notify_all()

    def _run(self) -> None:
        while True:
            with self._condition:
                self._condition.wait_for(lambda: self._next is not None or self._is_closed)
                manifest, self._next = self._next, None
                self._is_busy = manifest is not None
            if manifest is None:
                return
            for remote in self._remotes:
                self._note(remote, manifest)
            with self._condition:
                self._is_busy = False
                self._condition.notify_all()

    def _note(self, remote: Remote, manifest: Manifest) -> None:
        try:
            note_there(remote, manifest)
        except (MilepostError, OSError) as error:
            if not self._is_told:
                print(
                    f"milepost: a commit is not noted in {remote.label}: {error}", file=sys.stderr
                )
            self._is_told = True


def _parse(name: str, data: bytes, where: str) -> Known:
    try:
        value = json.loads(data)
        known = Known(name, str(value["created"]), int(value["step"]))
        epoch(known.created)
    except (ValueError, KeyError, TypeError) as error:
        raise DataError("is no note of a generation", where=where) from error
    return known


def _place(remote: Remote, name: str) -> str:
    return join(remote.prefix, FOLDER, f"{name}{_SUFFIX}")
