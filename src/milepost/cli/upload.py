"""`milepost upload`: prove that what must outlive the node is in its tier."""

from __future__ import annotations

import json
from pathlib import Path

import click

from milepost.paths import RunPaths
from milepost.runner.upload import describe, upload_shard


@click.command("upload")
@click.argument("run")
@click.argument("shard")
@click.option(
    "--root",
    type=click.Path(path_type=Path),
    default=Path("."),
    help="Folder that holds results/ and work/.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the record as JSON.")
def command(run: str, shard: str, root: Path, as_json: bool) -> None:
    """Send what is missing of SHARD and prove all of it by size and digest."""
    record = upload_shard(RunPaths(run, root), shard)
    print(json.dumps(record) if as_json else describe(record))
