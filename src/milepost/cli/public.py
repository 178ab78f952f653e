"""`milepost public`: tell what would leak from a text, or print it without that."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from milepost.cli.options import json_option
from milepost.errors import DataError, Suspect

if TYPE_CHECKING:
    from milepost.evidence.redact import Leak


@click.command()
@click.option(
    "--check", "check", metavar="FILE", help="tell what would leak from FILE (- is stdin)"
)
@click.option("--redact", "clean", metavar="FILE", help="print FILE without what would leak")
@json_option
def command(check: str | None, clean: str | None, as_json: bool) -> None:
    """Tell what would leak from a text that you want to publish; exit 21 when something would.

    Secrets are never printed, only their kind, place and first letters.
    """
    from milepost.evidence.redact import find_secrets, redact

    if (check is None) == (clean is None):
        raise click.UsageError("name one of --check FILE and --redact FILE")
    if clean is not None:
        click.echo(redact(_text(clean)), nl=False)
        return
    name = check or "-"
    leaks = find_secrets(_text(name))
    click.echo(_as_json(name, leaks) if as_json else _told(name, leaks))
    if leaks:
        raise Suspect(
            f"{len(leaks)} {'place' if len(leaks) == 1 else 'places'} would leak",
            where=name,
            fix=f"mend them by hand, or: milepost public --redact {name}",
        )


def _told(name: str, leaks: list[Leak]) -> str:
    if not leaks:
        return f"{name}: nothing found that would leak"
    return "\n".join(
        f"{name}:{leak.line}:{leak.column}: {leak.kind}: {leak.hint}" for leak in leaks
    )


def _as_json(name: str, leaks: list[Leak]) -> str:
    found = [
        {"kind": leak.kind, "line": leak.line, "column": leak.column, "characters": len(leak.text)}
        for leak in leaks
    ]
    return json.dumps({"file": name, "leaks": found})


def _text(name: str) -> str:
    if name == "-":
        return sys.stdin.buffer.read().decode("utf-8", "replace")
    try:
        return Path(name).read_bytes().decode("utf-8", "replace")
    except OSError as error:
        raise DataError(f"cannot be read: {error.strerror}", where=name) from error
