"""A folder of generations: what is there, and how one more is committed.

    1. data files are written into a temporary folder, each made durable
    2. `ckpt.manifest.json`, durable
    3. `OK`, which holds the manifest's digest, durable; then the folder's names
    4. the folder is renamed to its name, which nothing ever had before; then the parent's names

A crash at any point leaves either no new generation or a complete one. There is no pointer to
the newest: readers list the folder.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from milepost.checkpoint import leftovers
from milepost.checkpoint.audit import WITH_CONTENT, note, read_audit
from milepost.checkpoint.manifest import (
    MANIFEST,
    OK,
    Manifest,
    check_file_name,
    commit_order,
    generation_name,
    is_digest,
    is_name,
    parse_manifest,
    parse_name,
)
from milepost.durable import fsync_directory, new_hasher, read_json, storage_errors, write_json
from milepost.errors import DataError, StorageError

STATE = "store.json"
_STATE_FORMAT = 1
Hook = Callable[[str], None]


class Draft:
    """A generation being written: put its files into `folder`, then `commit`."""

    def __init__(self, store: CheckpointStore, name: str, folder: Path) -> None:
        self.store, self.name, self.folder = store, name, folder

    def path(self, file_name: str) -> Path:
        """Where a data file of this generation is written."""
        check_file_name(file_name)
        return self.folder / file_name

    def commit(self, manifest: Manifest, fence: Callable[[], None] = lambda: None) -> str:
        """Make this draft a generation; its data files must be durable already.

        `fence` is called right before the rename and raises if this writer was superseded. The
        audit log is the caller's to write: a generation that it does not know counts as found.
        """
        hook = self.store.hook
        hook("data-durable")
        data = manifest.to_bytes()
        with storage_errors(self.folder):
            _write_durable(self.folder / MANIFEST, data)
            hook("manifest-durable")
            _write_durable(self.folder / OK, f"{digest_bytes(data)}\n".encode())
            hook("ok-durable")
            _sync_folders(self.folder)
            fence()
            hook("before-rename")
            self._rename()
            hook("renamed")
            fsync_directory(self.store.folder)
        hook("committed")
        return self.name

    def abandon(self) -> None:
        """Remove what was written."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _rename(self) -> None:
        target = self.store.folder / self.name
        try:
            os.rename(self.folder, target)
        except OSError as error:
            if target.exists():
                raise StorageError(
                    "another writer committed this generation",
                    where=target,
                    fix="let only one process at a time checkpoint into a folder",
                ) from error
            raise


