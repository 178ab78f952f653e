"""The eight daemons: how each is started, when it is ready, how it ends."""

import re
import shutil
import socket
from contextlib import suppress
from pathlib import Path

from . import cgroups, processes
from .commands import ask, demand, wait_until
from .layout import NODES, PORTS, Layout, TestbedError, Unavailable
from .packages import SEARCH_PATH

ORDER = ("munged", "mariadbd", "slurmdbd", "slurmctld", *NODES)
FOREIGN = ("slurmctld", "slurmd", "slurmdbd", "slurmstepd")
LOG_TAIL_LINES = 5


def program(name: str) -> str:
    path = shutil.which(name, path=SEARCH_PATH)
    if path is None:
        raise TestbedError(f"{name}: not found in {SEARCH_PATH}")
    return path


def argv_of(layout: Layout, name: str) -> list[str]:
    """Return the command line of a daemon that stays in the foreground."""
    if name == "munged":
        return [
            program("munged"),
            "--foreground",
            f"--key-file={layout.munge_key}",
            f"--socket={layout.munge_socket}",
            f"--pid-file={layout.run / 'munged.pid'}",
            f"--seed-file={layout.munge_key.with_name('seed')}",
            f"--log-file={layout.munge_key.with_name('munged.log')}",
            "--force",
        ]
    if name == "mariadbd":
        options = [
            f"--defaults-file={layout.etc / 'mariadb.cnf'}",
            f"--init-file={layout.etc / 'database.sql'}",
        ]
        return [program("mariadbd"), *options]
    if name in NODES:
        return [program("slurmd"), "-D", "-N", name]
    return [program(name), "-D"]


def make_database(layout: Layout) -> None:
    """Make the data folder of MariaDB once; a half-made one is made anew."""
    done = layout.database / "milepost-made"
    if done.exists():
        return
    if layout.database.exists():
        shutil.rmtree(layout.database)
    demand(
        program("mariadb-install-db"),
        f"--defaults-file={layout.etc / 'mariadb.cnf'}",
        "--user=root",
        f"--datadir={layout.database}",
        "--auth-root-authentication-method=socket",
        "--skip-test-db",
        timeout_s=120.0,
    )
    done.touch()


def start(layout: Layout, name: str) -> bool:
    """Start the daemon unless it runs; True when it was started. Does not wait until it is ready."""
    if processes.recorded(layout, name):
        return False
    if name == "munged":
        layout.munge_socket.unlink(missing_ok=True)
    if name == "mariadbd":
        make_database(layout)
    check_port(name)
    processes.spawn(layout, name, argv_of(layout, name))
    return True


def check_port(name: str) -> None:
    """Raise TestbedError when another program holds the daemon's port."""
    if name in PORTS and is_listening(PORTS[name]):
        raise TestbedError(
            f"port {PORTS[name]}, meant for {name}: another program listens there. "
            f"Find it with: ss -ltnp sport = :{PORTS[name]}"
        )


def is_listening(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1.0):
        return True
    return False


def is_ready(layout: Layout, name: str) -> bool:
    """Tell whether the daemon answers, not only whether it runs."""
    if name == "munged":
        return ask("munge", "-n", f"--socket={layout.munge_socket}").returncode == 0
    if name == "mariadbd":
        return is_listening(PORTS[name])
    if name == "slurmdbd":
        return is_listening(PORTS[name]) and ask("sacctmgr", "-n", "show", "qos").returncode == 0
    if name == "slurmctld":
        return (
            is_listening(PORTS[name]) and " is UP" in ask("scontrol", "ping", timeout_s=5.0).stdout
        )
    return is_node_up(name)


def is_node_up(node: str) -> bool:
    answer = ask("scontrol", "-o", "show", "node", node, timeout_s=5.0)
    state = re.search(r" State=(\S+)", answer.stdout)
    return state is not None and not re.search(r"DOWN|UNKNOWN|NOT_RESPONDING|INVAL|\*", state[1])


def wait_ready(layout: Layout, name: str, patience_s: float = 60.0) -> None:
    """Wait for the daemon. Raises TestbedError with the end of its log."""

    def settled() -> bool:
        return processes.recorded(layout, name) is None or is_ready(layout, name)

    in_time = wait_until(settled, patience_s)
    if processes.recorded(layout, name) is None:
        raise TestbedError(f"{name}: ended while starting.\n{log_tail(layout, name)}")
    if not in_time:
        raise TestbedError(f"{name}: not ready after {patience_s:.0f} s.\n{log_tail(layout, name)}")


def log_tail(layout: Layout, name: str) -> str:
    log = layout.log / (f"slurmd.{name}.log" if name in NODES else f"{name}.log")
    text = []
    for path in (log, layout.log / f"{name}.out", layout.munge_key.with_name(f"{name}.log")):
        if path.exists():
            lines = path.read_text(errors="replace").splitlines()[-LOG_TAIL_LINES:]
            text += [f"  {path}:", *(f"    {line}" for line in lines)]
    return "\n".join(text)


def stop(layout: Layout, name: str) -> bool:
    """End the daemon, if it is ours and runs; True when it ran."""
    process = processes.recorded(layout, name)
    if process is not None:
        processes.end(process)
    layout.record(name).unlink(missing_ok=True)
    return process is not None


def kill_node(layout: Layout, node: str) -> int:
    """Kill slurmd, its step daemons and all processes of its jobs, as a power cut does; their number."""
    count = 0
    for _ in range(3):  # a step that was just starting shows up in the second look
        victims = set(processes.marked(layout, node)) | set(cgroups.processes_of(node))
        daemon = processes.recorded(layout, node)
        victims |= {daemon} if daemon else set()
        if not victims:
            break
        processes.kill(victims)
        count += len(victims)
    layout.record(node).unlink(missing_ok=True)
    return count


def end_all(layout: Layout) -> None:
    """End everything that this testbed started, the nodes first; idempotent."""
    for node in NODES:
        kill_node(layout, node)
    for name in reversed(ORDER):
        stop(layout, name)
    processes.kill(processes.marked(layout))
    cgroups.remove_groups()


def check_no_foreign_slurm(layout: Layout) -> None:
    """Raise Unavailable when a Slurm daemon runs here that is not ours."""
    ours = set(processes.marked(layout))
    if layout.is_ours():
        ours |= {process for node in NODES for process in cgroups.processes_of(node)}
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        with suppress(OSError):
            name = (folder / "comm").read_text().strip()
            process = processes.find_process(int(folder.name))
            if name in FOREIGN and process and process not in ours:
                raise Unavailable(
                    f"{name} with pid {folder.name} runs here and is not the testbed's: this machine belongs "
                    "to a Slurm cluster. Nothing was changed. Use a machine or container without Slurm."
                )
