"""Which ranks this process is one of, when nobody gave it a communicator."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from milepost.errors import ConfigError
from milepost.slurm.environment import step_task


@dataclass(frozen=True, slots=True)
class World:
    """One of `size` processes that were started together; `launch` names the start for all."""

    rank: int
    size: int
    launch: str


def world_of(environ: Mapping[str, str] | None = None) -> World | None:
    """The ranks of an `mpirun` (Open MPI), else of a Slurm step; None for one process.

    Open MPI comes first: below Slurm its daemons are tasks of a step, not the ranks.
    """
    env = os.environ if environ is None else environ
    rank, size = env.get("OMPI_COMM_WORLD_RANK"), env.get("OMPI_COMM_WORLD_SIZE")
    if rank is not None or size is not None:
        launch = env.get("PMIX_NAMESPACE") or env.get("OMPI_MCA_ess_base_jobid") or "mpirun"
        return _world(rank, size, f"mpi-{launch}")
    task = step_task(env)
    if task is None or task[1] == 1:
        return None
    return World(task[0], task[1], f"step-{task[2]}")


def _world(rank: str | None, size: str | None, launch: str) -> World | None:
    if not (rank and size and rank.isdecimal() and size.isdecimal() and int(rank) < int(size)):
        raise ConfigError(
            f"rank {rank!r} of {size!r}", where="OMPI_COMM_WORLD_RANK, OMPI_COMM_WORLD_SIZE"
        )
    plain = "".join(char if char.isalnum() else "-" for char in launch)
    return World(int(rank), int(size), plain) if int(size) > 1 else None
