"""What stands around the saves of one process: cleaning, restoring, rotation, upload."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from milepost.checkpoint.committer import Committed, Committer
from milepost.checkpoint.crypt import load_key
from milepost.checkpoint.known import known_here, names_there
from milepost.checkpoint.legal import CONFIG, LIBRARY, wanted_now
from milepost.checkpoint.metrics import MetricsFile, SaveMetrics
from milepost.checkpoint.options import Options, stated_in_env
from milepost.checkpoint.prune import prune
from milepost.checkpoint.ranks import Ranks
from milepost.checkpoint.rekey import finish_rekeys
from milepost.checkpoint.rekey_far import finish_far
from milepost.checkpoint.restore import Redecompose, Saved
from milepost.checkpoint.restore_ranks import restore_together
from milepost.checkpoint.retention import Retention, is_periodic_gold
from milepost.checkpoint.room import Room
from milepost.checkpoint.store import CheckpointStore
from milepost.checkpoint.upload import Remote
from milepost.checkpoint.uploader import Target, Uploader
from milepost.durable import write_json
from milepost.errors import ConfigError, MilepostError
from milepost.tiers import Tier, open_tier

_MB = 1e6
_ABANDON_S = 60.0


@dataclass(frozen=True, slots=True)
class Cut:
    """How the state is cut into ranks: the version of the cut, and how to cut anew."""

    version: int = 1
    redecompose: Redecompose | None = None


@dataclass(frozen=True, slots=True)
class Waits:
    """Saves that came while another was under way, and the interval as it is planned now."""

    skipped: int
    waited: int
    waited_s: float
    interval_s: float | None
    is_running: bool = True


class Session:
    """The store of one process with its tiers and rules. Rank 0 rotates and uploads."""

    def __init__(
        self,
        store: CheckpointStore,
        options: Options,
        ranks: Ranks,
        fence: Callable[[], None],
        warm: str | Tier | None = None,
        cold: str | Tier | None = None,
        cut: Cut | None = None,
    ) -> None:
        self._cut = cut or Cut()
        self._store, self._options, self._ranks, self._fence = store, options, ranks, fence
        self._key = load_key(options.encrypt)
        self._rules = retention_of(options)
        self._remotes = [
            Remote(label, _tier(place, options))
            for label, place in (("warm", warm or options.warm), ("cold", cold or options.cold))
            if place is not None
        ]
        self._uploader: Uploader | None = None
        self._room = Room(store, self._rules, lambda: self._uploader, self._time_left_s)
        self._metrics, self._saves = MetricsFile(), SaveMetrics()
        self._restored: str | None = None
        self._verified: set[str] = set()
        self._there: list[tuple[Target, set[str]]] = []
        self._is_open = False

    def open(self) -> None:
        """Remove what dead attempts left, and start the upload thread."""
        if self._is_open or self._ranks.rank != 0:
            return
        self._is_open = True
        self._metrics.tell_saves(self._saves)
        finish_rekeys(self._store)
        self._store.clean()
        self._store.reserve(known.name for known in known_here(self._store))
        targets = self._targets()
        for target in targets:
            target.remote.tier.clean(target.remote.prefix)
            finish_far(self._store, target.remote)
            there = set(target.remote.generations())
            self._store.reserve({*there, *names_there(target.remote)})
            self._there.append((target, there))
        if targets:
            self._uploader = Uploader(
                self._store,
                targets,
                fence=self._fence,
                key_id=None if self._key is None else self._key.key_id,
                tell=self._metrics.tell_uploads,
            )
        self._store.make_room = self._room.make

    def _targets(self) -> list[Target]:
        """Where generations are sent: warm, then cold when the uploader is to go that far."""
        if not self._options.upload:
            return []
        rules = {"warm": self._rules, "cold": archive_of(self._rules)}
        wanted = ("warm",) if self._options.to == "warm" else ("warm", "cold")
        if self._options.to == "cold" and all(one.label != "cold" for one in self._remotes):
            raise ConfigError(
                "the uploader is to send to cold, and there is no such tier",
                where="tiers.cold",
                fix="name a path or URL there, or send to warm",
            )
        every = {"warm": 1, "cold": self._options.cold_every}
        return [
            Target(one, rules[one.label], every[one.label], self._is_gold)
            for one in self._remotes
            if one.label in wanted
        ]

    def _is_gold(self, name: str) -> bool:
        return is_periodic_gold(name, self._rules) or name in self._store.gold()

    def committer(self) -> Committer:
        """The background writer, configured."""
        limit = self._options.max_bandwidth_mb_s if self._uploader is not None else None
        return Committer(
            self._store,
            self._ranks,
            compression=self._options.compression,
            delta=self._options.delta,
            key=self._key,
            fence=self._fence,
            after=self._after_commit,
            decomposition_version=self._cut.version,
            staging_limit_bytes=_bytes_of(self._options.staging_limit_mb),
            slowest_tier_bytes_per_s=None if limit is None else limit * _MB,
        )

    def restore(self) -> Saved | None:
        """As `Checkpointer.restore`; counts the restore, so that a crash after it is noticed."""
        options = self._options
        ranks, cut = self._ranks, self._cut
        wanted = wanted_now(
            options.allow,
            ranks.rank,
            ranks.size,
            cut.version,
            cut.redecompose is not None,
            LIBRARY if stated_in_env() is None else CONFIG,
        )
        saved = restore_together(
            self._store, wanted, ranks, self._remotes, self._key, cut.redecompose
        )
        if saved is None:
            return None
        _report(saved)
        self._restored = saved.generation
        if self._ranks.rank == 0:
            self._store.note_restore(saved.generation)
            _tell_runner(saved)
            self._offer_what_was_not_sent(saved.generation)
        return saved

    def _offer_what_was_not_sent(self, name: str) -> None:
        """Its writer may have died before it had sent it."""
        is_missing = any(target.wants(name) and name not in there for target, there in self._there)
        if self._uploader is not None and is_missing:
            self._uploader.offer(name)

    def tell(self, committed: Committed | None, error: BaseException | None, waits: Waits) -> None:
        """Note in the metrics how a save ended, or (both None) how things stand."""
        if self._ranks.rank != 0:
            return
        saves = (
            self._saves if committed is None else self._saves.with_commit(committed, time.time())
        )
        self._saves = replace(
            saves,
            failure_count=saves.failure_count + (error is not None),
            skipped_count=waits.skipped,
            waited_count=waits.waited,
            waited_sum_s=waits.waited_s,
            interval_s=waits.interval_s,
            drain_count=self._room.drain_count,
            is_running=waits.is_running,
        )
        self._metrics.tell_saves(self._saves)

    def close(self, *, may_leave_upload: bool) -> None:
        """Finish the upload. When the process must stop, what the time does not allow is left."""
        self._is_open = False
        self._forget_restore()
        uploader, self._uploader = self._uploader, None
        if uploader is None:
            return
        if may_leave_upload:
            _finish(uploader, self._time_left_s())
        else:
            uploader.close()

    def abandon(self, *, is_application_fault: bool) -> None:
        """The process ends with an exception; only the application's own counts against the
        generation that it was restored from. What is committed is sent all the same, since its
        disk may go with the job, but not for longer than a minute."""
        self._is_open = False
        if not is_application_fault:
            self._forget_restore()
        uploader, self._uploader = self._uploader, None
        if uploader is not None:
            left_s = self._time_left_s()
            _finish(uploader, _ABANDON_S if left_s is None else min(left_s, _ABANDON_S))

    def _after_commit(self, committed: Committed) -> None:
        """In the background, after each commit."""
        if self._ranks.rank != 0:
            return
        self._forget_restore()
        held: frozenset[str] = frozenset()
        if self._uploader is not None:
            self._uploader.offer(committed.generation)
            held = self._uploader.held()
        prune(self._store, self._rules, key=self._key, hold=held, trusted=self._verified)

    def _forget_restore(self) -> None:
        name, self._restored = self._restored, None
        if name is not None and self._ranks.rank == 0:
            self._store.clear_restore(name)

    def _time_left_s(self) -> float | None:
        if self._options.deadline is None:
            return None
        return max(self._options.deadline - time.time(), 0.0)


def _finish(uploader: Uploader, timeout_s: float | None) -> None:
    """As far as the time allows; the checkpoint is durable in scratch in any case."""
    try:
        uploader.close(timeout_s)
    except (MilepostError, OSError) as error:
        print(f"milepost: the upload is not complete: {error}", file=sys.stderr)


def retention_of(options: Options) -> Retention:
    """The retention rules among the options."""
    ttl_s = None if options.ttl_days is None else options.ttl_days * 86400.0
    return Retention(options.rotation, options.gold_every, ttl_s, options.max_gap_s)


def archive_of(rules: Retention) -> Retention:
    """What the cold tier keeps: everything that is not too old, and marks of a person."""
    return replace(rules, gold_every=1)


def _bytes_of(megabytes: float | None) -> int | None:
    return None if megabytes is None else int(megabytes * _MB)


def _tier(place: str | Tier, options: Options) -> Tier:
    if not isinstance(place, str):
        return place
    return open_tier(
        place, retry_limit=options.retries, max_bandwidth_mb_s=options.max_bandwidth_mb_s
    )


def _report(saved: Saved) -> None:
    """Say on stderr what was restored and what was lost."""
    print(
        f"milepost: restored step {saved.step} from {saved.generation} ({saved.tier})",
        file=sys.stderr,
    )
    for damage in saved.damages:
        print(f"milepost: passed over {damage}", file=sys.stderr)
    if saved.damages:
        steps, seconds = saved.lost.steps, saved.lost.seconds
        print(
            f"milepost: lost {'n/a' if steps is None else steps} steps, "
            f"{'n/a' if seconds is None else format(seconds, '.1f')} s of work",
            file=sys.stderr,
        )


def _tell_runner(saved: Saved) -> None:
    """Leave a note of what was restored where the runner looks for it (MILEPOST_RESTORED)."""
    place = os.environ.get("MILEPOST_RESTORED")
    if place and saved.manifest is not None:
        note = {"generation": saved.generation, "step": saved.step, "tier": saved.tier}
        note |= {"created": saved.manifest.created, "lost_s": saved.lost.seconds}
        write_json(place, note | {"seconds": saved.seconds})
