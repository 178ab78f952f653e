"""`milepost submit`: pass the gate and freeze the shard table."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path

import click

from milepost.cli.options import json_option, root_option
from milepost.launch.submission import submit
from milepost.paths import RunPaths


@click.command("submit")
@click.argument("run")
@click.option(
    "--scheduler",
    type=click.Choice(["none", "slurm"]),
    default="none",
    help="Ask it first whether it would take the shards.",
)
@click.option("--jobs", type=int, help="So many shards are in its queue at a time; default: all.")
@root_option
@json_option
def command(run: str, scheduler: str, jobs: int | None, root: Path, as_json: bool) -> None:
    """Freeze the shards of RUN; refuses (exit 20) unless smoke and plan are of its contract.

    With `--scheduler slurm` also when Slurm would refuse a shard or let it wait for ever.
    """
    done = submit(
        RunPaths(run, root),
        lambda text: print(f"[{run} submit] {text}", file=sys.stderr, flush=True),
        on_slurm=scheduler == "slurm",
        jobs=jobs,
    )
    if as_json:
        print(json.dumps(asdict(done) | {"path": str(done.path)}))
    else:
        print(
            f"{run}: {done.tasks} tasks in {done.shards} shards ({done.new_shards} new), {done.path}"
        )
