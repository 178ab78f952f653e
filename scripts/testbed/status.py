"""What runs, as a table or as JSON."""

from dataclasses import asdict, dataclass

from . import processes
from .commands import ask
from .daemons import ORDER, is_ready
from .layout import NODES, PORTS, Layout


@dataclass(frozen=True)
class DaemonStatus:
    """One daemon; pid and port are None where there is none."""

    name: str
    pid: int | None
    port: int | None
    answers: bool


@dataclass(frozen=True)
class NodeStatus:
    """One node as sinfo sees it; None while slurmctld is not heard."""

    name: str
    state: str | None
    cpus_allocated: int | None
    cpus: int | None


@dataclass(frozen=True)
class Status:
    """The whole testbed; up means that every daemon answers."""

    state_folder: str
    up: bool
    daemons: list[DaemonStatus]
    nodes: list[NodeStatus]
    jobs: dict[str, int] | None


def collect(layout: Layout) -> Status:
    """Ask every daemon; a daemon that does not run is not asked."""
    found = [daemon_status(layout, name) for name in ORDER]
    controller = next(daemon for daemon in found if daemon.name == "slurmctld")
    nodes = node_table() if controller.answers else {}
    empty = NodeStatus("", None, None, None)
    return Status(
        state_folder=str(layout.state),
        up=all(daemon.answers for daemon in found),
        daemons=found,
        nodes=[
            nodes.get(node) or NodeStatus(node, *list(asdict(empty).values())[1:]) for node in NODES
        ],
        jobs=job_counts() if controller.answers else None,
    )


def daemon_status(layout: Layout, name: str) -> DaemonStatus:
    process = processes.recorded(layout, name)
    port = PORTS.get(name)
    return DaemonStatus(
        name, process.pid if process else None, port, bool(process) and is_ready(layout, name)
    )


def node_table() -> dict[str, NodeStatus]:
    answer = ask("sinfo", "-h", "-N", "-p", "main", "-o", "%N %T %C")
    table = {}
    for line in answer.stdout.splitlines():
        name, state, counts = line.split()
        allocated, _, _, total = counts.split("/")
        table[name] = NodeStatus(name, state, int(allocated), int(total))
    return table


def job_counts() -> dict[str, int] | None:
    answer = ask("squeue", "-h", "-o", "%T")
    if answer.returncode != 0:
        return None
    states = answer.stdout.split()
    return {state.lower(): states.count(state) for state in sorted(set(states))}


def table(status: Status) -> str:
    """Return the status for people."""
    lines = [f"{'daemon':<10} {'pid':>8} {'port':>6}  state"]
    for daemon in status.daemons:
        word = "answers" if daemon.answers else "silent" if daemon.pid else "not running"
        lines.append(f"{daemon.name:<10} {daemon.pid or '-':>8} {daemon.port or '-':>6}  {word}")
    lines += ["", f"{'node':<10} {'CPUs in use':>15}  state"]
    for node in status.nodes:
        used = "-" if node.cpus is None else f"{node.cpus_allocated} of {node.cpus}"
        lines.append(f"{node.name:<10} {used:>15}  {node.state or 'not heard'}")
    jobs = "not heard" if status.jobs is None else "none"
    if status.jobs:
        jobs = ", ".join(f"{count} {state}" for state, count in status.jobs.items())
    word = "up" if status.up else "partly up" if any(d.pid for d in status.daemons) else "down"
    return "\n".join([*lines, "", f"jobs: {jobs}", f"testbed in {status.state_folder}: {word}"])
