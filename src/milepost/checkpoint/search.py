"""Find the newest generation that is legal and usable, in scratch, then warm, then cold."""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from milepost.checkpoint.crypt import Tampered, UserKey
from milepost.checkpoint.known import Known, known_here, known_there
from milepost.checkpoint.legal import Wanted, check_legal
from milepost.checkpoint.manifest import Manifest, commit_order
from milepost.checkpoint.store import CheckpointStore
from milepost.checkpoint.upload import Remote
from milepost.checkpoint.verify import verify_generation
from milepost.clock import epoch
from milepost.errors import DataError, MilepostError, Refused, StorageError

T = TypeVar("T")
MAX_RESTORES = 2


@dataclass(frozen=True, slots=True)
class Lost:
    """Work that is done again: None where an unreadable manifest does not tell."""

    steps: int | None = None
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Found(Generic[T]):
    """A legal generation that now lies in the store, and what `use` made of it."""

    manifest: Manifest
    result: T
    tier: str
    damages: tuple[str, ...]
    lost: Lost


def find_generation(
    store: CheckpointStore,
    wanted: Wanted,
    use: Callable[[Manifest], T],
    remotes: Sequence[Remote] = (),
) -> Found[T] | None:
    """The newest generation that `use` accepts, fetched into `store` if it was not there.

    `use` reads it and raises DataError when it is damaged. Damage is never repaired and never
    hidden: it is reported and an older generation is taken. None when there is no generation at
    all. Errors: StorageError when there is no room for one of another tier here; Refused when the
    newest intact one is not legal; DataError when there are generations but none can be used, and
    Tampered when one of them was changed by somebody without the key.
    """
    search = _Search(store, wanted, remotes)
    names = search.names()
    for name in names:
        for tier in search.places(name):
            found = search.attempt(name, tier, use)
            if found is not None:
                manifest, result = found
                lost = search.lost(manifest)
                return Found(manifest, result, tier, tuple(search.damages), lost)
    if not names and not search.damages:
        search.report_all_lost()
        return None
    kind = Tampered if search.is_tampered else DataError
    raise kind(
        "no generation can be restored:\n  " + "\n  ".join(search.damages),
        where=store.folder,
        fix="`milepost ckpt verify` shows the damage; to start afresh, move the folder away",
    )


def intact(store: CheckpointStore, key: UserKey | None = None) -> Callable[[Manifest], None]:
    """A `use` that reads and digests every byte of the generation and of its bases."""

    def check(manifest: Manifest) -> None:
        damages = verify_generation(store, manifest.name, key=key)
        if damages:
            raise DataError("; ".join(f"{d.where}: {d.what}" for d in damages))

    return check


class _Search:
    """Tries generations and remembers what was wrong with them."""

    def __init__(self, store: CheckpointStore, wanted: Wanted, remotes: Sequence[Remote]) -> None:
        self.store, self.wanted = store, wanted
        self.remotes = {remote.label: remote for remote in remotes}
        self.damages: list[str] = []
        self.is_tampered = False
        self._here = store.names()
        self._there = {label: self._list(remote) for label, remote in self.remotes.items()}
        self._counts = store.restore_counts()
        self._unheard: list[str] = []
        self._known = self._all_known()

    def names(self) -> list[str]:
        every = {*self._here, *(name for names in self._there.values() for name in names)}
        return sorted(every, key=commit_order, reverse=True)

    def places(self, name: str) -> list[str]:
        if self._counts.get(name, 0) >= MAX_RESTORES:
            self.damages.append(
                f"{name}: in quarantine, the application ended badly after each of "
                f"{self._counts[name]} restores"
            )
            return []
        here = ["scratch"] if name in self._here else []
        return here + [label for label, names in self._there.items() if name in names]

    def attempt(
        self, name: str, tier: str, use: Callable[[Manifest], T]
    ) -> tuple[Manifest, T] | None:
        """Manifest and result if the generation is usable in that tier, else None and a report."""
        try:
            if tier != "scratch":
                self.remotes[tier].fetch(self.store, name)
            damages = verify_generation(self.store, name, deep=False)
            self.damages += [f"{tier}: {damage}" for damage in damages]
            if damages:
                return None
            manifest = self.store.manifest(name)
            check_legal(manifest, self.wanted, self.store.path(name))
            return manifest, use(manifest)
        except Refused:
            raise
        except StorageError as error:
            if self._is_here(error):  # no room for a generation is no damage of it
                raise
            self.damages.append(f"{tier}: {name}: {error}")
            return None
        except (MilepostError, OSError) as error:
            self.is_tampered |= isinstance(error, Tampered)
            self.damages.append(f"{tier}: {name}: {error}")
            return None

    def _is_here(self, error: StorageError) -> bool:
        """Is it this machine's disk that is full, and not the tier that cannot be read?"""
        return Path(str(error.where)).is_relative_to(self.store.folder)

    def lost(self, taken: Manifest) -> Lost:
        """What the newest generation that is known had more than the one taken."""
        self.damages += self._unheard
        newest = max([taken.name, *self.names(), *self._known], key=commit_order)
        if newest == taken.name:
            return Lost(0, 0.0)
        known = self._known.get(newest)
        if known is not None and newest not in self.names():
            self.damages.append(f"{newest}: committed at {known.created}, and in no tier any more")
        manifest = self._manifest(newest)
        if manifest is not None:
            known = Known(newest, manifest.created, manifest.step)
        if known is None:
            return Lost()
        step, created_s = known.step, known.created_s
        steps = None if step is None else step - taken.step
        return Lost(steps, max(created_s - epoch(taken.created), 0.0))

    def report_all_lost(self) -> None:
        """There is no generation. Say so where there was one: its work is done again."""
        if self._known:
            known = self._known[max(self._known, key=commit_order)]
            step = "n/a" if known.step is None else known.step
            print(
                f"milepost: {known.name} was committed at {known.created} and is in no tier any "
                f"more; nothing can be restored, and all work up to step {step} is done again",
                file=sys.stderr,
            )

    def _manifest(self, name: str) -> Manifest | None:
        """From wherever it can be read."""
        readers = [self.store.manifest]
        readers += [
            self.remotes[tier].manifest for tier, names in self._there.items() if name in names
        ]
        for read in readers:
            with contextlib.suppress(MilepostError, OSError):
                return read(name)
        return None

    def _all_known(self) -> dict[str, Known]:
        """By name; what a tier noted counts more, since it knows the step."""
        found: dict[str, Known] = {}
        places: list[tuple[str, Callable[[], Iterable[Known]]]] = [
            ("scratch", functools.partial(known_here, self.store))
        ]
        places += [(r.label, functools.partial(known_there, r)) for r in self.remotes.values()]
        for label, look in places:
            try:
                found |= {known.name: known for known in look()}
            except (MilepostError, OSError) as error:
                self._unheard.append(f"{label}: what was committed cannot be read ({error})")
        return found

    def _list(self, remote: Remote) -> list[str]:
        try:
            return remote.generations()
        except (MilepostError, OSError) as error:
            self.damages.append(f"{remote.label}: cannot be listed ({error})")
            return []
