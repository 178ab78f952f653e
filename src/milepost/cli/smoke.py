"""`milepost smoke`: kill and resume a small slice, compare, and measure."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import click

from milepost.cli.options import json_option, root_option
from milepost.errors import Refused
from milepost.launch.smoke import smoke
from milepost.paths import RunPaths


@click.command("smoke")
@click.argument("run")
@root_option
@json_option
def command(run: str, root: Path, as_json: bool) -> None:
    """Run the smoke test of RUN; exit 20 when the gate stays shut."""
    paths = RunPaths(run, root)
    record = smoke(paths, lambda text: print(f"[{run} smoke] {text}", file=sys.stderr, flush=True))
    if as_json:
        print(json.dumps(record))
    else:
        print(_summary(record), flush=True)
    if not record["passed"]:
        raise Refused(
            record["reason"],
            where=paths.smoke,
            fix="mend that, then run the same command again; nothing was launched",
        )


def _summary(record: dict[str, Any]) -> str:
    verdict = "passed" if record["passed"] else "FAILED"
    lines = [f"{record['run']}: smoke test {verdict}, {record['slice']['tasks']} rows"]
    killed, control, measured = record["killed"], record["control"], record["measured"]
    if killed:
        lines.append(f"  killed by SIG{killed['signal']} after {killed['after']}, then resumed")
    if control and control["metric"] != "artifacts and result":
        sign = "=" if control["equal"] else "!="
        lines.append(
            f"  {control['metric']}: resumed {control['resumed']} {sign} "
            f"undisturbed {control['undisturbed']}"
        )
    if measured["task_s"]:
        lines.append(f"  a task takes {measured['task_s']['median']:.3g} s (median)")
    if measured["t_ckpt_s"]:
        lines.append(
            f"  a checkpoint blocks {measured['t_ckpt_s']['median'] * 1000:.3g} ms "
            f"for {measured['ckpt_bytes'] / 1e6:.3g} MB"
        )
    return "\n".join(lines)
