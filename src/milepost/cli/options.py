"""Options that mean the same in every subcommand."""

from __future__ import annotations

from pathlib import Path

import click

root_option = click.option(
    "--root",
    type=click.Path(path_type=Path),
    default=Path("."),
    help="Folder of the workflow: it holds results/ and work/.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")
