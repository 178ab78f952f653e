"""The fence: only the holder of the shard's lease may commit."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

from milepost.durable import read_json
from milepost.errors import DataError, Refused


def lease_fence(environ: Mapping[str, str] | None = None) -> Callable[[], None]:
    """A function that raises Refused when this process does not hold its lease any more.

    The lease is the file MILEPOST_LEASE, its token must be MILEPOST_TOKEN. Without MILEPOST_LEASE
    (outside of a runner) nothing is asked.
    """
    env = os.environ if environ is None else environ
    place, token = env.get("MILEPOST_LEASE"), env.get("MILEPOST_TOKEN")
    if not place:
        return lambda: None
    path = Path(place)

    def check() -> None:
        holder = _token_of(path)
        if holder is None or holder != token:
            raise Refused(
                "this attempt was superseded: another one holds the lease, nothing is committed",
                where=path,
                fix="end this process; the attempt that holds the lease goes on",
            )

    return check


def _token_of(path: Path) -> str | None:
    try:
        lease = read_json(path)
    except FileNotFoundError:
        return None
    if not isinstance(lease, dict):
        raise DataError("is not a lease", where=path)
    token = lease.get("token")
    return None if token is None else str(token)
