"""`milepost status`: what is done, running and failed, on one screen."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from milepost.cli.options import json_option, root_option


@click.command(short_help="what is done, running and failed, on one screen")
@click.argument("run", required=False)
@root_option
@json_option
def command(run: str | None, root: Path, as_json: bool) -> None:
    """Show how RUN, or every run here, stands. Reads only."""
    from milepost.evidence.standing import standing
    from milepost.evidence.tabulate import tabulate
    from milepost.paths import RunPaths

    found = [standing(RunPaths(name, root)) for name in ([run] if run else _runs(root))]
    if as_json:
        click.echo(json.dumps([s.as_json() for s in found], indent=2))
        return
    if not found:
        click.echo("no run here yet; next: snakemake -c2")
        return
    header = ("run", "tasks", "done", "failed", "left", "rate/s", "ETA", "shards")
    click.echo(tabulate(header, [s.row() for s in found]))
    for one in found:
        closed = f"closed: results/{one.run}/closeout/report.html"
        if one.superseded_by is not None:
            click.echo(f"{one.run}: superseded by {one.superseded_by}, not launched again")
        click.echo(f"{one.run}: {'next: ' + one.next if one.next else closed}")


def _runs(root: Path) -> list[str]:
    """Runs that have a contract or a shard table here."""
    proofs: list[Any] = [*root.glob("work/*/contract.json"), *root.glob("results/*/contract.json")]
    proofs += root.glob("work/*/shards.csv")
    return sorted({path.parent.name for path in proofs})
