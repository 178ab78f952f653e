"""milepost reconcile: evidence and verdict for every shard, at any time."""

from __future__ import annotations

import json

import click

from milepost.errors import Suspect
from milepost.evidence.gather import gather
from milepost.evidence.reconcile import count, not_done, reconcile, write
from milepost.evidence.tabulate import tabulate
from milepost.paths import RunPaths


@click.command()
@click.argument("run")
@click.option("--deep", is_flag=True, help="compare digests too, not only sizes")
@click.option("--strict", is_flag=True, help="exit 21 unless every shard is DONE")
@click.option("--json", "as_json", is_flag=True, help="print the rows as JSON")
def command(run: str, deep: bool, strict: bool, as_json: bool) -> None:
    """Judge every shard of RUN by journal, scheduler and artifacts.

    Needs no running head and waits for nothing. Writes results/RUN/reconcile.csv.
    """
    paths = RunPaths(run)
    evidence = gather(paths, deep=deep)
    verdicts = reconcile(evidence)
    write(paths, verdicts)
    rows = [v.row(run) for v in verdicts]
    if as_json:
        notes = list(evidence.notes)
        click.echo(
            json.dumps({"run": run, "counts": count(verdicts), "shards": rows, "notes": notes})
        )
    else:
        columns = ("shard", "verdict", "done", "failed", "missing", "attempts", "next_action")
        click.echo(tabulate(columns, ([row[c] for c in columns] for row in rows)))
        click.echo(
            ", ".join(f"{n} {word}" for word, n in count(verdicts).items()) or "no shards yet"
        )
        for note in evidence.notes:
            click.echo(f"note: {note}", err=True)
    if strict and (not rows or not_done(verdicts)):
        raise Suspect(
            f"{len(not_done(verdicts))} of {len(rows)} shards are not DONE",
            where=paths.reconcile,
            fix=f"follow the column next_action, or: milepost closeout {run} --partial",
        )
