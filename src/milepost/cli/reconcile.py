"""`milepost reconcile`: evidence and verdict for every shard, at any time."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from milepost.cli.options import json_option, root_option
from milepost.errors import Suspect

if TYPE_CHECKING:
    from milepost.evidence.reconcile import ShardVerdict

SHOWN = 40
"""Of more shards than this only those that are not DONE are printed."""
COLUMNS = ("shard", "verdict", "done", "failed", "missing", "attempts", "next_action")


@click.command(short_help="evidence and verdict for every shard, at any time")
@click.argument("run")
@click.option("--deep", is_flag=True, help="Compare digests too, not only sizes.")
@click.option("--strict", is_flag=True, help="Exit 21 unless every shard is DONE.")
@root_option
@json_option
def command(run: str, deep: bool, strict: bool, root: Path, as_json: bool) -> None:
    """Judge every shard of RUN by journal, scheduler and artifacts.

    Needs no running head and waits for nothing. Writes results/RUN/reconcile.csv, and takes the
    marker from shards whose artifacts do not verify any more, so that they can run again.
    """
    from milepost.evidence.gather import gather
    from milepost.evidence.reconcile import (
        count,
        not_done,
        reconcile,
        withdraw_markers,
        write,
    )
    from milepost.paths import RunPaths

    paths = RunPaths(run, root)
    evidence = gather(paths, deep=deep)
    verdicts = reconcile(evidence)
    write(paths, verdicts)
    withdrawn = withdraw_markers(paths, verdicts)
    open_ = not_done(verdicts)
    counts = count(verdicts)
    if as_json:
        rows = [v.row(run) for v in verdicts]
        told = {"run": run, "counts": counts, "shards": rows, "notes": list(evidence.notes)}
        told["withdrawn"] = withdrawn
        click.echo(json.dumps(told))
    else:
        click.echo(_table(run, verdicts if len(verdicts) <= SHOWN else open_))
        click.echo(", ".join(f"{n} {word}" for word, n in counts.items()) or "no shards yet")
        for note in evidence.notes:
            click.echo(f"note: {note}", err=True)
        for name in withdrawn:
            click.echo(f"note: shard {name} lost its marker and runs again when asked", err=True)
    if strict and (not verdicts or open_):
        raise Suspect(
            f"{len(open_)} of {len(verdicts)} shards are not DONE",
            where=paths.reconcile,
            fix=f"follow the column next_action, or: milepost closeout {run} --partial",
        )


def _table(run: str, verdicts: Sequence[ShardVerdict]) -> str:
    from milepost.evidence.tabulate import tabulate

    rows = [v.row(run) for v in verdicts[:SHOWN]]
    text = tabulate(COLUMNS, ([row[c] for c in COLUMNS] for row in rows))
    more = len(verdicts) - len(rows)
    return f"{text}\nand {more} more shards in reconcile.csv" if more else text
