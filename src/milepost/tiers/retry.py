"""A tier that tries again what may pass: each retry is counted, spaced and bounded."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from milepost.errors import MilepostError, StorageError
from milepost.tiers.base import Progress, Tier

T = TypeVar("T")
_FINAL = (
    FileNotFoundError,
    FileExistsError,
    IsADirectoryError,
    NotADirectoryError,
    PermissionError,
)


class RetryTier:
    """Wraps a tier; an OSError is tried again up to `retry_limit` times.

    The wait doubles from `base_s` to `cap_s` and is drawn between half and all of it, so that
    many shards do not come back at once. A MilepostError (full, forbidden, damaged, refused) is
    final. `retry_count` is the number of retries so far.
    """

    def __init__(
        self,
        tier: Tier,
        *,
        retry_limit: int = 5,
        base_s: float = 0.5,
        cap_s: float = 30.0,
        sleep: Callable[[float], None] = time.sleep,
        draw: Callable[[], float] = random.random,
    ) -> None:
        self.tier, self.place = tier, tier.place
        self.retry_limit, self._base_s, self._cap_s = retry_limit, base_s, cap_s
        self._sleep, self._draw = sleep, draw
        self.retry_count = 0

    def put_file(self, local: Path, name: str, *, progress: Progress | None = None) -> None:
        self._try(lambda: self.tier.put_file(local, name, progress=progress), name)

    def get_file(self, name: str, local: Path) -> None:
        def get() -> None:
            try:
                self.tier.get_file(name, local)
            except FileExistsError:
                raise
            except BaseException:
                local.unlink(missing_ok=True)
                raise

        self._try(get, name)

    def list(self, prefix: str = "") -> list[str]:
        return self._try(lambda: self.tier.list(prefix), prefix)

    def stat(self, name: str) -> int | None:
        return self._try(lambda: self.tier.stat(name), name)

    def digest(self, name: str, algorithm: str = "blake3") -> str:
        return self._try(lambda: self.tier.digest(name, algorithm), name)

    def read_bytes(self, name: str, limit: int | None = None) -> bytes:
        return self._try(lambda: self.tier.read_bytes(name, limit), name)

    def put_bytes(self, name: str, data: bytes) -> None:
        self._try(lambda: self.tier.put_bytes(name, data), name)

    def replace_head(self, name: str, head: bytes) -> None:
        self._try(lambda: self.tier.replace_head(name, head), name)

    def delete(self, prefix: str) -> None:
        self._try(lambda: self.tier.delete(prefix), prefix)

    def clean(self, prefix: str = "") -> tuple[str, ...]:
        return self._try(lambda: self.tier.clean(prefix), prefix)

    def free_bytes(self) -> int | None:
        return self._try(self.tier.free_bytes, "")

    def _try(self, call: Callable[[], T], name: str) -> T:
        for retry in range(self.retry_limit + 1):
            try:
                return call()
            except (MilepostError, *_FINAL):
                raise
            except (OSError, TimeoutError) as error:
                if retry == self.retry_limit:
                    raise StorageError(
                        f"failed {retry + 1} times, the last time with: {error}",
                        where=f"{self.place}/{name}",
                        fix="look whether the place can be reached, then run the same command again",
                    ) from error
            self.retry_count += 1
            wait_s = min(self._base_s * 2**retry, self._cap_s)
            self._sleep(wait_s * (0.5 + 0.5 * self._draw()))
        raise AssertionError("the loop returns or raises")


def retries_of(tier: object) -> int:
    """Retries so far of a tier and of what it wraps."""
    count = 0
    while tier is not None:
        count += getattr(tier, "retry_count", 0)
        tier = getattr(tier, "tier", None)
    return count
