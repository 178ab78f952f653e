"""An interactive allocation: the words of `srun --pty` or `salloc`, and going into it."""

from __future__ import annotations

import math
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn

from milepost.slurm.command import NotHeard


@dataclass(frozen=True, slots=True)
class Allocation:
    """What to ask for; None is left to the cluster."""

    name: str
    cpus: int
    mem_mb: int
    gpus: int
    runtime_s: float
    account: str | None = None
    partition: str | None = None
    qos: str | None = None
    reservation: str | None = None
    constraint: str | None = None


def allocation_argv(
    ask: Allocation, shell: str, *, by_salloc: bool = False, extra: Sequence[str] = ()
) -> list[str]:
    """The command that opens `shell` on a node; `extra` are options of the user's own, last."""
    words = ["salloc" if by_salloc else "srun", f"--job-name={ask.name}", "--ntasks=1"]
    words += [f"--cpus-per-task={ask.cpus}", f"--mem={ask.mem_mb}M"]
    words += [f"--time={math.ceil(ask.runtime_s / 60)}"]
    if ask.gpus:
        words.append(f"--gpus={ask.gpus}")
    for key in ("account", "partition", "qos", "reservation", "constraint"):
        value = getattr(ask, key)
        if value is not None:
            words.append(f"--{key}={value}")
    words += extra
    # salloc alone opens the shell where it was typed; the shell must be on the node
    return [*words, "srun", "--pty", shell] if by_salloc else [*words, "--pty", shell]


def outside(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment without an allocation that this process may be in: a new one is wanted."""
    kept = ("SLURM_CONF",)
    return {k: v for k, v in environ.items() if not k.startswith("SLURM_") or k in kept}


def enter(argv: Sequence[str], environ: Mapping[str, str]) -> NoReturn:
    """Become that command. Raises NotHeard where Slurm is not there."""
    if shutil.which(argv[0], path=environ.get("PATH")) is None:
        raise NotHeard(
            f"there is no `{argv[0]}` on the PATH",
            fix="run it on a login node of the cluster, or see the command with --print",
        )
    os.execvpe(argv[0], list(argv), dict(environ))
