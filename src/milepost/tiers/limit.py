"""A tier that sends no faster than a given rate."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

from milepost.tiers.base import Progress, Tier

_IDLE_S = 0.25


class TokenBucket:
    """Lets `bytes_per_s` through: never more from the start, and as much as the other end takes.

    Time in which nothing was taken is worth a quarter of a second at most, so that over five
    seconds and more the rate is kept within 5 %. Where the other end takes `piece_bytes` at once,
    the time for one of them counts too. Threads share it: what one takes, the others wait for.
    """

    def __init__(
        self,
        bytes_per_s: float,
        *,
        piece_bytes: int = 0,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        if not bytes_per_s > 0:
            raise ValueError(f"a rate of {bytes_per_s} bytes/s lets nothing through")
        self._rate, self._clock, self._sleep = bytes_per_s, clock, sleep
        self._most = max(_IDLE_S * bytes_per_s, piece_bytes)
        self._tokens, self._last = 0.0, clock()
        self._lock = threading.Lock()

    def take(self, size_bytes: int) -> None:
        """Wait until `size_bytes` may have been sent."""
        with self._lock:
            now = self._clock()
            earned = self._tokens + (now - self._last) * self._rate
            self._tokens = min(earned, self._most)
            self._last = now
            self._tokens -= size_bytes
            wait_s = max(-self._tokens / self._rate, 0.0)
        if wait_s > 0:
            self._sleep(wait_s)


class LimitTier:
    """Wraps a tier; what is put into it passes a token bucket. Reading is not limited."""

    def __init__(self, tier: Tier, bucket: TokenBucket) -> None:
        self.tier, self.place, self._bucket = tier, tier.place, bucket

    def put_file(self, local: Path, name: str, *, progress: Progress | None = None) -> None:
        def take(size_bytes: int) -> None:
            self._bucket.take(size_bytes)
            if progress is not None:
                progress(size_bytes)

        self.tier.put_file(local, name, progress=take)

    def get_file(self, name: str, local: Path) -> None:
        self.tier.get_file(name, local)

    def list(self, prefix: str = "") -> list[str]:
        return self.tier.list(prefix)

    def stat(self, name: str) -> int | None:
        return self.tier.stat(name)

    def digest(self, name: str, algorithm: str = "blake3") -> str:
        return self.tier.digest(name, algorithm)

    def read_bytes(self, name: str, limit: int | None = None) -> bytes:
        return self.tier.read_bytes(name, limit)

    def put_bytes(self, name: str, data: bytes) -> None:
        self._bucket.take(len(data))
        self.tier.put_bytes(name, data)

    def replace_head(self, name: str, head: bytes) -> None:
        self._bucket.take(len(head))
        self.tier.replace_head(name, head)

    def delete(self, prefix: str) -> None:
        self.tier.delete(prefix)

    def clean(self, prefix: str = "") -> tuple[str, ...]:
        return self.tier.clean(prefix)

    def free_bytes(self) -> int | None:
        return self.tier.free_bytes()
