"""`milepost public`: tell what would leak from a text, or print it without that."""

from __future__ import annotations

import codecs
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from milepost.cli.options import json_option, root_option
from milepost.errors import DataError, Suspect

if TYPE_CHECKING:
    from milepost.evidence.private_names import Names
    from milepost.evidence.redact import Leak


@click.command()
@click.option(
    "--check", "check", metavar="FILE", help="tell what would leak from FILE (- is stdin)"
)
@click.option("--redact", "clean", metavar="FILE", help="print FILE without what would leak")
@click.option("--run", "run", metavar="RUN", help="look for what this run knows as private, too")
@root_option
@json_option
def command(
    check: str | None, clean: str | None, run: str | None, root: Path, as_json: bool
) -> None:
    """Tell what would leak from a text that you want to publish; exit 21 when something would.

    Secrets are never printed, only their kind, place and what stands around them. With --run also
    hosts, jobs, accounts and environment values of that run are looked for, as its closeout does.
    """
    from milepost.evidence.redact import find_secrets, redact

    if (check is None) == (clean is None):
        raise click.UsageError("name one of --check FILE and --redact FILE")
    names = _names(run, root)
    if clean is not None:
        click.echo(redact(_text(clean), names), nl=False)
        return
    name = check or "-"
    leaks = find_secrets(_text(name), names)
    click.echo(_as_json(name, leaks) if as_json else _told(name, leaks))
    if leaks:
        raise Suspect(
            f"{len(leaks)} {'place' if len(leaks) == 1 else 'places'} would leak",
            where=name,
            fix=f"mend them by hand, or: milepost public --redact {name}",
        )


def _names(run: str | None, root: Path) -> Names | None:
    """None: those of this process."""
    if run is None:
        return None
    from milepost.evidence.gather import gather
    from milepost.evidence.private_names import known_names
    from milepost.evidence.public_texts import run_names
    from milepost.paths import RunPaths

    return known_names() | run_names(gather(RunPaths(run, root)))


def _told(name: str, leaks: list[Leak]) -> str:
    if not leaks:
        return f"{name}: nothing found that would leak"
    lines = []
    for leak in leaks:
        lines.append(f"{name}:{leak.line}:{leak.column}: {leak.kind}: {leak.hint}")
        lines.append(f"    | {leak.excerpt}")
    return "\n".join(lines)


def _as_json(name: str, leaks: list[Leak]) -> str:
    found = [
        {"kind": leak.kind, "line": leak.line, "column": leak.column, "characters": len(leak.text)}
        | {"excerpt": leak.excerpt}
        for leak in leaks
    ]
    return json.dumps({"file": name, "leaks": found}, ensure_ascii=False)


def _text(name: str) -> str:
    if name == "-":
        return _decoded(sys.stdin.buffer.read())
    try:
        return _decoded(Path(name).read_bytes())
    except OSError as error:
        raise DataError(f"cannot be read: {error.strerror}", where=name) from error


def _decoded(data: bytes) -> str:
    """Text in any encoding; what is none is replaced, since nothing may hide behind it."""
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return data.decode("utf-16", "replace")
    return data.decode("utf-8-sig", "replace")
