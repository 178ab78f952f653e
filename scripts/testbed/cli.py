"""The command line of scripts/slurm-testbed."""

import argparse
import json
import sys
import time
from dataclasses import asdict

from . import cluster, daemons, status
from .layout import DEFAULT_STATE, NODES, Layout, TestbedError, layout_of

EPILOG = """exit codes: 0 done (status: up) · 1 failed (status: not up) · 2 usage ·
3 this machine cannot or must not carry it; nothing was changed

The cluster: nodes n1 to n4 with 4 CPUs, 4 GPUs (files) and 4000 MB each; partitions main (default), short (at most
one minute), cancel (preempted jobs are cancelled, with --qos=cancellable); QOS normal, low, cancellable, limited, high;
accounts physics (3 shares) and chemistry (1)."""


def main() -> int:
    arguments = parser().parse_args()
    try:
        layout = layout_of(arguments.state)
        return int(arguments.action(layout, arguments))
    except TestbedError as error:
        print(f"slurm-testbed: {error}", file=sys.stderr)
        return error.exit_code


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="slurm-testbed",
        description="A real Slurm cluster of four nodes on this machine, for tests and for trying out.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument(
        "--state", metavar="DIR", help=f"where everything is kept (default {DEFAULT_STATE})"
    )
    verbs = top.add_subparsers(required=True, metavar="COMMAND")
    verb = verbs.add_parser("up", help="install what is missing and start whatever does not run")
    verb.add_argument(
        "--no-install", action="store_true", help="install nothing; say what is missing"
    )
    verb.set_defaults(action=run_up)
    verb = verbs.add_parser("down", help="end what up started and put /etc/slurm back")
    verb.add_argument(
        "--keep", action="store_true", help="keep the state folder: logs, jobs, database"
    )
    verb.set_defaults(action=run_down)
    verb = verbs.add_parser("status", help="what runs")
    verb.add_argument("--json", action="store_true", help="as JSON")
    verb.set_defaults(action=run_status)
    verb = verbs.add_parser(
        "kill-node", help="kill a node's slurmd and all its jobs, as a power cut does"
    )
    verb.add_argument("node", choices=NODES)
    verb.set_defaults(action=run_kill_node)
    verb = verbs.add_parser("start-node", help="start the node's slurmd again")
    verb.add_argument("daemon", choices=NODES, metavar="node")
    verb.set_defaults(action=run_start)
    for name, action in (("stop", run_stop), ("start", run_start)):
        verb = verbs.add_parser(name, help=f"{name} one daemon, as a maintenance does")
        verb.add_argument("daemon", choices=("slurmdbd", "slurmctld"))
        verb.set_defaults(action=action)
    return top


BEGAN = time.monotonic()


def say(text: str) -> None:
    print(f"slurm-testbed: {time.monotonic() - BEGAN:5.1f} s  {text}", file=sys.stderr)


def run_up(layout: Layout, arguments: argparse.Namespace) -> int:
    with cluster.locked():
        cluster.up(layout, may_install=not arguments.no_install, say=say)
    say(f"up; logs in {layout.log}; try: sinfo")
    return 0


def run_down(layout: Layout, arguments: argparse.Namespace) -> int:
    with cluster.locked():
        was_there = cluster.down(layout, keep=arguments.keep)
    say("down" if was_there else "nothing to end")
    return 0


def run_status(layout: Layout, arguments: argparse.Namespace) -> int:
    found = status.collect(layout)
    print(json.dumps(asdict(found), indent=2) if arguments.json else status.table(found))
    return 0 if found.up else 1


def run_kill_node(layout: Layout, arguments: argparse.Namespace) -> int:
    with cluster.locked():
        count = daemons.kill_node(layout, arguments.node)
    say(f"{arguments.node}: killed {count} processes")
    return 0


def run_stop(layout: Layout, arguments: argparse.Namespace) -> int:
    with cluster.locked():
        ran = daemons.stop(layout, arguments.daemon)
    say(f"{arguments.daemon}: {'stopped' if ran else 'was not running'}")
    return 0


def run_start(layout: Layout, arguments: argparse.Namespace) -> int:
    with cluster.locked():
        cluster.start_one(layout, arguments.daemon)
    say(f"{arguments.daemon}: runs")
    return 0
