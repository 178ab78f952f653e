"""Compression of blocks, and the probe that decides whether it is worth it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from milepost.errors import ConfigError, DataError

RAW, ZSTD, LZ4 = 0, 1, 2
SHUFFLE = 1 << 30
"""With ZSTD, a wish: bytes of equal rank of all numbers together first. A block that was stored so
says `ZSTD | item << 8`, with the bytes of a number."""
XOR = 1 << 29
"""With ZSTD, a wish: only what differs from the same block of the base."""
CODES = {"none": RAW, "zstd": ZSTD, "lz4": LZ4}
CHOICES = (*CODES, "auto")
_ZSTD_LEVEL = 1
_METHOD = 0xFF
_MIN_RATIO = 1.1
_SHUFFLE_GAIN = 1.03
_XOR_GAIN = 1.1
"""Against the best without a base: a restore has to read the base as well."""
_PROBE_BLOCKS = 4
_local = threading.local()


def check_choice(compression: str) -> str:
    """Return `compression` if it is one of `CHOICES`, else a ConfigError."""
    if compression not in CHOICES:
        raise ConfigError(
            f"unknown compression {compression!r}", fix=f"use one of {', '.join(CHOICES)}"
        )
    return compression


class Sample(NamedTuple):
    """A block for the probe: its data, the size of its numbers, and how to get the base's block."""

    data: memoryview
    item: int = 0
    base: Callable[[], memoryview | None] = lambda: None


def compress(
    code: int, data: memoryview, item: int = 0, base: memoryview | None = None
) -> tuple[int, bytes | memoryview]:
    """Compress one block; (RAW, the same data) where that does not make it smaller.

    `item` is the size of its floating point numbers, 0 when it holds something else. `base` is
    what is XORed with it when `code` wishes so; the number returned has the XOR bit then.
    """
    if code == RAW:
        return RAW, data
    used = method = code & _METHOD
    work = data
    if code & XOR and base is not None:
        work, used = xor(data, base), used | XOR
    if code & SHUFFLE and item > 1 and len(data) % item == 0:
        work, used = _shuffle(work, item), used | item << 8
    packed = _compress(method, work)
    return (used, packed) if len(packed) < len(data) else (RAW, data)


def xor(data: bytes | memoryview, base: bytes | memoryview) -> memoryview:
    """Of two blocks of the same size, what differs; with one of them again, the other."""
    import numpy as np

    return np.bitwise_xor(np.frombuffer(data, np.uint8), np.frombuffer(base, np.uint8)).data


def decompress(code: int, data: bytes | memoryview, size: int) -> bytes | memoryview:
    """Undo `compress`; `size` is the length that the index promises, else a DataError."""
    method, item = code & _METHOD, code >> 8
    if item:
        if method != ZSTD or item > 16 or size % item:
            raise DataError(f"unknown compression number {code}")
        return _unshuffle(decompress(method, data, size), item)
    plain: bytes | memoryview
    if code == RAW:
        plain = data
    elif code == ZSTD:
        plain = _unzstd(data, size)
    elif code == LZ4:
        plain = _unlz4(data, size)
    else:
        raise DataError(f"unknown compression number {code}")
    if len(plain) != size:
        raise DataError(f"a block unpacks to {len(plain)} bytes instead of {size}")
    return plain


def choose(
    compression: str,
    blocks: Sequence[Sample],
    tier_bytes_per_s: float | None,
    workers: int,
    *,
    is_based: bool = False,
) -> int:
    """The code to use for a data file.

    A few blocks spread over the data are compressed: plain, shuffled, and, when `is_based`, XORed
    with the base's. `auto` takes what shrinks them most, if that is a factor of 1.1 or more and
    faster than the slowest tier, reading the base included; with an unknown rate nothing. `zstd`
    asks for no rate, but shuffling has to gain 3 % and the base 10 %.
    """
    if compression not in ("auto", "zstd") or not blocks:
        return CODES.get(compression, RAW)
    if compression == "auto" and tier_bytes_per_s is None:
        return RAW
    least = (tier_bytes_per_s or 0.0) if compression == "auto" else 0.0
    step = max(len(blocks) // _PROBE_BLOCKS, 1)
    sample = [blocks[n] for n in range(step // 2, len(blocks), step)][:_PROBE_BLOCKS]
    compress(ZSTD, sample[0].data[:4096])
    best = _Try(RAW, _MIN_RATIO if least else 0.0)
    for code, gain in ((ZSTD, 1.0), (ZSTD | SHUFFLE, _SHUFFLE_GAIN), (_XORED, _XOR_GAIN)):
        is_possible = is_based if code == _XORED else code == ZSTD or any(s.item for s in sample)
        if is_possible:
            tried = _try(code, sample, workers, least)
            if tried.rate > least and tried.ratio >= best.ratio * (1.0 if not best.code else gain):
                best = tried
    return best.code


_XORED = ZSTD | SHUFFLE | XOR


class _Try(NamedTuple):
    code: int
    ratio: float
    rate: float = 0.0


def _try(code: int, sample: Sequence[Sample], workers: int, least: float) -> _Try:
    """By how much it shrinks the sample, and at how many bytes/s beside the rest of the work.

    One worker's time goes to digests and writing (and the solver goes on), so it is not counted.
    What is far too slow after one block is not tried further.
    """
    size = packed = 0
    rate = 0.0
    start = time.perf_counter()
    for one in sample:
        base = one.base() if code & XOR else None
        packed += len(compress(code, one.data, one.item, base)[1])
        size += len(one.data)
        rate = size * max(1, workers - 1) / max(time.perf_counter() - start, 1e-9)
        if rate < least / 2:
            break
    return _Try(code, size / max(packed, 1), rate)


def _shuffle(data: memoryview, item: int) -> memoryview:
    """The first bytes of all numbers, then their second bytes, and so on."""
    import numpy as np

    numbers = np.frombuffer(data, np.uint8).reshape(-1, item)
    planes = np.empty((item, len(numbers)), np.uint8)
    for n in range(item):  # several times as fast as a copy of the transposed
        planes[n] = numbers[:, n]
    return planes.reshape(-1).data


def _unshuffle(data: bytes | memoryview, item: int) -> memoryview:
    import numpy as np

    planes = np.frombuffer(data, np.uint8).reshape(item, -1)
    numbers = np.empty((planes.shape[1], item), np.uint8)
    for n in range(item):
        numbers[:, n] = planes[n]
    return numbers.reshape(-1).data


def _compress(code: int, data: memoryview) -> bytes:
    if code == ZSTD:
        return bytes(_context("compressor").compress(data))
    import lz4.block

    return bytes(lz4.block.compress(data, store_size=False))


def _unzstd(data: bytes | memoryview, size: int) -> bytes:
    import zstandard

    try:
        return bytes(_context("decompressor").decompress(data, max_output_size=size))
    except zstandard.ZstdError as error:
        raise DataError(f"a zstd block cannot be unpacked ({error})") from error


def _unlz4(data: bytes | memoryview, size: int) -> bytes:
    import lz4.block

    try:
        return bytes(lz4.block.decompress(data, uncompressed_size=size))
    except lz4.block.LZ4BlockError as error:
        raise DataError(f"an lz4 block cannot be unpacked ({error})") from error


def _context(kind: str) -> Any:
    """This thread's zstd context: making one costs more than compressing a block with it."""
    if not hasattr(_local, kind):
        import zstandard

        made = (
            zstandard.ZstdCompressor(level=_ZSTD_LEVEL)
            if kind == "compressor"
            else zstandard.ZstdDecompressor()
        )
        setattr(_local, kind, made)
    return getattr(_local, kind)
