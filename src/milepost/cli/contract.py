"""`milepost contract`: validate a run's configuration and freeze it."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from milepost.errors import ConfigError

DEFAULT = Path("config/config.yaml")


@click.command(short_help="validate a run's configuration and freeze it")
@click.argument("run", required=False)
@click.option(
    "--config",
    "files",
    multiple=True,
    type=click.Path(path_type=Path),
    help=f"Configuration file; later ones are laid over earlier ones.  [default: {DEFAULT}]",
)
@click.option("--override", metavar="JSON", help="Keys and values that are laid over the files.")
@click.option("--check", is_flag=True, help="Only validate; all runs when RUN is left out.")
@click.option("--json", "as_json", is_flag=True, help="Print the contract as JSON.")
def command(
    run: str | None, files: tuple[Path, ...], override: str | None, check: bool, as_json: bool
) -> None:
    """Validate the configuration of RUN and freeze it as its contract."""
    from milepost.config.contract import freeze
    from milepost.config.load import load_config, parse_config
    from milepost.paths import RunPaths

    files = files or (DEFAULT,)
    source = ", ".join(map(str, files))
    config = parse_config(load_config(files, _override(override)), source)
    if check and run is None:
        _report_checked(list(config.runs), source, as_json)
        return
    if run is None:
        raise click.UsageError("name a RUN, or add --check to validate all of them")
    spec = config.runs.get(run)
    if spec is None:
        raise ConfigError(
            f"there is no run {run!r}", where=source, fix=f"take one of {', '.join(config.runs)}"
        )
    if check:
        _report_checked([run], source, as_json)
        return
    contract = freeze(spec, RunPaths(run), datetime.now(UTC))
    if as_json:
        click.echo(json.dumps(contract.data, ensure_ascii=False))
    else:
        click.echo(f"{run}: contract {contract.digest}, {contract.table['rows']} rows")


def _override(text: str | None) -> dict[str, Any]:
    if text is None:
        return {}
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise ConfigError(f"is not JSON ({error})", where="--override") from error
    if not isinstance(value, dict):
        raise ConfigError("is not an object of keys", where="--override")
    return value


def _report_checked(runs: list[str], source: str, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps({"valid": True, "runs": runs}))
    else:
        click.echo(f"{source}: valid ({', '.join(runs)})")
