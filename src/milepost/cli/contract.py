"""`milepost contract`: validate a run's configuration and freeze it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from milepost.errors import ConfigError

if TYPE_CHECKING:
    from milepost.config.load import Config
    from milepost.config.spec import RunSpec

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
    from milepost.config.freeze import freeze
    from milepost.config.load import load_config, parse_config
    from milepost.paths import RunPaths

    files = files or (DEFAULT,)
    config = parse_config(load_config(files, _override(override)), files)
    chosen = _choose(config, run, ", ".join(map(str, files)))
    if check:
        _check(chosen, as_json)
        return
    if run is None:
        raise click.UsageError("name a RUN, or add --check to validate all of them")
    contract = freeze(chosen[run], RunPaths(run), datetime.now(UTC))
    if as_json:
        click.echo(json.dumps(contract.data, ensure_ascii=False))
    else:
        click.echo(f"{run}: contract {contract.digest}, {contract.table['rows']} rows")


def _choose(config: Config, run: str | None, source: str) -> Mapping[str, RunSpec]:
    """All runs, or the one that is named."""
    if run is None:
        return config.runs
    if run not in config.runs:
        from milepost.config.schema import neighbour

        raise ConfigError(
            f"there is no run {run!r}; {neighbour(run, config.runs)}",
            where=source,
            fix="mend the name, or name another file with --config",
        )
    return {run: config.runs[run]}


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


def _check(runs: Mapping[str, RunSpec], as_json: bool) -> None:
    """Read the whole table of each run, and say how many rows it has; None: not there yet."""
    rows = {name: _rows(spec) for name, spec in runs.items()}
    if as_json:
        click.echo(json.dumps({"valid": True, "rows": rows}))
    for name, count in rows.items() if not as_json else ():
        given = f"the table comes from {', '.join(runs[name].needs)}"
        click.echo(f"{name}: valid, {given if count is None else f'{count} rows'}")


def _rows(spec: RunSpec) -> int | None:
    from milepost.config.needs import awaits
    from milepost.config.tasks import read_tasks

    if awaits(spec.work.table, spec.needs, Path(".")):
        return None
    return len(read_tasks(Path(spec.work.table), spec))
