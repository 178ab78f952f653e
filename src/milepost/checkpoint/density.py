"""How densely changes lie in the blocks of a delta, and the block size that follows from it.

A block of 1 MiB is written again when one byte of it changed. Some blocks are digested a second
time in pieces of 64 KiB; how many pieces of a changed block changed tells what small blocks would
save.
"""

from __future__ import annotations

from collections.abc import Mapping

from milepost.checkpoint.blocks import block_digest
from milepost.checkpoint.layout import BLOCK_BYTES, Layout

SMALL_BLOCK_BYTES = 64 << 10
_SAMPLES, _SAMPLED = 64, 8
"""So many blocks are looked at, but at most every 8th: to digest them again costs time."""
_LEAST_GAIN = 0.05
"""Of the state, for each save: changing the size costs one full save."""
_LEAST_GAIN_BYTES = 8 << 20
_DENSE_SHARE = 0.5
_LARGEST_IMAGE_BYTES = 64 << 30
"""Beyond, the table of small blocks would take too much memory and time."""

Fine = Mapping[int, tuple[bytes, ...]]
"""Number of a block -> digests of its pieces."""


def is_sampled(n: int, layout: Layout) -> bool:
    """Is this one of the blocks that are looked at in pieces?"""
    count = len(layout.blocks)
    step = max(count // _SAMPLES, min(count // _SAMPLED, _SAMPLED), 1)
    is_wanted = layout.block_bytes == BLOCK_BYTES and layout.image_bytes <= _LARGEST_IMAGE_BYTES
    return is_wanted and n % step == 0


def digest_pieces(plain: memoryview) -> tuple[bytes, ...]:
    """Digests of the pieces of a block."""
    starts = range(0, len(plain), SMALL_BLOCK_BYTES)
    return tuple(block_digest(plain[start : start + SMALL_BLOCK_BYTES]) for start in starts)


def density(before: Fine, now: Fine) -> float | None:
    """Of the pieces of changed blocks, the part that changed; None when no block changed."""
    changed = total = 0
    for n, pieces in now.items():
        old = before.get(n)
        if old is not None and len(old) == len(pieces) and old != pieces:
            total += len(pieces)
            changed += sum(a != b for a, b in zip(old, pieces, strict=True))
    return changed / total if total else None


def next_block_bytes(
    block_bytes: int, image_bytes: int, changed_share: float, density: float | None
) -> int:
    """The block size of the next save.

    `changed_share` is the part of the state that this save had to write. Small blocks come when
    they spare 5 % of the state and 8 MiB, and go when half of the state changes anyway.
    """
    if block_bytes == SMALL_BLOCK_BYTES:
        return BLOCK_BYTES if changed_share >= _DENSE_SHARE else block_bytes
    gain = 0.0 if density is None else changed_share * (1 - density)
    is_worth_it = gain >= _LEAST_GAIN and gain * image_bytes >= _LEAST_GAIN_BYTES
    return SMALL_BLOCK_BYTES if is_worth_it else block_bytes
