"""`milepost preflight`: the pre-production checklist, each point with its evidence."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from milepost.cli.options import json_option, root_option
from milepost.errors import ConfigError, Refused

if TYPE_CHECKING:
    from milepost.evidence.closeout import Item


@click.command(short_help="the pre-production checklist, with evidence")
@click.argument("run", required=False)
@root_option
@json_option
def command(run: str | None, root: Path, as_json: bool) -> None:
    """Go through the pre-production checklist of RUN, or of every run here.

    Reads only. Exit code 0 when no check fails, 20 otherwise.
    """
    from milepost.evidence.preflight import as_json as plain
    from milepost.evidence.preflight import checks, failed
    from milepost.evidence.preflight_facts import gather_facts
    from milepost.paths import RunPaths

    found = {name: checks(gather_facts(RunPaths(name, root))) for name in _runs(run, root)}
    if as_json:
        click.echo(json.dumps([plain(name, items) for name, items in found.items()], indent=2))
    else:
        click.echo("\n\n".join(told(name, items) for name, items in found.items()))
    bad = [(name, item) for name, items in found.items() for item in failed(items)]
    if bad:
        name, item = bad[0]
        raise Refused(
            f"{len(bad)} of the checks {'fails' if len(bad) == 1 else 'fail'}, first "
            f"{item.key}: {item.evidence}",
            where=name,
            fix=item.next_action,
        )


def told(run: str, items: tuple[Item, ...]) -> str:
    """The list for a terminal of 80 columns."""
    from milepost.evidence.tabulate import tabulate

    words = {True: "ok", False: "FAIL", None: "n/a"}
    rows = [(words[i.holds], i.key, _line(i)) for i in items]
    counts = ", ".join(f"{sum(r[0] == word for r in rows)} {word}" for word in words.values())
    return f"{tabulate(('', 'check', 'evidence'), rows)}\nrun {run}: {counts}"


def _line(item: Item) -> str:
    return f"{item.evidence} -> {item.next_action}" if item.holds is False else item.evidence


def _runs(run: str | None, root: Path) -> list[str]:
    contracts = sorted(root.glob("work/*/contract.json"))
    names = [run] if run else [path.parent.name for path in contracts]
    if not names:
        raise ConfigError(
            "there is no contract here", where=root.resolve(), fix="milepost contract RUN"
        )
    return names
