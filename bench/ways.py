"""Ways to save a state: milepost, the floor of the machine, and what people use.

Each makes a first checkpoint that is not timed, as a long run does; the state changes, and the
second one is timed. Then it is restored with the page cache empty.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bench import apart
from bench.saved import Saved
from bench.states import Kind
from bench.ways_here import memory_copy, milepost, numpy_save, raw_direct
from bench.ways_tools import copy_file, rclone, restic

OURS, COPY, RAW = "milepost", "one memory copy", "raw direct write"
DCP, RESTIC = "torch DCP save", "restic"


@dataclass(frozen=True, slots=True)
class Way:
    """`run(kind, size, folder)` measures; `is_here` tells whether what it needs is installed."""

    name: str
    does: str
    run: Callable[[Kind, int, Path], Saved]
    is_here: Callable[[], bool] = lambda: True


def _library(name: str, does: str, store: str, library: str) -> Way:
    return Way(name, does, partial(apart.run, store), partial(apart.has, library))


def _program(name: str, does: str, run: Callable[[Kind, int, Path], Saved]) -> Way:
    return Way(name, does, run, lambda: shutil.which(name) is not None)


WAYS = (
    Way(OURS, "digest of every block, delta, manifest, fsync, rename", milepost),
    Way(COPY, "numpy.copyto into backed memory", memory_copy),
    Way(RAW, "O_DIRECT and fsync; no digest, no name, no restore", raw_direct),
    Way("numpy.save", "with fsync; nothing is checked", numpy_save),
    _library(DCP, "with fsync; nothing is checked", "torch-save", "torch"),
    _library("torch DCP async", "with fsync; nothing is checked", "torch-async", "torch"),
    _library("tensorstore", "Zarr 3, with fsync; nothing is checked", "tensorstore", "tensorstore"),
    _library("orbax", "in the background; checksums and zstd by its default", "orbax", "orbax"),
    _program("cp", "of a file already written, with fsync; nothing is checked", copy_file),
    _program("rclone", "of a file already written, with fsync; digests compared", rclone),
    _program(RESTIC, "backup of a file already written; digests and encryption", restic),
)
