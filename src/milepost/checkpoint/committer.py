"""Snapshot and commit: the application waits for one memory copy, a thread does the rest."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from milepost.checkpoint.base import Base
from milepost.checkpoint.crypt import UserKey
from milepost.checkpoint.density import SMALL_BLOCK_BYTES, Fine, density, next_block_bytes
from milepost.checkpoint.encode import EncodeOptions, WrittenFile, write_data_file
from milepost.checkpoint.environment import current_environment
from milepost.checkpoint.image import Image, reuse
from milepost.checkpoint.layout import BLOCK_BYTES, Layout, plan_layout
from milepost.checkpoint.manifest import Manifest, Metrics, Output
from milepost.checkpoint.meta import to_json
from milepost.checkpoint.pack import Tools
from milepost.checkpoint.ranks import Ranks, aborted
from milepost.checkpoint.rates import Probing, TierRate
from milepost.checkpoint.staging import Staging, Whole
from milepost.checkpoint.store import CheckpointStore, Draft
from milepost.checkpoint.stored import Stored, needed
from milepost.checkpoint.waves import Waves
from milepost.clock import utc_now
from milepost.model import FileProof

MAX_BASES = 8
_RNG_LIMIT_BYTES = 64 << 10


@dataclass(frozen=True, slots=True)
class Extras:
    """What the caller says about the state besides the arrays; see `Manifest`."""

    solver: Mapping[str, Any] = field(default_factory=dict)
    outputs: tuple[Output, ...] = ()
    control: Mapping[str, Any] | None = None
    saves_skipped: int = 0
    saves_waited: int = 0


@dataclass(frozen=True, slots=True)
class Committed:
    """One committed generation. Times as in `Metrics`, `durable_s` up to the rename."""

    generation: str
    step: int
    blocked_s: float
    durable_s: float
    bytes_logical: int
    bytes_stored: int


@dataclass(frozen=True, slots=True)
class _Snapshot:
    layout: Layout
    info: Mapping[str, Any]
    step: int
    extras: Extras
    start: float
    image: Staging
    draft: Draft | None = None
    generation: str = ""

    @property
    def blocked_s(self) -> float:
        """How long the application waited; known when everything is copied."""
        done = self.image.filled
        return (time.monotonic() if done is None else done) - self.start


Begun = tuple[Draft | None, str]
Done = Callable[[Committed | None, BaseException | None], None]


class Committer:
    """Owns the staging memory and the background thread; one save is under way at most."""

    def __init__(
        self,
        store: CheckpointStore,
        ranks: Ranks,
        *,
        compression: str = "auto",
        delta: bool = True,
        key: UserKey | None = None,
        fence: Callable[[], None] = lambda: None,
        after: Callable[[Committed], None] = lambda committed: None,
        slowest_tier_bytes_per_s: float | None = None,
        decomposition_version: int = 1,
        staging_limit_bytes: int | None = None,
    ) -> None:
        self._staging_limit = staging_limit_bytes
        self._waves: Waves | None = None
        self._decomposition_version = decomposition_version
        self._store, self._ranks, self._fence, self._after = store, ranks, fence, after
        self._compression, self._delta, self._key = compression, delta, key
        self._tier_limit = slowest_tier_bytes_per_s
        self._disk_rate, self._probing = TierRate(), Probing()
        self._tools = Tools()
        self._image: Image | None = None
        self._last: str | None = None
        self._known: Mapping[bytes, Stored] | None = None
        self._fine: Fine = {}
        self._block_bytes = BLOCK_BYTES
        self._last_bytes: int | None = None
        self._thread = ThreadPoolExecutor(1, "milepost-commit")
        self._job: Future[None] | None = None
        self._touching: Future[None] | None = None

    def prepare(self, image_bytes: int) -> None:
        """Allocate and touch the staging memory in the background, before the first save."""
        if self._needs_waves(image_bytes):
            self._touching = self._thread.submit(self._make_waves().touch)
        elif self._image is None and image_bytes > 0:
            self._image = reuse(None, image_bytes + image_bytes // 8)
            self._touching = self._thread.submit(self._image.touch)

    def know(self, known: Mapping[bytes, Stored], generation: str | None = None) -> None:
        """The next save may refer to these blocks, and be XORed with those of `generation`."""
        self._known, self._last = dict(known), generation
        largest = max((stored.size for stored in known.values()), default=BLOCK_BYTES)
        if largest == SMALL_BLOCK_BYTES and len(known) > 1:
            self._block_bytes = self._last_bytes = SMALL_BLOCK_BYTES

    def is_busy(self) -> bool:
        return self._job is not None and not self._job.done()

    def save(
        self,
        step: int,
        arrays: Mapping[str, np.ndarray[Any, Any]],
        meta: Any,
        extras: Extras,
        done: Done,
    ) -> None:
        """Copy the state and return; `done` hears in the background how the commit ended."""
        self.settle()
        start = time.monotonic()
        info: dict[str, Any] = {"step": step}
        layouts: list[Layout] = []
        stages: list[Staging] = []
        # Ranks go on together when all have copied; one process writes while it copies.
        are_ranks = self._ranks.size > 1

        def prepare() -> None:
            self._fence()
            info["meta"] = to_json(meta)
            layouts.append(plan_layout(arrays, self._block_bytes))
            stages.append(self._stage(layouts[0]))
            if are_ranks and not isinstance(stages[0], Waves):
                copy()

        def copy() -> None:
            stages[0].fill(layouts[0], arrays)
            self._store.hook("staged")

        begun = self._ranks.begin(self._store, prepare) if are_ranks else None
        if begun is None:
            prepare()
        snapshot = _Snapshot(layouts[0], info, step, extras, start, stages[0])
        self._job = self._thread.submit(self._run, snapshot, begun, done)
        if stages[0].filled is None:
            copy()

    def _stage(self, layout: Layout) -> Staging:
        """Memory for the copy, begun anew."""
        stage: Staging
        if self._needs_waves(layout.image_bytes):
            stage = self._make_waves()
        else:
            self._image = reuse(self._image, layout.image_bytes)
            stage = Whole(self._image)
        stage.begin()
        return stage

    def _needs_waves(self, image_bytes: int) -> bool:
        return self._staging_limit is not None and image_bytes > self._staging_limit

    def _make_waves(self) -> Waves:
        if self._waves is None:
            assert self._staging_limit is not None
            self._image, self._waves = None, Waves(self._staging_limit)
        return self._waves

    def settle(self) -> None:
        """Wait until no save is under way; how it ended, `done` was told."""
        for job in (self._job, self._touching):
            if job is not None:
                wait([job])
        self._job = self._touching = None

    def close(self) -> None:
        self._thread.shutdown(wait=True)
        self._tools.close()

    def _run(self, snap: _Snapshot, begun: Begun | None, done: Done) -> None:
        try:
            committed = self._commit(self._begin(snap, begun))
        except BaseException as error:  # noqa: BLE001 - raised in the caller's thread
            done(None, error)
            return
        done(committed, None)
        try:
            if self._ranks.rank == 0:
                self._store.note("created", committed.generation)
            self._after(committed)
        except BaseException as error:  # noqa: BLE001 - raised in the caller's thread
            done(None, error)

    def _begin(self, snap: _Snapshot, begun: Begun | None) -> _Snapshot:
        """With a draft: one process begins it here, so that only this thread waits for the disk."""
        try:
            draft, generation = begun or self._ranks.begin(self._store, lambda: None)
        except BaseException:
            snap.image.give_up()
            raise
        return replace(snap, draft=draft, generation=generation)

    def _commit(self, snap: _Snapshot) -> Committed:
        folder = self._ranks.folder(self._store, snap.draft, snap.generation)
        name = self._ranks.file_name
        hook = self._store.hook
        try:
            hook("copied")
            written = self._write(snap, folder / name)
            hook("file-durable")
            proof = FileProof(name, written.size_bytes, written.digest)
            files = self._ranks.gather(folder, proof, written.bases)
            hook("told")
            if snap.draft is not None:
                snap.draft.commit(self._manifest(snap, written, files), self._may_commit(folder))
            self._ranks.committed(self._store, snap.generation)
        except BaseException as error:
            self._known = None
            snap.image.give_up()
            self._ranks.give_up(folder, error)
            if snap.draft is not None:
                snap.draft.abandon()
            elif isinstance(error, FileNotFoundError) and not folder.exists():
                raise aborted(folder) from error
            raise
        return self._note(snap, written)

    def _may_commit(self, folder: Path) -> Callable[[], None]:
        """Asked right before the rename: does the lease still hold, and did no rank give up?"""

        def check() -> None:
            self._fence()
            self._ranks.check_votes(folder)

        return check

    def _write(self, snap: _Snapshot, path: Path) -> WrittenFile:
        """Write this rank's file; what the next one is measured by is noted."""
        known = self._known if self._delta else None
        if known is not None and len(needed(known.values())) > MAX_BASES:
            known = None
        rates = [self._disk_rate.bytes_per_s, self._tier_limit]
        rate = min((one for one in rates if one is not None), default=None)
        has_base = bool(known) and self._last is not None
        compression = self._probing.compression(self._compression, rate, has_base)
        is_packing = compression == "zstd" or (compression == "auto" and rate is not None)
        with ExitStack() as stack:
            base = None
            if has_base and is_packing and self._last is not None:
                base = stack.enter_context(Base(self._last, self._own_file, self._key))
            options = EncodeOptions(
                compression, self._key, known, rate, self._delta, base=base, tools=self._tools
            )
            written = write_data_file(
                path, snap.image, snap.layout, snap.info, snap.generation, options
            )
        self._probing.note(compression, written.code, rate)
        self._disk_rate.add(written.data_bytes, written.write_s)
        return written

    def _own_file(self, generation: str) -> Path:
        return self._store.path(generation) / self._ranks.file_name

    def _manifest(self, snap: _Snapshot, written: WrittenFile, files: Any) -> Manifest:
        proofs, bases = files
        meta = snap.info["meta"]
        metrics = Metrics(
            round(snap.blocked_s, 6),
            round(time.monotonic() - snap.start, 6),
            snap.layout.logical_bytes,
            sum(proof.size_bytes for proof in proofs),
            snap.extras.saves_skipped,
            snap.extras.saves_waited,
        )
        return Manifest(
            name=snap.generation,
            step=snap.step,
            created=utc_now(),
            files=tuple(proofs),
            environment=current_environment(),
            bases=tuple(bases),
            ranks=self._ranks.decomposition,
            decomposition_version=self._decomposition_version,
            rng=self._public_rng(meta),
            solver=snap.extras.solver,
            outputs=snap.extras.outputs,
            control=snap.extras.control,
            metrics=metrics,
        )

    def _public_rng(self, meta: Any) -> Any:
        """The state of the random numbers as the meta data holds it; never of encrypted data."""
        rng = meta.get("rng") if isinstance(meta, dict) else None
        if self._key is not None or len(repr(rng)) > _RNG_LIMIT_BYTES:
            return {"in": self._ranks.file_name}
        return rng

    def _note(self, snap: _Snapshot, written: WrittenFile) -> Committed:
        durable_s = time.monotonic() - snap.start
        self._known, self._last = written.blocks, snap.generation
        if self._delta:
            found = density(self._fine, written.fine)
            size, is_delta = snap.layout.block_bytes, snap.layout.block_bytes == self._last_bytes
            if is_delta:
                image_bytes = snap.layout.image_bytes
                changed = written.changed_share
                self._block_bytes = next_block_bytes(size, image_bytes, changed, found)
            self._last_bytes, self._fine = size, written.fine
        return Committed(
            snap.generation,
            snap.step,
            snap.blocked_s,
            durable_s,
            snap.layout.logical_bytes,
            written.size_bytes,
        )
