"""`milepost attend`: look after the jobs of this folder while a head runs."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from pathlib import Path

import click

from milepost.launch.attend import Attendant

PR_SET_PDEATHSIG = 1


@click.command("attend")
@click.option(
    "--with-parent", is_flag=True, help="End when the process that started this one ends."
)
def command(with_parent: bool) -> None:
    """Requeue jobs of this folder that were preempted and cancelled before they could do so.

    The workflow starts it by itself on a cluster; by hand it serves a head of another kind.
    """
    if with_parent:
        parent = os.getppid()
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:
            return
    attendant = Attendant(Path("."), lambda text: print(f"milepost: {text}", file=sys.stderr))
    attendant.attend()
