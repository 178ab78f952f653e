"""Slurm's times, durations and sizes as numbers; None for what was not recorded, never 0."""

from __future__ import annotations

import datetime as dt
import math
import re

_UNKNOWN = frozenset(
    ["", "Unknown", "None", "N/A", "n/a", "(null)", "NOT_SET", "INVALID", "Partition_Limit", "NONE"]
)
_DURATION = re.compile(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+(?:\.\d+)?)")
_DAYS_HOURS = re.compile(r"(\d+)-(\d+)")
_SIZE = re.compile(r"(\d+(?:\.\d+)?)([KMGTPE]?)(?:i?B)?")
_NUMBER = re.compile(r"-?\d+")
_POWERS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4, "P": 5, "E": 6}


def parse_time(text: str) -> float | None:
    """Seconds since the epoch of a time that a command printed with TZ=UTC, or of epoch digits."""
    text = text.strip()
    if text in _UNKNOWN or text == "0":
        return None
    if text.isdigit():
        return float(text)
    try:
        moment = dt.datetime.fromisoformat(text)
    except ValueError:
        return None
    return (moment if moment.tzinfo else moment.replace(tzinfo=dt.UTC)).timestamp()


def print_time(epoch_s: float) -> str:
    """A time as `sacct -S` reads it with TZ=UTC."""
    return dt.datetime.fromtimestamp(max(epoch_s, 0.0), dt.UTC).strftime("%Y-%m-%dT%H:%M:%S")


def parse_duration(text: str) -> float | None:
    """Seconds of `[D-]HH:MM:SS`, `MM:SS.mmm` or `D-HH`; inf for UNLIMITED."""
    text = text.strip()
    if text.upper() in ("UNLIMITED", "INFINITE"):
        return math.inf
    match = _DURATION.fullmatch(text)
    if match is not None:
        days, hours, minutes, seconds = match.groups()
        return int(days or 0) * 86400 + int(hours or 0) * 3600 + int(minutes) * 60 + float(seconds)
    match = _DAYS_HOURS.fullmatch(text)
    return None if match is None else int(match[1]) * 86400.0 + int(match[2]) * 3600.0


def parse_minutes(text: str) -> float | None:
    """Seconds of a number of minutes, or of any duration."""
    text = text.strip()
    return int(text) * 60.0 if text.isdigit() else parse_duration(text)


def parse_size(text: str, unit: str = "") -> int | None:
    """Bytes of `5000M`, `312.50G` or a number; a number without suffix counts `unit` (K, M, …)."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        return None
    factor: int = 1024 ** _POWERS[match[2] or unit]
    return round(float(match[1]) * factor)


def parse_count(text: str) -> int | None:
    """A whole number; None for anything else, such as UNLIMITED or an empty column."""
    match = _NUMBER.match(text.strip())
    return None if match is None else int(match[0])
