"""`milepost why`: why a job waits, where it runs, or how it ended; the same for a shard."""

from __future__ import annotations

import json
from pathlib import Path

import click

from milepost.cli.options import json_option, root_option
from milepost.errors import ConfigError


@click.command(short_help="why a job or shard waits, runs or ended, and what to do")
@click.argument("what", nargs=-1, required=True, metavar="JOBID | RUN/SHARD | RUN SHARD")
@root_option
@json_option
def command(what: tuple[str, ...], root: Path, as_json: bool) -> None:
    """Tell why a Slurm job or a shard stands where it stands, and what to do about it.

    A waiting job: the reason in plain words, whether waiting helps, and the command that helps;
    a running one: where, how long, its last sign of work; an ended one: each attempt, its exit
    code and its cause. Witnesses that do not answer are named. Reads only; exit code 0.
    """
    from milepost.evidence.why import why_job, why_shard
    from milepost.evidence.why_json import as_json as plain
    from milepost.evidence.why_text import told
    from milepost.paths import RunPaths

    shard = _shard(what, root)
    story = (
        why_job(what[0], root) if shard is None else why_shard(RunPaths(shard[0], root), shard[1])
    )
    click.echo(json.dumps(plain(story), indent=2) if as_json else told(story))


def _shard(what: tuple[str, ...], root: Path) -> tuple[str, str] | None:
    """Run and shard, or None for a job id. A number with a leading zero is a shard of some run."""
    if len(what) == 2:
        return what[0], what[1]
    if len(what) > 2:
        raise ConfigError(f"too many words: {' '.join(what)}", fix="give JOBID, or RUN and SHARD")
    run, slash, name = what[0].partition("/")
    if slash:
        return run, name
    if what[0].startswith("0") and what[0].isdigit():
        return _only_run(what[0], root), what[0]
    if what[0][:1].isdigit():
        return None
    raise ConfigError(
        f"{what[0]!r} is neither a job id nor a shard",
        fix=f"give a number such as 4711, or a shard such as {what[0]}/0001",
    )


def _only_run(name: str, root: Path) -> str:
    """The run here that has a shard of this name."""
    runs = sorted(path.parts[-3] for path in root.glob(f"work/*/shards/{name}"))
    if len(runs) == 1:
        return runs[0]
    which = "no run here has" if not runs else f"{', '.join(runs)} have"
    raise ConfigError(f"{which} a shard {name}", fix=f"name the run, too: RUN/{name}")
