"""`milepost classify`: name the failure in a log, with the lines that prove it."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from milepost.cli.options import json_option
from milepost.errors import DataError
from milepost.model import Finding


@click.command()
@click.argument("logs", nargs=-1, required=True, metavar="LOG...")
@click.option("--state", help="state of the scheduler, such as TIMEOUT or 'CANCELLED by 0'")
@click.option("--exit-code", help="exit code: 137, -9, or exit:signal as sacct prints it")
@click.option(
    "--signatures",
    type=click.Path(path_type=Path),
    help="YAML file with your own ones: a list, or a configuration.",
)
@json_option
def command(
    logs: Sequence[str],
    state: str | None,
    exit_code: str | None,
    signatures: Path | None,
    as_json: bool,
) -> None:
    """Name the failure in each LOG (- is stdin) and what to do about it."""
    from milepost.config.signatures import read_signatures
    from milepost.evidence.classify import diagnose

    extra = () if signatures is None else read_signatures(signatures)
    for name in logs:
        finding, why = diagnose(_log(name), state=state, exit_code=exit_code, extra=extra)
        if as_json:
            click.echo(json.dumps({"log": name, **finding.as_json(), "why": why}))
        else:
            click.echo(_told(name, finding, why))


def _told(name: str, finding: Finding, why: str) -> str:
    head = (
        f"{name}: {finding.failure_class}/{finding.subclass}, next {finding.action} "
        f"(confidence {finding.confidence:.2f})"
    )
    return "\n".join([head, f"  {why}", *(f"  | {line}" for line in finding.evidence)])


def _log(name: str) -> Path | bytes:
    if name == "-":
        from milepost.evidence.logtext import read_stream

        return read_stream(sys.stdin.buffer)
    path = Path(name)
    if not path.is_file():
        what = "is a folder" if path.is_dir() else "is missing"
        raise DataError(f"the log {what}", where=path, fix="name a file, or - for stdin")
    return path
