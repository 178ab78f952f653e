"""`milepost shell`: an interactive allocation with a shard's resources and environment."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from milepost.cli.options import root_option
from milepost.paths import RunPaths

if TYPE_CHECKING:
    from milepost.runner.interactive import Room


@click.command(short_help="an interactive allocation with a shard's resources and environment")
@click.argument("run")
@click.argument("shard")
@click.argument("options", nargs=-1, type=click.UNPROCESSED, metavar="[-- OPTIONS OF SLURM]")
@root_option
@click.option("--print", "only_print", is_flag=True, help="Show the command; needs no Slurm.")
@click.option(
    "--read-only", is_flag=True, help="Also while an attempt works on it; gives no folder."
)
@click.option("--salloc", "by_salloc", is_flag=True, help="Take salloc instead of srun --pty.")
@click.option("--program", default="bash", show_default=True, help="What to open on the node.")
def command(
    run: str,
    shard: str,
    options: tuple[str, ...],
    root: Path,
    only_print: bool,
    read_only: bool,
    by_salloc: bool,
    program: str,
) -> None:
    """Open a shell on a node, with the resources and the environment of SHARD of RUN.

    The shell is no attempt: what it writes to MILEPOST_OUT does not count. Inside it, `milepost
    shard RUN SHARD` makes an attempt. Refused (exit 20) while one works on the shard, unless
    --read-only.
    """
    from milepost.config.contract import load_contract
    from milepost.runner.interactive import check_free, make_room
    from milepost.shardtable import read_shard
    from milepost.slurm.interactive import allocation_argv, enter, outside

    paths = RunPaths(run, root)
    contract = load_contract(paths)
    found = read_shard(paths.frozen_shards, shard)
    if not read_only:
        check_free(paths.shard(shard))
    room = make_room(contract, paths, found, read_only=read_only)
    argv = allocation_argv(room.allocation, program, by_salloc=by_salloc, extra=options)
    if only_print:
        click.echo(shown(room, argv))
        return
    if not read_only:
        Path(room.environment["MILEPOST_OUT"]).mkdir(parents=True, exist_ok=True)
    print(_welcome(room, run, shard), file=sys.stderr, flush=True)
    enter(argv, outside(os.environ) | room.environment)


def shown(room: Room, argv: list[str]) -> str:
    """The command as it can be typed, a variable or an option a line."""
    settings = [f"{key}={shlex.quote(value)}" for key, value in sorted(room.environment.items())]
    lines = ["env", *settings, *(shlex.quote(word) for word in argv)]
    return " \\\n  ".join(lines)


def _welcome(room: Room, run: str, shard: str) -> str:
    ask = room.allocation
    gpus = f", {ask.gpus} GPU" if ask.gpus else ""
    lines = [
        f"milepost: asks for {ask.cpus} CPU, {ask.mem_mb} MB{gpus}, {ask.runtime_s / 60:.0f} min",
        *(f"  the work:       {command}" for command in room.commands),
        f"  an attempt:     milepost shard {run} {shard}",
        f"  why it failed:  milepost why {run}/{shard}",
    ]
    return "\n".join(lines)
