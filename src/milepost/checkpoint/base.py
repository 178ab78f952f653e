"""The state before, as a base: a block is XORed with the block that stood in its place.

The base's blocks are read back from the disk when they are needed, in the threads that compress;
nothing of the state is kept in memory for it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from milepost.checkpoint.crypt import UserKey, WrongKey
from milepost.checkpoint.datafile import DataFile, DataFiles
from milepost.checkpoint.layout import Block
from milepost.checkpoint.stored import DEPTH_SHIFT
from milepost.errors import DataError

_UNUSABLE = (DataError, WrongKey, OSError)
"""Damaged, gone, under another key (or the recipient alone is here), or on a bad sector: a block is
stored without it then; verification is where damage is reported."""
MAX_DEPTH = 3
"""A restore reads a block and all that it was XORed with: at most so many more."""


@dataclass(frozen=True, slots=True)
class BaseBlock:
    """Where the block of the base is stored, and what is needed to read it besides.

    `depth` is that of a block which is XORed with it.
    """

    row: int
    generation: str
    number: int
    needs: tuple[str, ...]
    depth: int


class Base:
    """The blocks of a generation by their place. `path_of` gives this rank's file in another."""

    def __init__(
        self, generation: str, path_of: Callable[[str], Path], key: UserKey | None
    ) -> None:
        self._files = DataFiles(path_of, key)
        self._file = self._open(generation)
        self._rows: dict[tuple[int, int], int] = {}
        if self._file is not None:
            index = self._file.index
            places = zip(index["image_offset"].tolist(), index["size"].tolist(), strict=True)
            self._rows = {place: n for n, place in enumerate(places)}

    def _open(self, generation: str) -> DataFile | None:
        """None when the base cannot be used: then there is nothing to XOR with."""
        try:
            file = self._files.of(generation)
            return file if file.sources[0] == generation else None
        except _UNUSABLE:
            return None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._files.__exit__(*exc)

    def at(self, block: Block) -> BaseBlock | None:
        """The block in the same place, when there is one of the same size and the chain allows."""
        n = self._rows.get((block.offset, block.size))
        if n is None or self._file is None:
            return None
        row, sources = self._file.index[n], self._file.sources
        depth = (int(row["codec"]) >> DEPTH_SHIFT) + 1
        if depth > MAX_DEPTH:
            return None
        generation = sources[int(row["source"])]
        needs = sources[1:] if depth > 1 else ()
        return BaseBlock(n, generation, int(row["number"]), (generation, *needs), depth)

    def read(self, block: BaseBlock) -> memoryview | None:
        """Its plain bytes, checked; None when they cannot be had: nothing may be built on them."""
        assert self._file is not None
        try:
            row = self._file.index[block.row]
            return memoryview(self._files.plain(self._file, row, block.row))
        except _UNUSABLE:
            return None
