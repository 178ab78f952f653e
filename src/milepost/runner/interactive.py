"""What an interactive shell for one shard gets: resources, environment, and its command.

The shell is no attempt: it holds no lease, has no token and writes to a folder of its own, so
that nothing done in it counts as work. Inside it, `milepost shard RUN SHARD` makes an attempt.
"""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass
from pathlib import Path

from milepost.config.command import CommandTemplate
from milepost.config.contract import Contract
from milepost.config.spec import RunSpec
from milepost.errors import Refused
from milepost.lease import newest_attempt, read_holder
from milepost.model import Shard, Task, WorkKind
from milepost.paths import RunPaths, ShardPaths
from milepost.runner.hardware import slot_environments
from milepost.runner.interval import DEFAULT_INTERVAL_S
from milepost.runner.places import saving_options
from milepost.slurm.interactive import Allocation


@dataclass(frozen=True, slots=True)
class Room:
    """The shell's allocation, its MILEPOST_* and other variables, and the commands of the work."""

    allocation: Allocation
    environment: dict[str, str]
    commands: tuple[str, ...]


def check_free(paths: ShardPaths) -> None:
    """Raise Refused while an attempt works on the shard, or may do so for all that can be told."""
    holder = read_holder(paths.lease)
    if holder is not None and holder.is_alive() is not False:
        raise Refused(
            f"the shard is being worked on: {holder.describe()}",
            where=paths.lease,
            fix="wait for it to end, or look on with --read-only",
        )


def make_room(contract: Contract, paths: RunPaths, shard: Shard, *, read_only: bool) -> Room:
    """Everything for a shell in the place of this shard; `read_only` gives it no folder to write."""
    spec, own = contract.spec, paths.shard(shard.name)
    resources = spec.resources
    allocation = Allocation(
        name=f"milepost-{spec.name}-{shard.name}",
        cpus=resources.cpus,
        mem_mb=resources.mem_mb,
        gpus=resources.gpus,
        runtime_s=resources.runtime_s,
        account=spec.slurm.account,
        partition=spec.slurm.partition,
        qos=spec.slurm.qos,
        reservation=spec.slurm.reservation,
        constraint=spec.slurm.constraint,
    )
    environment = _environment(contract, own, shard)
    if not read_only:
        environment |= _writing(spec, own, shard)
    # The GPUs are those that Slurm gives to the shell, not those of this host.
    slot = slot_environments(resources, environment)[0]
    slot.pop("CUDA_VISIBLE_DEVICES", None)
    return Room(allocation, slot, tuple(_commands(spec, shard.tasks[0], own)))


def _environment(contract: Contract, own: ShardPaths, shard: Shard) -> dict[str, str]:
    return {
        **contract.spec.work.environment,
        "MILEPOST_RUN": contract.spec.name,
        "MILEPOST_SHARD": shard.name,
        "MILEPOST_ATTEMPT": str(newest_attempt(own.live)),
        "MILEPOST_TASK": shard.tasks[0].key,
        "MILEPOST_CODE": contract.digest,
    }


def _writing(spec: RunSpec, own: ShardPaths, shard: Shard) -> dict[str, str]:
    """A private folder for output and, for resumable work, for checkpoints."""
    out = shell_out(own)
    found = {"MILEPOST_OUT": str(out)}
    if spec.work.kind is WorkKind.RESUMABLE:
        settings = {
            "folder": str((out / "ckpt").absolute()),
            "interval_s": spec.checkpoint.interval_s or DEFAULT_INTERVAL_S,
            "upload": False,
            **saving_options(spec.checkpoint),
        }
        found["MILEPOST_CKPT"] = json.dumps(settings)
        found["MILEPOST_METRICS"] = str((out / "metrics.prom").absolute())
    return found


def shell_out(own: ShardPaths) -> Path:
    """The output folder of interactive shells; attempts have numbers."""
    return own.live / "out" / "shell"


def _commands(spec: RunSpec, task: Task, own: ShardPaths) -> list[str]:
    """The shard's first task as it can be typed in the shell."""
    work = spec.work
    texts = [stage.command for stage in work.stages]
    if work.command is not None:
        texts.append(work.command)
    values = {**task.params, "out": str(shell_out(own))}
    return [shlex.join(CommandTemplate.parse(text).argv(values)) for text in texts]
