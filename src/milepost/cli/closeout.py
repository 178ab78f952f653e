"""`milepost closeout`: the run's verdict, report and records."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from milepost.cli.options import json_option, root_option
from milepost.errors import ConfigError, Suspect

if TYPE_CHECKING:
    from milepost.evidence.closing import Closing


@click.command(short_help="the run's verdict, report and records")
@click.argument("run")
@click.option("--partial", is_flag=True, help="Report on a run that goes on or failed; exit 0.")
@click.option(
    "--accept", metavar="REASON", help="Close with what is false now, and say why for ever."
)
@click.option(
    "--superseded-by",
    "successor",
    metavar="OTHER",
    help="Close for ever because run OTHER took its place; it is not launched again.",
)
@root_option
@json_option
def command(
    run: str,
    partial: bool,
    accept: str | None,
    successor: str | None,
    root: Path,
    as_json: bool,
) -> None:
    """Judge RUN and write results/RUN/closeout/: report, records, RO-Crate.

    Waits for nothing. Exit code 0 when the run is closed, 21 when it is not. A run with failures is
    closed by a reason (--accept), or by the run that took its place (--superseded-by, with a reason
    if you like); both are told for ever.
    """
    from milepost.clock import utc_now
    from milepost.evidence.closing import close
    from milepost.evidence.public_texts import public_texts
    from milepost.evidence.records import record
    from milepost.evidence.redact import without_credentials
    from milepost.paths import RunPaths

    if accept is not None and not accept.strip():
        raise ConfigError(
            "--accept needs a reason", fix="say in a sentence why this is good enough"
        )
    closing = close(
        RunPaths(run, root),
        now=utc_now(),
        partial=partial,
        accept=accept,
        superseded_by=successor,
    )
    whole = without_credentials(record(closing))
    click.echo(json.dumps(whole, indent=2) if as_json else _text(closing))
    flag = public_texts(closing.facts.run).flag(run)
    if flag is not None:
        click.echo(f"milepost: {flag}", err=True)
    if not partial and not closing.closeout.is_closed:
        first = closing.closeout.open_items[0]
        raise Suspect(
            f"not closed, because this is not true: {first.title} ({first.evidence})",
            where=closing.facts.run.paths.closeout / "report.html",
            fix=first.next_action,
        )


def _text(closing: Closing) -> str:
    import textwrap

    from milepost.evidence.tabulate import WIDTH, tabulate
    from milepost.evidence.words import plural

    words = {True: "yes", False: "NO", None: "n/a"}
    rows = []
    for item in closing.closeout.items:
        more = f" -> {item.next_action}" if item.next_action else ""
        rows.append((words[item.holds], f"{item.title}: {item.evidence}{more}"))
    lines = [
        tabulate(("", "item"), rows),
        f"run {closing.facts.run.paths.run}: {closing.closeout.verdict}",
    ]
    lines += [f"accepted {a.time}: {a.reason}" for a in closing.closeout.accepted]
    note = closing.closeout.superseded
    if note is not None:
        why = "" if note.reason is None else f": {note.reason}"
        lines.append(f"superseded by {note.by} {note.time}{why}")
    best = closing.table.best
    if best is not None:
        values = ", ".join(f"{k}={v}" for k, v in best.items() if k not in ("task", "shard"))
        text = f"best by {closing.table.best_by}: {values} (task {best['task']})"
        lines.append(textwrap.fill(text, WIDTH, subsequent_indent="  "))
        tied = closing.table.tied_count
        if tied:
            lines.append(f"  the same {closing.table.best_by} in {plural(tied, 'other task')}")
    return "\n".join(lines)
