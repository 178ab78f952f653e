"""Measure the energy of the two-dimensional Ising model: the long-simulation example.

Checkerboard Metropolis on a periodic square lattice (J = 1), compared with Onsager's exact
energy of the infinite lattice. Spins, generator and accumulators are in every checkpoint, so a
resumed run gives the same bits as an undisturbed one. Alone, without milepost:

    python examples/ising.py --beta 0.35 --size 64 --sweeps 20000 --out /tmp/ising
"""

from __future__ import annotations

import argparse
import json
import math
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from milepost import Checkpointer

CRITICAL_BETA = math.log(1 + math.sqrt(2)) / 2
BLOCK_SWEEPS = 20
BURN_IN_FRACTION = 0.1
BINS_AT_LEAST = 64


@dataclass
class Lattice:
    """Spins +1/-1 (int8) of the two colours of the checkerboard, each `size` x `size`/2.

    A site of one colour has its four neighbours in the other, so a whole colour is updated at
    once without breaking detailed balance.
    """

    beta: float
    black: NDArray[np.int8]
    white: NDArray[np.int8]
    rng: np.random.Generator
    chance: NDArray[np.float32] = field(init=False)

    def __post_init__(self) -> None:
        """Tabulate exp(-2 beta s h), the chance to flip spin s in the field h, by s*h + 4."""
        self.chance = np.exp(-2 * self.beta * np.arange(-4, 5)).astype(np.float32)

    @classmethod
    def start(cls, beta: float, size: int, seed: int) -> Lattice:
        """All spins up below the critical temperature, random ones above it."""
        rng = np.random.Generator(np.random.PCG64(seed))
        shape = (size, size // 2)
        if beta > CRITICAL_BETA:
            return cls(beta, np.ones(shape, np.int8), np.ones(shape, np.int8), rng)
        black, white = (rng.integers(0, 2, (2, *shape), dtype=np.int8) * 2 - 1).astype(np.int8)
        return cls(beta, black, white, rng)

    def sweep(self) -> int:
        """Offer every site one flip; return the energy after it, an exact integer."""
        self._flip(self.black, neighbours(self.white, of_black=True))
        around = neighbours(self.black, of_black=False)
        self._flip(self.white, around)
        return -int((self.white * around).sum(dtype=np.int64))

    def _flip(self, spins: NDArray[np.int8], around: NDArray[np.int8]) -> None:
        accepted = self.rng.random(spins.shape, np.float32) < self.chance[spins * around + 4]
        np.negative(spins, out=spins, where=accepted)


def neighbours(other: NDArray[np.int8], of_black: bool) -> NDArray[np.int8]:
    """Sum of the four neighbours that a colour's sites have in the `other` colour.

    Site (i, j) of black stands in column 2j + i % 2, of white in the column beside it.
    """
    total = np.roll(other, 1, axis=0) + np.roll(other, -1, axis=0) + other
    odd_or_even = 1 if of_black else 0
    total[odd_or_even::2] += np.roll(other[odd_or_even::2], -1, axis=1)
    total[1 - odd_or_even :: 2] += np.roll(other[1 - odd_or_even :: 2], 1, axis=1)
    return total


@dataclass
class Simulation:
    """The lattice and what was measured: the summed energy of each finished block of sweeps."""

    lattice: Lattice
    energies: NDArray[np.int64]

    @classmethod
    def start(cls, beta: float, size: int, sweeps: int, seed: int) -> Simulation:
        blocks = -(-sweeps // BLOCK_SWEEPS)
        return cls(Lattice.start(beta, size, seed), np.zeros(blocks, np.int64))

    def advance(self, block: int) -> None:
        self.energies[block] = sum(self.lattice.sweep() for _ in range(BLOCK_SWEEPS))

    def state(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        """Everything that the future depends on: arrays, and the generator as plain data."""
        arrays: dict[str, NDArray[Any]] = {
            "black": self.lattice.black,
            "white": self.lattice.white,
            "energies": self.energies,
        }
        return arrays, {"rng": self.lattice.rng.bit_generator.state}

    def load(self, arrays: dict[str, NDArray[Any]], meta: dict[str, Any]) -> None:
        """Go back to a saved state."""
        self.lattice.black[:] = arrays["black"]
        self.lattice.white[:] = arrays["white"]
        self.energies[:] = arrays["energies"]
        self.lattice.rng.bit_generator.state = meta["rng"]

    def result(self) -> dict[str, float | int]:
        """Energy per spin after burn-in, its standard error and the exact value."""
        size = self.lattice.black.shape[0]
        burned = int(len(self.energies) * BURN_IN_FRACTION)
        series = self.energies[burned:] / (BLOCK_SWEEPS * size * size)
        energy, error = float(series.mean()), binning_error(series)
        exact = onsager(self.lattice.beta)
        return {
            "beta": self.lattice.beta,
            "size": size,
            "sweeps": len(self.energies) * BLOCK_SWEEPS,
            "energy": energy,
            "error": error,
            "onsager": exact,
            "sigmas": abs(energy - exact) / error if error else math.inf,
        }


def binning_error(series: NDArray[np.float64]) -> float:
    """Standard error of the mean of a correlated series.

    Neighbours are averaged in pairs, again and again, while BINS_AT_LEAST bins remain; the
    largest naive error is taken (Flyvbjerg and Petersen 1989, J. Chem. Phys. 91, 461).
    """
    largest = 0.0
    while len(series) >= 2:
        largest = max(largest, float(series.std(ddof=1)) / math.sqrt(len(series)))
        if len(series) // 2 < BINS_AT_LEAST:
            break
        even = len(series) // 2 * 2
        series = (series[0:even:2] + series[1:even:2]) / 2
    return largest


def onsager(beta: float) -> float:
    """Exact energy per spin of the infinite square lattice with J = 1.

    Onsager 1944, Phys. Rev. 65, 117: -coth(2b) (1 + 2/pi (2 tanh^2(2b) - 1) K(k)) with
    k = 2 sinh(2b) / cosh^2(2b). SciPy's K takes k^2; ellipkm1 keeps digits close to k = 1.
    """
    from scipy.special import ellipkm1

    sinh, cosh = math.sinh(2 * beta), math.cosh(2 * beta)
    one_minus_k2 = ((sinh * sinh - 1) / (cosh * cosh)) ** 2
    if one_minus_k2 == 0:
        return -math.sqrt(2)
    middle = 2 / math.pi * (2 * (sinh / cosh) ** 2 - 1) * float(ellipkm1(one_minus_k2))
    return -cosh / sinh * (1 + middle)


def checkpointer(folder: Path) -> Checkpointer:
    """The one that milepost configured, or one beside the result when run by hand."""
    if "MILEPOST_CKPT" in os.environ:
        return Checkpointer.from_env()
    return Checkpointer(folder / "ckpt")


def run(simulation: Simulation, ck: Checkpointer) -> bool:
    """Go on from the newest checkpoint to the end; False when told to stop before it."""
    first = 0
    saved = ck.restore()
    if saved is not None:
        simulation.load(saved.arrays, saved.meta)
        first = saved.step + 1
    blocks = len(simulation.energies)
    for block in range(first, blocks):
        simulation.advance(block)
        ck.step(block, simulation.state)
        if ck.stopping and block + 1 < blocks:
            return False
    return True


def write_json(path: Path, value: Any) -> None:
    """Write under another name, then rename: `path` is complete or absent."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}")
    part.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")
    part.replace(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--beta", type=float, required=True, help="inverse temperature, J/kT")
    parser.add_argument("--size", type=int, required=True, help="edge of the lattice, even")
    parser.add_argument("--sweeps", type=int, required=True, help="lattice sweeps with burn-in")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, required=True, help="folder for energy.json")
    options = parser.parse_args()
    if options.size < 4 or options.size % 2:
        parser.error(f"--size {options.size}: take an even number, 4 or more")
    if options.beta <= 0 or options.sweeps < 1:
        parser.error("--beta and --sweeps must be positive")
    simulation = Simulation.start(options.beta, options.size, options.sweeps, options.seed)
    with checkpointer(options.out) as ck:
        if run(simulation, ck):
            ck.finish()
    # not reached when told to stop: leaving the block then ends the process with 75, resumable
    write_json(options.out / "energy.json", simulation.result())


if __name__ == "__main__":
    main()
