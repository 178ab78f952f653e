"""Bring the cluster up and take it down."""

import fcntl
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from . import accounting, cgroups, daemons, etc_slurm, files, packages, processes
from .layout import LOCK, NODES, Layout, TestbedError, Unavailable

Say = Callable[[str], None]


@contextmanager
def locked() -> Iterator[None]:
    """Let one command at a time change a testbed of this machine; another one waits."""
    require_root()
    with LOCK.open("w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield


def require_root() -> None:
    if os.geteuid() != 0:
        raise Unavailable(
            "only root can start slurmd and limit memory. Use: sudo scripts/slurm-testbed …"
        )


def up(layout: Layout, *, may_install: bool, say: Say) -> None:
    """Start whatever does not run; harmless when all of it does. Raises Unavailable, TestbedError."""
    etc_slurm.check_free(layout)
    daemons.check_no_foreign_slurm(layout)
    check_network()
    version = cgroups.mounted_version()
    cgroups.check_writable(version)
    if packages.missing_programs():
        say("installing packages (once; about a minute) ...")
        say(f"installed {', '.join(packages.install_missing(allowed=may_install))}")
    if version == 2:
        packages.check_unified_support()
        cgroups.prepare_v2()
    files.make_state(layout)
    if not any(processes.recorded(layout, name) for name in daemons.ORDER):
        daemons.end_all(layout)  # remains of a testbed whose daemons were killed
    files.write_configuration(layout, version)
    etc_slurm.install(layout)
    start_daemons(layout, say)


def check_network() -> None:
    """Raise Unavailable when Slurm could not even look up 127.0.0.1: its look-up skips unused address families."""
    try:
        socket.getaddrinfo("127.0.0.1", 1, family=socket.AF_INET, flags=socket.AI_ADDRCONFIG)
    except socket.gaierror as error:
        raise Unavailable(
            "this machine has no network address but loopback, and Slurm then finds none at all. "
            "Give it one: ip address add 192.0.2.1/32 dev lo"
        ) from error


def start_daemons(layout: Layout, say: Say) -> None:
    for name in ("munged", "mariadbd", "slurmdbd"):
        start_and_wait(layout, name, say)
    accounting.set_up(layout)
    start_and_wait(layout, "slurmctld", say)
    fresh = [node for node in NODES if daemons.start(layout, node)]
    if fresh:
        say(f"starting slurmd on {', '.join(fresh)}")
    for node in NODES:
        daemons.wait_ready(layout, node)


def start_and_wait(layout: Layout, name: str, say: Say) -> None:
    if not processes.recorded(layout, name):
        say(f"starting {name}")
        daemons.start(layout, name)
    daemons.wait_ready(layout, name)


def down(layout: Layout, *, keep: bool) -> bool:
    """End everything, put /etc/slurm back, remove the state folder; False when there was nothing."""
    if not layout.is_ours():
        etc_slurm.restore(layout)
        return False
    daemons.end_all(layout)
    etc_slurm.restore(layout)
    if not keep:
        files.remove_state(layout)
    return True


def start_one(layout: Layout, name: str) -> None:
    """Start one daemon again and wait until it answers."""
    if not layout.is_ours() or etc_slurm.linked_state() != layout.state:
        raise TestbedError("the testbed is not up. Start it with: scripts/slurm-testbed up")
    daemons.start(layout, name)
    daemons.wait_ready(layout, name)
