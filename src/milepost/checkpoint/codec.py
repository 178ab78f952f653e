"""Compression of blocks, and the probe that decides whether it is worth it."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Any

from milepost.errors import ConfigError, DataError

RAW, ZSTD, LZ4 = 0, 1, 2
CODES = {"none": RAW, "zstd": ZSTD, "lz4": LZ4}
CHOICES = (*CODES, "auto")
_ZSTD_LEVEL = 1
_MIN_RATIO = 1.1
_PROBE_BLOCKS = 4
_local = threading.local()


def check_choice(compression: str) -> str:
    """Return `compression` if it is one of `CHOICES`, else a ConfigError."""
    if compression not in CHOICES:
        raise ConfigError(
            f"unknown compression {compression!r}", fix=f"use one of {', '.join(CHOICES)}"
        )
    return compression


def compress(code: int, data: memoryview) -> tuple[int, bytes | memoryview]:
    """Compress one block; (RAW, the same data) where that does not make it smaller."""
    if code == RAW:
        return RAW, data
    packed = _compress(code, data)
    return (code, packed) if len(packed) < len(data) else (RAW, data)


def decompress(code: int, data: bytes | memoryview, size: int) -> bytes | memoryview:
    """Undo `compress`; `size` is the length that the index promises, else a DataError."""
    if code == RAW:
        plain: bytes | memoryview = data
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
    compression: str, blocks: Sequence[memoryview], tier_bytes_per_s: float | None, workers: int
) -> int:
    """The code to use for a data file.

    `auto` compresses a few blocks spread over the data: zstd is taken only if it shrinks them by
    a factor of 1.1 or more and is faster than the slowest tier; with an unknown rate it is not.
    """
    if compression != "auto":
        return CODES[compression]
    if tier_bytes_per_s is None or not blocks:
        return RAW
    step = max(len(blocks) // _PROBE_BLOCKS, 1)
    sample = blocks[step // 2 :: step][:_PROBE_BLOCKS]
    _compress(ZSTD, sample[0][:4096])
    start = time.perf_counter()
    packed = sum(len(_compress(ZSTD, block)) for block in sample)
    rate = sum(map(len, sample)) * workers / max(time.perf_counter() - start, 1e-9)
    ratio = sum(map(len, sample)) / max(packed, 1)
    return ZSTD if ratio >= _MIN_RATIO and rate > tier_bytes_per_s else RAW


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
