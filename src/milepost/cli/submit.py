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
@root_option
@json_option
def command(run: str, root: Path, as_json: bool) -> None:
    """Freeze the shards of RUN; refuses (exit 20) unless smoke and plan are of its contract."""
    done = submit(
        RunPaths(run, root),
        lambda text: print(f"[{run} submit] {text}", file=sys.stderr, flush=True),
    )
    if as_json:
        print(json.dumps(asdict(done) | {"path": str(done.path)}))
    else:
        print(
            f"{run}: {done.tasks} tasks in {done.shards} shards ({done.new_shards} new), {done.path}"
        )
