"""Control groups, legacy (v1) or unified (v2): which is mounted, who is inside, what is left over."""

import os
from contextlib import suppress
from pathlib import Path

from .layout import NODES, Unavailable
from .processes import Process, find_process

ROOT = Path("/sys/fs/cgroup")
V1_CONTROLLERS = ("memory", "freezer", "cpuacct")
V2_CONTROLLERS = ("memory", "cpu", "cpuset", "pids")


def mounted_version(mounts: str | None = None) -> int:
    """Return 1 or 2: the hierarchy that holds the memory controller. Raises Unavailable."""
    lines = (mounts if mounts is not None else Path("/proc/mounts").read_text()).splitlines()
    fields = [line.split() for line in lines]
    if any(point == str(ROOT) and kind == "cgroup2" for _, point, kind, *_ in fields):
        return 2
    legacy = {point for _, point, kind, *_ in fields if kind == "cgroup"}
    missing = [name for name in V1_CONTROLLERS if str(ROOT / name) not in legacy]
    if missing:
        raise Unavailable(
            f"{ROOT}: no unified hierarchy, and the legacy one lacks {', '.join(missing)}. "
            "Slurm cannot limit memory here; in a container, start it with --privileged."
        )
    return 1


def check_writable(version: int) -> None:
    """Raise Unavailable when no group can be made, as in a container without privileges."""
    parents = [ROOT] if version == 2 else [ROOT / name for name in V1_CONTROLLERS]
    for parent in parents:
        probe = parent / f"milepost-probe-{os.getpid()}"
        try:
            probe.mkdir()
            probe.rmdir()
        except OSError as error:
            raise Unavailable(
                f"{parent}: no control group can be made here ({error.strerror}). "
                "In a container, start it with --privileged."
            ) from error


def prepare_v2() -> None:
    """Hand the controllers down to where slurmd puts its steps. Raises Unavailable."""
    offered = (ROOT / "cgroup.controllers").read_text().split()
    if "memory" not in offered:
        raise Unavailable(
            f"{ROOT}: the memory controller is not offered (there: {' '.join(offered)})."
        )
    slice_ = ROOT / "system.slice"
    slice_.mkdir(exist_ok=True)
    for folder in (ROOT, slice_):
        for name in (name for name in V2_CONTROLLERS if name in offered):
            try:
                (folder / "cgroup.subtree_control").write_text(f"+{name}")
            except OSError as error:
                raise Unavailable(
                    f"{folder}: the controller {name} cannot be handed down ({error.strerror}). In a "
                    "container, start it with --cgroupns=host or move its processes to a leaf first."
                ) from error


def groups_of(node: str) -> list[Path]:
    """Return the top groups that the slurmd of this node makes, in every hierarchy that has one."""
    legacy = [folder / f"slurm_{node}" for folder in ROOT.iterdir() if folder.is_dir()]
    unified = [ROOT / "system.slice" / f"{node}_slurmstepd.scope"]
    return [group for group in legacy + unified if group.is_dir()]


def processes_of(node: str) -> list[Process]:
    """Return the processes of this node's jobs."""
    pids: set[int] = set()
    for group in groups_of(node):
        for members in group.rglob("cgroup.procs"):
            with suppress(OSError):
                pids.update(int(word) for word in members.read_text().split())
    return [process for pid in sorted(pids) if (process := find_process(pid))]


def remove_groups() -> None:
    """Remove the empty groups of all nodes, innermost first."""
    for node in NODES:
        for group in groups_of(node):
            for folder, _, _ in os.walk(group, topdown=False):
                with suppress(OSError):  # one that still has a process stays, and is harmless
                    Path(folder).rmdir()
