"""A thread that sends new generations to other tiers, newest first, and prunes there.

scratch -> warm          uploader.to: warm
scratch -> warm -> cold  uploader.to: cold; cold is served when nothing waits for warm

A newer offer overtakes an older one that still waits, but not one that is to be kept for long
(gold). Into the cold tier goes every so many of those that warm got, the gold ones, and at the end
the last one.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from milepost.checkpoint.known import Notes
from milepost.checkpoint.manifest import parse_name
from milepost.checkpoint.metrics import UploadMetrics
from milepost.checkpoint.prune import prune_remote
from milepost.checkpoint.retention import Retention
from milepost.checkpoint.store import CheckpointStore
from milepost.checkpoint.upload import Remote, upload_generation
from milepost.clock import epoch
from milepost.errors import StorageError
from milepost.model import FileProof
from milepost.tiers.retry import retries_of

_NOTE_S = 5.0
"""For the end of a note of the last commit, when all else is done."""


@dataclass(frozen=True, slots=True)
class Target:
    """A tier that is sent to, what is kept there (None: everything), and which get there: every
    `every`-th by number, what `is_gold`, and the last one."""

    remote: Remote
    rules: Retention | None = None
    every: int = 1
    is_gold: Callable[[str], bool] = lambda name: False

    def wants(self, name: str) -> bool:
        return parse_name(name)[0] % self.every == 0 or self.is_gold(name)


@dataclass(frozen=True, slots=True)
class _Offer:
    generation: str
    size_bytes: int
    since_s: float
    created_s: float


@dataclass(slots=True)
class _Lane:
    """What waits for one target, and what was proved there by this process."""

    target: Target
    waiting: list[_Offer] = field(default_factory=list)
    passed_by: _Offer | None = None
    proved: dict[str, list[FileProof]] = field(default_factory=dict)


class Uploader:
    """Sends what `offer` names; the newest offer waits and those that are gold, others are
    overtaken.

    A generation is held (see `held`) while it waits or is sent, so that rotation leaves it alone.
    The first failure is kept in `error`; later offers are tried all the same. `tell` hears of
    every change.
    """

    def __init__(
        self,
        store: CheckpointStore,
        targets: Sequence[Target],
        *,
        fence: Callable[[], None] = lambda: None,
        key_id: str | None = None,
        tell: Callable[[UploadMetrics], None] = lambda metrics: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store, self._fence, self._tell, self._clock = store, fence, tell, clock
        self._key_id = key_id
        self._lanes = [_Lane(target) for target in targets]
        self._condition, self._telling = threading.Condition(), threading.Lock()
        self._sending: _Offer | None = None
        self._is_closed = False
        self._notes = Notes([target.remote for target in targets])
        self._sent_count = self._sent_bytes = self._overtaken_count = self._failure_count = 0
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="milepost-upload", daemon=True)
        self._thread.start()
        self._report()

    @property
    def sent(self) -> dict[str, list[FileProof]]:
        """Proofs of what this process sent to the last target."""
        return self._lanes[-1].proved

    def offer(self, generation: str) -> None:
        """Send `generation` as soon as the one under way is done."""
        manifest = self._store.manifest(generation)
        self._notes.tell(manifest)
        created_s = epoch(manifest.created)
        offer = _Offer(generation, manifest.size_bytes, self._clock(), created_s)
        with self._condition:
            self._put(self._lanes[0], offer)
        self._report()

    def held(self) -> frozenset[str]:
        """Generations that must not be deleted now."""
        with self._condition:
            return frozenset(offer.generation for offer in self._pending())

    def metrics(self) -> UploadMetrics:
        """What waits and what was done so far."""
        with self._condition:
            pending, now = self._pending(), self._clock()
            return UploadMetrics(
                queue_count=len(pending),
                queue_bytes=sum(offer.size_bytes for offer in pending),
                queue_since=min((offer.created_s for offer in pending), default=None),
                queue_age_s=max((now - offer.since_s for offer in pending), default=0.0),
                sent_count=self._sent_count,
                sent_bytes=self._sent_bytes,
                overtaken_count=self._overtaken_count,
                failure_count=self._failure_count,
                retry_count=sum(retries_of(lane.target.remote.tier) for lane in self._lanes),
            )

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until everything offered is sent or failed; False when the time is over."""
        with self._condition:
            return self._condition.wait_for(lambda: not self._pending(), timeout_s)

    def close(self, timeout_s: float | None = None) -> None:
        """Finish what was offered; a failure, or a time that is over, is a StorageError."""
        is_done = self.wait(timeout_s) and self._send_the_last(timeout_s)
        self._notes.close(_NOTE_S)
        with self._condition:
            self._is_closed = True
            self._condition.notify_all()
        if is_done:
            self._thread.join()
        if self.error is not None:
            raise self.error
        if not is_done:
            raise StorageError(
                f"the upload did not end within {timeout_s:g} s",
                where=self._lanes[0].target.remote.tier.place,
                fix="the checkpoint is safe in scratch; `milepost upload` sends the rest",
            )

    def _send_the_last(self, timeout_s: float | None) -> bool:
        """Into the tiers that it passed by, since nothing newer comes; False when time is over."""
        with self._condition:
            for lane in self._lanes:
                offer, lane.passed_by = lane.passed_by, None
                if offer is not None:
                    self._put(lane, offer)
        return self.wait(timeout_s)

    def _report(self) -> None:
        with self._telling:
            self._tell(self.metrics())

    def _pending(self) -> list[_Offer]:
        waiting = [offer for lane in self._lanes for offer in lane.waiting]
        return waiting if self._sending is None else [self._sending, *waiting]

    def _put(self, lane: _Lane, offer: _Offer) -> None:
        kept = [one for one in lane.waiting if lane.target.is_gold(one.generation)]
        self._overtaken_count += len(lane.waiting) - len(kept)
        lane.waiting = [*kept, offer]
        self._condition.notify_all()

    def _run(self) -> None:
        while True:
            with self._condition:
                self._condition.wait_for(lambda: bool(self._pending()) or self._is_closed)
                index = next((i for i, lane in enumerate(self._lanes) if lane.waiting), None)
                if index is None:
                    return
                lane = self._lanes[index]
                self._sending = lane.waiting.pop()
            self._serve(index, lane)
            self._report()

    def _serve(self, index: int, lane: _Lane) -> None:
        assert self._sending is not None
        offer, error = self._sending, None
        try:
            self._send(offer, lane)
        except BaseException as caught:  # noqa: BLE001 - raised by close() in the caller's thread
            error = caught
        with self._condition:
            self._sending = None
            if error is None:
                self.error = None
                self._pass_on(index + 1, offer)
            else:
                self._failure_count += 1
                self.error = self.error or error
            self._condition.notify_all()

    def _pass_on(self, index: int, offer: _Offer) -> None:
        if index == len(self._lanes):
            return
        lane = self._lanes[index]
        newest = lane.passed_by is None or lane.passed_by.created_s <= offer.created_s
        if lane.target.wants(offer.generation):
            self._put(lane, offer)
            lane.passed_by = None if newest else lane.passed_by
        elif newest:
            lane.passed_by = offer

    def _send(self, offer: _Offer, lane: _Lane) -> None:
        remote = lane.target.remote

        def count(size_bytes: int) -> None:
            self._sent_bytes += size_bytes

        upload_generation(
            self._store,
            offer.generation,
            remote.tier,
            remote.prefix,
            fence=self._fence,
            progress=count,
            proved=lane.proved,
            key_id=self._key_id,
        )
        self._sent_count += 1
        if lane.target.rules is not None:
            for name in prune_remote(remote, lane.target.rules, self._store.gold()):
                lane.proved.pop(name, None)
                self._store.note("pruned", name, remote.label)
