"""`milepost upload`: prove that what must outlive the node is in its tier."""

from __future__ import annotations

import json
from pathlib import Path

import click

from milepost.cli.options import json_option, root_option
from milepost.paths import RunPaths
from milepost.runner.upload import describe, upload_shard


@click.command("upload")
@click.argument("run")
@click.argument("shard")
@root_option
@json_option
def command(run: str, shard: str, root: Path, as_json: bool) -> None:
    """Send what is missing of SHARD and prove all of it by size and digest."""
    record = upload_shard(RunPaths(run, root), shard)
    print(json.dumps(record) if as_json else describe(record))
