"""Compression of blocks, and the probe that decides whether it is worth it."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Any

from milepost.errors import ConfigError, DataError

RAW, ZSTD, LZ4 = 0, 1, 2
SHUFFLE = 1 << 16
"""With ZSTD, a wish: bytes of equal rank of all numbers together first. A block that was stored so
says `ZSTD | item << 8`, with the bytes of a number."""
CODES = {"none": RAW, "zstd": ZSTD, "lz4": LZ4}
CHOICES = (*CODES, "auto")
_ZSTD_LEVEL = 1
_METHOD = 0xFF
_MIN_RATIO = 1.1
_SHUFFLE_GAIN = 1.03
_PROBE_BLOCKS = 4
_local = threading.local()


def check_choice(compression: str) -> str:
    """Return `compression` if it is one of `CHOICES`, else a ConfigError."""
    if compression not in CHOICES:
        raise ConfigError(
            f"unknown compression {compression!r}", fix=f"use one of {', '.join(CHOICES)}"
        )
    return compression


def compress(code: int, data: memoryview, item: int = 0) -> tuple[int, bytes | memoryview]:
    """Compress one block; (RAW, the same data) where that does not make it smaller.

    `item` is the size of its floating point numbers, 0 when it holds something else.
    """
    if code == RAW:
        return RAW, data
    method = code & _METHOD
    if code & SHUFFLE and item > 1 and len(data) % item == 0:
        packed, used = _compress(method, _shuffle(data, item)), method | item << 8
    else:
        packed, used = _compress(method, data), method
    return (used, packed) if len(packed) < len(data) else (RAW, data)


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
    blocks: Sequence[memoryview],
    tier_bytes_per_s: float | None,
    workers: int,
    items: Sequence[int] = (),
) -> int:
    """The code to use for a data file; `items` are the sizes of the numbers in each block.

    A few blocks spread over the data are compressed, plain and shuffled. `auto` takes what
    shrinks them more, if that is a factor of 1.1 or more and faster than the slowest tier; with an
    unknown rate nothing. `zstd` shuffles where that makes them smaller by 3 % or more.
    """
    if compression not in ("auto", "zstd") or not blocks:
        return CODES.get(compression, RAW)
    if compression == "auto" and tier_bytes_per_s is None:
        return RAW
    step = max(len(blocks) // _PROBE_BLOCKS, 1)
    numbers = range(step // 2, len(blocks), step)[:_PROBE_BLOCKS]
    sample = [(blocks[n], items[n] if items else 0) for n in numbers]
    compress(ZSTD, sample[0][0][:4096])
    plain = _try(ZSTD, sample, workers)
    shuffled = _try(ZSTD | SHUFFLE, sample, workers) if any(i for _, i in sample) else (0.0, 0.0)
    if compression == "zstd":
        return ZSTD | SHUFFLE if shuffled[0] >= plain[0] * _SHUFFLE_GAIN else ZSTD
    assert tier_bytes_per_s is not None
    good = [
        (ratio, code)
        for code, (ratio, rate) in ((ZSTD, plain), (ZSTD | SHUFFLE, shuffled))
        if ratio >= _MIN_RATIO and rate > tier_bytes_per_s
    ]
    return max(good, default=(0.0, RAW))[1]


def _try(code: int, sample: Sequence[tuple[memoryview, int]], workers: int) -> tuple[float, float]:
    """By how much it shrinks the sample, and at how many bytes/s beside the rest of the work.

    One worker's time goes to digests and writing (and the solver goes on), so it is not counted.
    """
    start = time.perf_counter()
    packed = sum(len(compress(code, block, item)[1]) for block, item in sample)
    size = sum(len(block) for block, _ in sample)
    rate = size * max(1, workers - 1) / max(time.perf_counter() - start, 1e-9)
    return size / max(packed, 1), rate


def _shuffle(data: memoryview, item: int) -> memoryview:
    """The first bytes of all numbers, then their second bytes, and so on."""
    import numpy as np

    numbers = np.frombuffer(data, np.uint8).reshape(-1, item)
    return np.ascontiguousarray(numbers.T).reshape(-1).data


def _unshuffle(data: bytes | memoryview, item: int) -> memoryview:
    import numpy as np

    planes = np.frombuffer(data, np.uint8).reshape(item, -1)
    return np.ascontiguousarray(planes.T).reshape(-1).data


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
