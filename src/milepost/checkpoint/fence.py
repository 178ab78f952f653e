"""The fence: only the attempt that holds the shard's lease may commit."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

from milepost.errors import Refused
from milepost.lease import is_superseded


def lease_fence(environ: Mapping[str, str] | None = None) -> Callable[[], None]:
    """A function that raises Refused once a later attempt has taken the lease over.

    MILEPOST_LEASE is the lease file of the shard and MILEPOST_ATTEMPT the number of this attempt.
    Outside of a runner (no MILEPOST_LEASE) nothing is asked.
    """
    env = os.environ if environ is None else environ
    place, attempt = env.get("MILEPOST_LEASE"), env.get("MILEPOST_ATTEMPT")
    if not place or attempt is None:
        return lambda: None
    folder, number = Path(place).parent, int(attempt)

    def check() -> None:
        if is_superseded(folder, number):
            raise Refused(
                f"attempt {number} was superseded by a later one; nothing is committed",
                where=folder,
                fix="end this process; the later attempt goes on",
            )

    return check
