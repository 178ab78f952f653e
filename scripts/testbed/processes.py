"""Start daemons, remember them by pid and start time, and end only those."""

import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from .layout import MARKER_VARIABLE, Layout

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
DROPPED = (
    "SLURM",
    "SBATCH",
    "SRUN",
    "SALLOC",
    "SQUEUE",
    "SINFO",
    "SACCT",
    "SCANCEL",
    "SPRIO",
    "MUNGE",
)


@dataclass(frozen=True)
class Process:
    """One process; start_ticks tells it from a later one with the same pid."""

    pid: int
    start_ticks: int


def clean_environment() -> dict[str, str]:
    """Return this environment without what steers Slurm's commands elsewhere, and with /usr/sbin."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(DROPPED)}
    kept["PATH"] = "/usr/sbin:/usr/bin:/sbin:/bin"
    kept["LC_ALL"] = "C.UTF-8"
    return kept


def find_process(pid: int) -> Process | None:
    """Return the live process of that pid, or None when there is none or only its remains."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] in "ZX" else Process(pid, int(fields[19]))


def spawn(layout: Layout, name: str, argv: list[str]) -> Process:
    """Start a daemon in the foreground of a session of its own; its output goes to log/NAME.out."""
    environment = clean_environment() | {MARKER_VARIABLE: f"{layout.state}:{name}"}
    with (layout.log / f"{name}.out").open("ab") as output:
        child = subprocess.Popen(
            argv,
            cwd=layout.state,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    process = find_process(child.pid) or Process(child.pid, 0)
    write_record(layout, name, process)
    return process


def write_record(layout: Layout, name: str, process: Process) -> None:
    record = layout.record(name)
    temporary = record.with_suffix(".tmp")
    values = {"pid": process.pid, "start_ticks": process.start_ticks, "boot_id": boot_id()}
    temporary.write_text(json.dumps(values) + "\n")
    temporary.replace(record)


def boot_id() -> str:
    return BOOT_ID.read_text().strip()


def recorded(layout: Layout, name: str) -> Process | None:
    """Return the daemon of that name that we started, if it still runs."""
    try:
        values = json.loads(layout.record(name).read_text())
    except (FileNotFoundError, json.JSONDecodeError):
        return None
    if values["boot_id"] != boot_id():
        return None
    process = find_process(values["pid"])
    return process if process and process.start_ticks == values["start_ticks"] else None


def marked(layout: Layout, suffix: str = "") -> list[Process]:
    """Return the processes that carry our mark in their environment.

    That finds a daemon whose record was not written in time. It does not find slurmstepd, which writes its title over
    its environment: cgroups.processes_of does.
    """
    wanted = f"{MARKER_VARIABLE}={layout.state}:{suffix}".encode()
    found = []
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit() or int(folder.name) == os.getpid():
            continue
        with suppress(OSError):
            variables = (folder / "environ").read_bytes().split(b"\0")
            ours = wanted in variables if suffix else any(v.startswith(wanted) for v in variables)
            process = find_process(int(folder.name)) if ours else None
            if process:
                found.append(process)
    return found


def end(process: Process, *, patience_s: float = 10.0) -> None:
    """Send TERM, wait, then KILL. The pidfd makes sure that no later process of that pid is hit."""
    send(process, signal.SIGTERM)
    if not wait_gone([process], patience_s):
        kill([process])


def kill(processes: Iterable[Process]) -> None:
    """Send KILL to each and wait until they are gone."""
    targets = list(processes)
    for process in targets:
        send(process, signal.SIGKILL)
    wait_gone(targets, 10.0)


def send(process: Process, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        descriptor = os.pidfd_open(process.pid)
        try:
            if find_process(process.pid) == process:
                signal.pidfd_send_signal(descriptor, number)
        finally:
            os.close(descriptor)


def wait_gone(processes: Iterable[Process], patience_s: float) -> bool:
    """Wait until every one has ended; False when one still runs after patience_s."""
    deadline = time.monotonic() + patience_s
    for process in processes:
        with suppress(ProcessLookupError):
            descriptor = os.pidfd_open(process.pid)
            try:
                if find_process(process.pid) == process:
                    left_s = max(0.0, deadline - time.monotonic())
                    if not select.select([descriptor], [], [], left_s)[0]:
                        return False
            finally:
                os.close(descriptor)
    return True
