"""Storage tiers: one protocol, a folder or any URL behind it, and wrappers around it."""

from __future__ import annotations

import re

from milepost.tiers.base import Tier, expand

__all__ = ["Tier", "open_tier"]
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


def open_tier(place: str, *, retry_limit: int = 5, max_bandwidth_mb_s: float | None = None) -> Tier:
    """Open a tier: a path, or a URL that fsspec speaks. `$NAME` and `~` are expanded.

    What may pass is tried again `retry_limit` times; `max_bandwidth_mb_s` (10^6 bytes/s) limits sending.
    """
    expanded = expand(place)
    tier = base = _open(
        expanded.removeprefix("file://") if expanded.startswith("file:///") else expanded
    )
    if retry_limit > 0:
        from milepost.tiers.retry import RetryTier

        tier = RetryTier(tier, retry_limit=retry_limit)
    if max_bandwidth_mb_s is not None:
        from milepost.tiers.limit import LimitTier, TokenBucket

        piece_bytes = getattr(base, "piece_bytes", 0)
        tier = LimitTier(tier, TokenBucket(max_bandwidth_mb_s * 1e6, piece_bytes=piece_bytes))
    return tier


def _open(place: str) -> Tier:
    if _URL.match(place):
        from milepost.tiers.fsspec_tier import FsspecTier

        return FsspecTier(place)
    from milepost.tiers.local import LocalTier

    return LocalTier(place)
