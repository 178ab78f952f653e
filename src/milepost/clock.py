"""The clock: UTC, ISO 8601 with Z, and elapsed seconds that no clock change can bend."""

from __future__ import annotations

import datetime as dt
import time

monotonic = time.monotonic


def utc_now() -> str:
    """Now, to the millisecond, such as 2026-01-31T09:30:00.125Z."""
    return iso(time.time())


def iso(epoch_s: float) -> str:
    """Seconds since the epoch as ISO 8601 with Z."""
    moment = dt.datetime.fromtimestamp(epoch_s, dt.UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def epoch(text: str) -> float:
    """ISO 8601 as seconds since the epoch."""
    return dt.datetime.fromisoformat(text).timestamp()
