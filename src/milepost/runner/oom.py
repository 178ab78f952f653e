"""Did the kernel kill a process of this job for want of memory? The control groups count it.

A process that ends by SIGKILL cannot say who killed it, and a script may hide the end of a child.
The kernel counts such kills: `oom_kill` in memory.events (unified hierarchy, where a kill also
counts in all groups above) or in memory.oom_control (legacy, only in the victim's own group).
Sources: Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/memory.rst of Linux.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from milepost.model import Action, FailureClass, Finding

KILLED = (-9, 137)
"""Ended by SIGKILL, or a shell's word for it."""
_JOB = "job_"
"""Slurm's group of a job is called `job_<id>`; what is above it counts other jobs, too."""


class OomCounter:
    """Counts kills in the groups of this process: its own, the step's and the job's.

    `known` is the count at the last look, None where the kernel does not tell.
    """

    def __init__(self, files: Iterable[Path] | None = None) -> None:
        self._files = tuple(counter_files() if files is None else files)
        self.known = self._count()

    def rose_since(self, before: int | None) -> int | None:
        """How many more kills there were than `before`, an earlier value of `known`.

        None where the kernel does not tell.
        """
        self.known = self._count()
        return None if self.known is None or before is None else max(0, self.known - before)

    def _count(self) -> int | None:
        counts = [count for path in self._files if (count := _kills(path)) is not None]
        return sum(counts) if counts else None


def counter_files(proc: Path = Path("/proc/self")) -> list[Path]:
    """The files that count kills, from this process's own group up to its job's group."""
    try:
        groups = (proc / "cgroup").read_text(encoding="utf-8").splitlines()
        mounts = (proc / "mountinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return []  # not a Linux with control groups
    for line in groups:
        number, controllers, group = line.split(":", 2)
        if number == "0" and not controllers:
            name, wanted = "memory.events", ("cgroup2", "")
        elif "memory" in controllers.split(","):
            name, wanted = "memory.oom_control", ("cgroup", "memory")
        else:
            continue
        files = [folder / name for folder in _folders(mounts, wanted, group)]
        found = [path for path in files if path.is_file()]
        if found:
            return found
    return []


def _folders(mounts: Iterable[str], wanted: tuple[str, str], group: str) -> list[Path]:
    """Folders of the group and of those above it, up to the job's; only its own without a job."""
    kind, controller = wanted
    for line in mounts:
        left, _, right = line.partition(" - ")
        root, point = left.split()[3:5]
        words = right.split()
        if words[0] != kind or (controller and controller not in words[-1].split(",")):
            continue
        inside = group if root == "/" else group.removeprefix(root)
        own = Path(point) / inside.lstrip("/")
        above = [own, *own.parents]
        ends = [n for n, folder in enumerate(above) if folder.name.startswith(_JOB)]
        return above[: ends[0] + 1] if ends else above[:1]
    return []


def _kills(path: Path) -> int | None:
    try:
        lines = path.read_text(encoding="ascii").splitlines()
    except OSError:
        return None  # the group is gone, or may not be read
    counts = [line.split()[1] for line in lines if line.startswith("oom_kill ")]
    return int(counts[0]) if counts else None


def killed_finding(exit_code: int) -> Finding:
    """The finding for a process that ended by SIGKILL, but not for want of memory."""
    evidence = (
        f"exit code {exit_code}",
        "the kernel counted no kill for want of memory (oom_kill)",
    )
    return Finding(FailureClass.RUNTIME, "killed", Action.RETRY_SAME, evidence, confidence=0.7)


def oom_finding(kills: int, exit_code: int) -> Finding:
    """The finding for work of which the kernel killed processes for want of memory."""
    evidence = (
        f"exit code {exit_code}",
        f"the kernel killed {kills} of the job's processes for want of memory (oom_kill)",
    )
    return Finding(
        FailureClass.RUNTIME, "host_oom", Action.RETRY_MORE_MEMORY, evidence, confidence=0.95
    )
