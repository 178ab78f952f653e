"""What a Checkpointer and its uploader tell about themselves, in the text format of Prometheus."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path

from milepost.checkpoint.committer import Committed
from milepost.durable import atomic_file
from milepost.errors import MilepostError

VARIABLE = "MILEPOST_METRICS"
"""Where the runner wants the file of this process; no file when it is not set."""

GAUGE, COUNTER = "gauge", "counter"
_LABELS = {"run": "MILEPOST_RUN", "shard": "MILEPOST_SHARD"}
"""Label -> where its value is; the node exporter reads the files of many shards as one."""


@dataclass(frozen=True, slots=True)
class UploadMetrics:
    """What waits and what was sent. Units are the ends of the names, times of day are seconds
    since the epoch; None has no line in the file."""

    queue_count: int = 0
    queue_bytes: int = 0
    queue_since: float | None = None
    queue_age_s: float = 0.0
    sent_count: int = 0
    sent_bytes: int = 0
    overtaken_count: int = 0
    failure_count: int = 0
    retry_count: int = 0


@dataclass(frozen=True, slots=True)
class SaveMetrics:
    """The saves of this process so far, as `UploadMetrics`. Without a suffix: of the last save."""

    commit_count: int = 0
    failure_count: int = 0
    committed: float | None = None
    step: int | None = None
    blocked_s: float | None = None
    durable_s: float | None = None
    blocked_sum_s: float = 0.0
    logical_sum_bytes: int = 0
    stored_sum_bytes: int = 0
    skipped_count: int = 0
    waited_count: int = 0
    waited_sum_s: float = 0.0
    drain_count: int = 0
    interval_s: float | None = None
    is_running: bool = True

    def with_commit(self, one: Committed, now: float) -> SaveMetrics:
        """With one more generation, committed at `now`."""
        return replace(
            self,
            commit_count=self.commit_count + 1,
            committed=now,
            step=one.step,
            blocked_s=one.blocked_s,
            durable_s=one.durable_s,
            blocked_sum_s=self.blocked_sum_s + one.blocked_s,
            logical_sum_bytes=self.logical_sum_bytes + one.bytes_logical,
            stored_sum_bytes=self.stored_sum_bytes + one.bytes_stored,
        )


_NAMES: dict[type, dict[str, tuple[str, str, str]]] = {
    SaveMetrics: {
        "commit_count": ("commits_total", COUNTER, "Generations committed."),
        "failure_count": (
            "failures_total",
            COUNTER,
            "Saves, or rotations after them, that failed.",
        ),
        "committed": (
            "last_commit_timestamp_seconds",
            GAUGE,
            "When the newest generation was committed, in seconds since the epoch.",
        ),
        "step": ("last_commit_step", GAUGE, "Step of the newest generation."),
        "blocked_s": ("last_blocked_seconds", GAUGE, "How long the work stood still for it."),
        "durable_s": ("last_durable_seconds", GAUGE, "How long it took to be durable."),
        "blocked_sum_s": (
            "blocked_seconds_total",
            COUNTER,
            "How long the work stood still for the copies of its state.",
        ),
        "logical_sum_bytes": ("logical_bytes_total", COUNTER, "Bytes of the states saved."),
        "stored_sum_bytes": ("stored_bytes_total", COUNTER, "Bytes written for them."),
        "skipped_count": (
            "saves_skipped_total",
            COUNTER,
            "Saves that were due while one was under way, and were put off.",
        ),
        "waited_count": (
            "saves_waited_total",
            COUNTER,
            "Saves that waited for the one before.",
        ),
        "waited_sum_s": ("waited_seconds_total", COUNTER, "How long they waited together."),
        "drain_count": ("drains_total", COUNTER, "How often a nearly full disk was drained."),
        "interval_s": ("interval_seconds", GAUGE, "Work between two saves, as planned now."),
        "is_running": ("running", GAUGE, "1 until the process has left its Checkpointer."),
    },
    UploadMetrics: {
        "queue_count": (
            "queue_generations",
            GAUGE,
            "Generations that wait for a tier or are being sent.",
        ),
        "queue_bytes": ("queue_bytes", GAUGE, "Their size."),
        "queue_since": (
            "queue_oldest_timestamp_seconds",
            GAUGE,
            "When the oldest of them was committed, in seconds since the epoch.",
        ),
        "queue_age_s": (
            "queue_age_seconds",
            GAUGE,
            "How long the oldest of them had waited when this file was written.",
        ),
        "sent_count": ("sent_generations_total", COUNTER, "Generations proved at the far end."),
        "sent_bytes": ("sent_bytes_total", COUNTER, "Bytes sent, those of broken tries too."),
        "overtaken_count": (
            "overtaken_generations_total",
            COUNTER,
            "Generations not sent because a newer one was there.",
        ),
        "failure_count": ("failures_total", COUNTER, "Uploads that failed after their retries."),
        "retry_count": ("retries_total", COUNTER, "Calls to a tier that were tried again."),
    },
}
_PREFIX = {SaveMetrics: "milepost_checkpoint", UploadMetrics: "milepost_upload"}


def metric_names() -> frozenset[str]:
    """Every metric that a file may hold."""
    return frozenset(
        f"{_PREFIX[kind]}_{name}" for kind, names in _NAMES.items() for name, _, _ in names.values()
    )


def as_text(values: SaveMetrics | UploadMetrics, labels: Mapping[str, str]) -> str:
    """The text that Prometheus and the textfile collector of its node exporter read."""
    return "".join(_lines(values, labels))


def _lines(values: SaveMetrics | UploadMetrics, labels: Mapping[str, str]) -> Iterator[str]:
    kind = type(values)
    words = ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items())
    for field in fields(values):
        value = getattr(values, field.name)
        if value is None:
            continue
        name, sort, text = _NAMES[kind][field.name]
        name = f"{_PREFIX[kind]}_{name}"
        yield f"# HELP {name} {text}\n# TYPE {name} {sort}\n"
        place = f"{name}{{{words}}}" if words else name
        yield f"{place} {int(value) if isinstance(value, bool) else value}\n"


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


class MetricsFile:
    """The file that MILEPOST_METRICS names, written anew at each change; nothing without a name.

    Threads may call it. A place that is full is told on stderr, once: no checkpoint depends on it.
    """

    def __init__(self, environ: Mapping[str, str] | None = None) -> None:
        env = os.environ if environ is None else environ
        place = env.get(VARIABLE)
        self._place = Path(place) if place else None
        self._labels = {name: env[key] for name, key in _LABELS.items() if env.get(key)}
        self._lock = threading.Lock()
        self._saves: SaveMetrics | None = None
        self._uploads: UploadMetrics | None = None
        self._is_failing = False

    def tell_saves(self, saves: SaveMetrics) -> None:
        with self._lock:
            self._saves = saves
            self._write()

    def tell_uploads(self, uploads: UploadMetrics) -> None:
        with self._lock:
            self._uploads = uploads
            self._write()

    def _write(self) -> None:
        if self._place is None:
            return
        try:
            with atomic_file(self._place) as stream:
                for values in (self._saves, self._uploads):
                    if values is not None:
                        stream.write(as_text(values, self._labels))
        except (MilepostError, OSError) as error:
            if not self._is_failing:
                print(f"milepost: the metrics are not written: {error}", file=sys.stderr)
            self._is_failing = True
        else:
            self._is_failing = False