class CheckpointStore:
    """The generations in `folder`, which is made when something is first written.

    `attempt` is the number of this attempt (0 without a runner). `hook` is called with the name
    of each step of a commit; tests use it to die there.
    """

    def __init__(
        self, folder: Path | str, *, attempt: int = 0, hook: Hook = lambda step: None
    ) -> None:
        self.folder, self.attempt, self.hook = Path(folder), attempt, hook
        self.make_room: Callable[[], object] = lambda: None
        """Called before a generation is begun, to make room on the disk."""
        self._floor = 0

    def generations(self) -> list[str]:
        """Names of what was committed, newest first; whether it is intact, `verify` tells."""
        return [name for name in self.names() if (self.folder / name / OK).is_file()]

    def names(self) -> list[str]:
        """All folders with the name of a generation, also without an OK, newest first."""
        try:
            found = [entry for entry in os.listdir(self.folder) if is_name(entry)]
        except FileNotFoundError:
            return []
        return sorted(found, key=commit_order, reverse=True)

    def path(self, name: str) -> Path:
        parse_name(name)
        return self.folder / name

    def manifest(self, name: str) -> Manifest:
        """The manifest of a generation, after its digest was compared with the OK flag."""
        folder = self.path(name)
        data = _read(folder / MANIFEST)
        flag = _read(folder / OK).decode("ascii", "replace").strip()
        if not is_digest(flag):
            raise DataError("holds no digest", where=folder / OK)
        if flag != digest_bytes(data, flag.partition(":")[0]):
            raise DataError("does not match the digest in OK", where=folder / MANIFEST)
        manifest = parse_manifest(data, folder / MANIFEST)
        if manifest.name != name:
            raise DataError(f"names another generation, {manifest.name}", where=folder / MANIFEST)
        return manifest

    def begin(self) -> Draft:
        """Start a generation under the next free number."""
        self.make_room()
        number = max(
            [self._floor, self._state()["high"], *(parse_name(n)[0] for n in self.names())]
        )
        name = generation_name(number + 1, self.attempt)
        with storage_errors(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
            folder = Path(tempfile.mkdtemp(prefix=leftovers.prefix(self.attempt), dir=self.folder))
            folder.chmod(0o777 & ~_umask())
        self.hook("begun")
        return Draft(self, name, folder)

    def reserve(self, names: Iterable[str]) -> None:
        """Number new generations above `names` too, which exist in another tier."""
        self._floor = max([self._floor, *(parse_name(name)[0] for name in names)])

    def clean(self) -> list[str]:
        """Remove temporary folders of dead attempts; returns their names.

        A generation that the audit log does not know, since its writer died or it came from
        another tier, is recorded as found.
        """
        known = read_audit(self.folder).content
        for name in reversed(self.generations()):
            if name not in known:
                self.note("found", name)
        return leftovers.remove(self.folder, self.attempt)

    def note(self, what: str, name: str, tier: str | None = None) -> None:
        """Put what happened to a generation, here or in a tier, into the audit log."""
        manifest = None
        if tier is not None:
            note(self.folder, what, name, tier=tier)
            return
        if what in WITH_CONTENT:
            manifest = _read(self.path(name) / OK).decode("ascii", "replace").strip()
        note(self.folder, what, name, manifest)

    def remove(self, name: str) -> None:
        """Delete a generation: first its OK, so that no half of it is ever taken for whole."""
        folder = self.path(name)
        state = self._state()
        if parse_name(name)[0] > state["high"]:
            self._save({**state, "high": parse_name(name)[0]})
        with storage_errors(folder):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(folder / OK)
            fsync_directory(folder)
            self.hook("unflagged")
            shutil.rmtree(folder)
        self.note("pruned", name)

    def restore_counts(self) -> dict[str, int]:
        """How often each generation was restored without a commit or a clean end since."""
        counts: dict[str, int] = self._state()["restores"]
        return dict(counts)

    def note_restore(self, name: str) -> None:
        """Count, durably and before the application runs, that `name` is being restored."""
        state = self._state()
        restores = {**state["restores"], name: state["restores"].get(name, 0) + 1}
        self._save({**state, "restores": restores})
        self.note("restored", name)

    def clear_restore(self, name: str) -> None:
        """The application got past `name`: forget how often it was restored."""
        state = self._state()
        if name in state["restores"]:
            restores = {key: n for key, n in state["restores"].items() if key != name}
            self._save({**state, "restores": restores})

    def gold(self) -> frozenset[str]:
        """Generations a person marked to be kept for good."""
        return frozenset(self._state()["gold"])

    def set_gold(self, name: str, is_gold: bool = True) -> None:
        """Mark a generation to be kept for good, or take the mark back."""
        self.manifest(name)
        marks = self.gold() | {name} if is_gold else self.gold() - {name}
        self._save({**self._state(), "gold": sorted(marks)})
        self.note("gold" if is_gold else "ungold", name)

    def _state(self) -> dict[str, Any]:
        try:
            state = read_json(self.folder / STATE)
        except FileNotFoundError:
            state = {}
        state = state if isinstance(state, dict) else {"format": None}
        if state.get("format", _STATE_FORMAT) != _STATE_FORMAT:
            raise DataError(f"has format {state.get('format')!r}", where=self.folder / STATE)
        return {"high": 0, "restores": {}, "gold": [], **state}

    def _save(self, state: Mapping[str, Any]) -> None:
        write_json(self.folder / STATE, {"format": _STATE_FORMAT, **state})


def _read(path: Path) -> bytes:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError as error:
        raise DataError("is missing", where=path) from error
    except OSError as error:
        if path.is_symlink():
            raise DataError("is a link, which a checkpoint never holds", where=path) from error
        raise
    with os.fdopen(fd, "rb") as stream:
        return stream.read()


def _write_durable(path: Path, data: bytes) -> None:
    """Write a file of a folder that nobody reads yet: no rename is needed."""
    with path.open("xb") as stream:
        stream.write(data)
        stream.flush()
        os.fsync(stream.fileno())


def _sync_folders(folder: Path) -> None:
    for root, _, _ in os.walk(folder):
        fsync_directory(root)


def digest_bytes(data: bytes, algorithm: str = "blake3") -> str:
    """Digest as `algorithm:hex`."""
    hasher = new_hasher(algorithm)
    hasher.update(data)
    return f"{algorithm}:{hasher.hexdigest()}"


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
