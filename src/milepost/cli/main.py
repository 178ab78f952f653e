"""Entry point of `milepost`: finds the subcommand, turns errors into messages and exit codes."""

from __future__ import annotations

import difflib
import importlib
import os
import sys
from pathlib import Path
from typing import TextIO

import click

from milepost import __version__
from milepost.errors import MilepostError

VERBS: dict[str, str] = {
    "contract": "validate a run's configuration and freeze it",
    "smoke": "kill and resume a small slice, compare, and measure",
    "plan": "choose interval, shard size, walltime, profile and mode",
    "simulate": "play a run against failures, preemptions and walltimes",
    "preflight": "the pre-production checklist, with evidence",
    "submit": "pass the gate and freeze the shard table",
    "shard": "run or resume one shard until its artifacts are verified",
    "upload": "prove that what must outlive the node is in its tier",
    "reconcile": "evidence and verdict for every shard, at any time",
    "closeout": "the run's verdict, report and records",
    "status": "what is done, running and failed, on one screen",
    "why": "why a job or shard waits, runs or ended, and what to do",
    "doctor": "from a run's symptoms to cause and remedy",
    "shell": "an interactive allocation with a shard's resources and environment",
    "ckpt": "list, show, verify, restore and prune checkpoints",
    "attend": "look after this folder's Slurm jobs while a head runs",
    "classify": "name the failure in a log, with the lines that prove it",
    "public": "tell what would leak from a text",
}
"""Verb -> one line of help. The module of verb `x-y` is `milepost.cli.x_y`; it holds `command`."""


class LazyGroup(click.Group):
    """A group that imports a subcommand's module on use, so that each verb starts quickly."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        module = importlib.import_module(f"milepost.cli.{cmd_name.replace('-', '_')}")
        command: click.Command = module.command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """A misspelt verb is named with its nearest neighbour."""
        if args and not args[0].startswith("-") and args[0] not in VERBS:
            near = difflib.get_close_matches(args[0], VERBS, 1)
            hint = f"; did you mean {near[0]!r}?" if near else "; see milepost --help"
            ctx.fail(f"there is no verb {args[0]!r}{hint}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(VERBS.items()))


@click.command(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="milepost")
@click.option(
    "--log", type=click.Path(path_type=Path), help="Also append what goes to stderr here."
)
def cli(log: Path | None) -> None:
    """Take a workload from a launch contract to an evidence-based closeout."""
    if log is not None:
        log.parent.mkdir(parents=True, exist_ok=True)
        sys.stderr = Tee(sys.stderr, log)


class Tee:
    """stderr, and the same text at the end of a file."""

    def __init__(self, stream: TextIO, log: Path) -> None:
        self._stream = stream
        self._log = log.open("a", encoding="utf-8", buffering=1)

    def write(self, text: str) -> int:
        self._log.write(text)
        return self._stream.write(text)

    def flush(self) -> None:
        self._log.flush()
        self._stream.flush()

    def fileno(self) -> int:
        return self._stream.fileno()

    def isatty(self) -> bool:
        return self._stream.isatty()


def main() -> None:
    """Run the command line; a MilepostError becomes its message and its exit code."""
    try:
        code = cli.main(standalone_mode=False)
    except click.exceptions.Exit as stop:
        code = stop.exit_code
    except click.ClickException as error:
        error.show()
        code = 2
    except click.Abort:
        code = 130
    except MilepostError as error:
        print(f"milepost: {error}", file=sys.stderr)
        for note in getattr(error, "__notes__", ()):
            print(f"  note: {note}", file=sys.stderr)
        code = error.exit_code
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 1
    sys.exit(code if isinstance(code, int) else 0)


if __name__ == "__main__":
    main()
