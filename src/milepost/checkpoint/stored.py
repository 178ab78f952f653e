"""Blocks that are stored already, which the next delta may refer to."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

DEPTH_SHIFT = 16
"""The codec number of a block tells above this bit through how many bases it has to be undone."""


@dataclass(frozen=True, slots=True)
class Stored:
    """Where a block of known content is stored: `generation` holds the file.

    `xor` names a block (generation and its number there) that it was XORed with; `needs` are the
    generations without which it cannot be read, besides its own.
    """

    generation: str
    size: int
    codec: int
    stored_size: int
    file_offset: int
    number: int
    stored_digest: bytes
    xor: tuple[str, int] | None = None
    needs: tuple[str, ...] = ()


def known_blocks(index: np.ndarray[Any, Any], sources: Sequence[str]) -> dict[bytes, Stored]:
    """Block digest -> where it is stored, from the index of a data file and its sources.

    `sources` are the file's own generation and its bases. A block that was XORed is taken to need
    all of these bases: what its base was made from, the index does not say.
    """
    bases = tuple(sources[1:])
    return {
        digest.tobytes(): Stored(
            sources[source],
            size,
            code,
            stored_size,
            offset,
            number,
            stored_digest.tobytes(),
            (sources[xor_source], xor_number) if xor_source else None,
            bases if xor_source else (),
        )
        for (
            digest,
            source,
            size,
            code,
            stored_size,
            offset,
            number,
            stored_digest,
            xor_source,
            xor_number,
        ) in zip(
            index["digest"],
            index["source"].tolist(),
            index["size"].tolist(),
            index["codec"].tolist(),
            index["stored_size"].tolist(),
            index["file_offset"].tolist(),
            index["number"].tolist(),
            index["stored_digest"],
            index["xor_source"].tolist(),
            index["xor_number"].tolist(),
            strict=True,
        )
    }


def needed(blocks: Iterable[Stored]) -> set[str]:
    """The generations that a file which refers to all these blocks would depend on."""
    pairs = {(one.generation, one.needs) for one in blocks}
    return {name for generation, needs in pairs for name in (generation, *needs)}
