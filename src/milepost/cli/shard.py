"""`milepost shard`: run or resume one shard until its artifacts are verified."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from milepost.cli.options import root_option
from milepost.clock import utc_now
from milepost.paths import RunPaths
from milepost.runner.shard import ShardOptions, run_shard


@click.command("shard")
@click.argument("run")
@click.argument("shard")
@root_option
@click.option(
    "--walltime", type=float, help="Seconds this attempt may take; default: the contract's runtime."
)
@click.option(
    "--automatic",
    type=int,
    default=0,
    help="How often it was retried without being asked; above 0, only what a retry can mend is tried.",
)
@click.option(
    "--wait/--no-wait", default=True, help="Wait for whoever holds the lease, or refuse (exit 20)."
)
@click.option(
    "--drill", is_flag=True, hidden=True, help="Kill this process at its first durable progress."
)
def command(
    run: str,
    shard: str,
    root: Path,
    walltime: float | None,
    automatic: int,
    wait: bool,
    drill: bool,
) -> None:
    """Run or resume one shard.

    Exit code: 0 done, 75 stopped at a durable point and resumable, 11/12/13 failed
    (runtime, data, storage), 20 refused.
    """
    options = ShardOptions(walltime, automatic > 0, automatic, wait, drill)

    def say(text: str) -> None:
        print(f"{utc_now()} [{run} {shard}] {text}", file=sys.stderr, flush=True)

    sys.exit(run_shard(RunPaths(run, root), shard, options, say))
