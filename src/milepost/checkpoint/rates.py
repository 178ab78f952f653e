"""How fast the disk really is, and when it is worth asking again whether to compress."""

from __future__ import annotations

from collections import deque

from milepost.checkpoint import codec

_RELIABLE_BYTES = 256 << 20
_RELIABLE_S = 1.0
_LEAST_BYTES = 8 << 20
_REMEMBERED = 8
_PROBE_EVERY = 8


class TierRate:
    """The rate of a disk from the last writes to it.

    It is known when they were 256 MiB or took a second: a short write that was held up says
    nothing, and would make a slow codec look fast. The fastest of them counts, since what slows
    a write down for a moment slows a codec down too.
    """

    def __init__(self) -> None:
        self._seen: deque[tuple[int, float]] = deque(maxlen=_REMEMBERED)

    def add(self, size_bytes: int, seconds: float | None) -> None:
        """Note that `size_bytes` were written in `seconds` in which the disk was waited for."""
        if size_bytes >= _LEAST_BYTES and seconds:
            self._seen.append((size_bytes, seconds))

    @property
    def bytes_per_s(self) -> float | None:
        """None when not enough was seen."""
        total, seconds = (
            (sum(column) for column in zip(*self._seen, strict=True)) if self._seen else (0, 0.0)
        )
        if total < _RELIABLE_BYTES and seconds < _RELIABLE_S:
            return None
        return max(size / taken for size, taken in self._seen)


class Probing:
    """`auto` that found nothing worth compressing looks again only at every 8th save.

    It also looks when a base to XOR with is there for the first time.
    """

    def __init__(self) -> None:
        self._saves_left = 0
        self._had_base = False

    def compression(self, wanted: str, rate: float | None, has_base: bool) -> str:
        """What to ask the encoder for."""
        if wanted != "auto" or rate is None:
            return wanted
        is_new = has_base and not self._had_base
        self._had_base = has_base
        if self._saves_left > 0 and not is_new:
            self._saves_left -= 1
            return "none"
        return wanted

    def note(self, asked: str, code: int, rate: float | None) -> None:
        """Hear what the encoder chose."""
        if asked == "auto" and rate is not None:
            self._saves_left = _PROBE_EVERY - 1 if code == codec.RAW else 0
