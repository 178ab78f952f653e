"""The states that are saved, and how each changes until the next checkpoint."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

State = np.ndarray[Any, Any]
CHANGED_FRACTION = 0.02


@dataclass(frozen=True, slots=True)
class Kind:
    """`make(size_bytes)` gives a state, `change` makes it the next one in place."""

    name: str
    short: str
    title: str
    make: Callable[[int], State]
    change: Callable[[State], None]


def random_floats(size_bytes: int) -> State:
    return np.random.default_rng(1).random(size_bytes // 8)


def atoms(size_bytes: int) -> State:
    """Positions of atoms in nm, float32: a lattice and the noise of a warm liquid."""
    count = size_bytes // 12
    side = int(count ** (1 / 3)) + 1
    index = np.arange(count)
    lattice = np.stack((index % side, index // side % side, index // side**2), axis=1)
    noise = np.random.default_rng(2).standard_normal((count, 3), dtype=np.float32)
    return (lattice * 0.31 + noise * 0.02).astype(np.float32)


def draw_again(state: State) -> None:
    np.random.default_rng(4).random(out=state)


def move_atoms(state: State) -> None:
    """Every atom moves by some thousandths of a nanometre."""
    state += np.random.default_rng(3).standard_normal(state.shape, dtype=np.float32) * 0.003


def change_some(state: State) -> None:
    """Change a connected piece in the middle."""
    first = len(state) // 3
    state[first : first + int(len(state) * CHANGED_FRACTION)] += 1.0


KINDS = (
    Kind("random", "random floats", "Random float64, all of it new", random_floats, draw_again),
    Kind(
        "atoms",
        "moving atoms",
        "Atoms (float32 positions), every one moved a little",
        atoms,
        move_atoms,
    ),
    Kind("changed", "2 % changed", "Random float64, 2 % of it changed", random_floats, change_some),
)
