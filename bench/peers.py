"""The peers: each runs one tiny task for every name and leaves a file as the proof.

A peer is a class with a `name`, what it remembers after a crash (`durable`), and one method. It
returns the wall seconds from the call to the last finished task, start-up included.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Protocol

WORKERS = 2


class Peer(Protocol):
    """Runs `touch place/name` for each name, WORKERS at a time.

    `scratch` is an empty folder for the peer's own files, on the file system of `place`. `run`
    raises when a task fails; `is_here` is False when the peer is not installed.
    """

    name: str
    durable: str

    def is_here(self) -> bool: ...

    def run(self, names: Sequence[str], place: Path, scratch: Path) -> float: ...


class Xargs:
    """The floor: fork, exec, wait, and nothing written down."""

    name = "xargs -P"
    durable = "nothing"

    def is_here(self) -> bool:
        return shutil.which("xargs") is not None

    def run(self, names: Sequence[str], place: Path, scratch: Path) -> float:
        command = ["xargs", "-P", str(WORKERS), "-I{}", "touch", f"{place}/{{}}"]
        return timed(command, "\n".join(names))


class GnuParallel:
    """GNU parallel with the job log from which `--resume` goes on."""

    name = "GNU parallel --joblog"
    durable = "joblog, no fsync"

    def is_here(self) -> bool:
        return shutil.which("parallel") is not None

    def run(self, names: Sequence[str], place: Path, scratch: Path) -> float:
        command = ["parallel", "--will-cite", f"-j{WORKERS}", "--joblog", str(scratch / "joblog")]
        return timed([*command, "touch", f"{place}/{{}}"], "\n".join(names))


class HyperQueue:
    """HyperQueue's server and worker in this process, as its Python package offers them.

    The package has no journal. Its client looks for the end once a second; to be fair the end is
    taken from the newest file that the tasks made. Server and worker stand before the clock
    starts, output capture is off.
    """

    name = "HyperQueue"
    durable = "nothing (journal off)"

    def is_here(self) -> bool:
        return find_spec("hyperqueue") is not None

    def run(self, names: Sequence[str], place: Path, scratch: Path) -> float:
        from hyperqueue import Job, LocalCluster
        from hyperqueue.cluster import WorkerConfig

        with quiet(), LocalCluster(str(scratch / "server"), WorkerConfig(cores=WORKERS)) as cluster:
            client = cluster.client()
            began = time.time()
            job = Job(max_fails=1)
            for name in names:
                job.program(["touch", f"{place}/{name}"], stdout=None, stderr=None)
            client.wait_for_jobs([client.submit(job)])
            newest = max(path.stat().st_mtime for path in place.iterdir())
        return newest - began


class ProcessPool:
    """The floor for callables: Python's own pool, chunks of 32, and nothing written down."""

    name = "ProcessPoolExecutor"
    durable = "nothing"

    def is_here(self) -> bool:
        return True

    def run(self, names: Sequence[str], place: Path, scratch: Path) -> float:
        from bench.work import touch

        began = time.perf_counter()
        with ProcessPoolExecutor(WORKERS) as pool:
            for _ in pool.map(partial(touch, place=str(place)), names, chunksize=32):
                pass
        return time.perf_counter() - began


class ProcessPoolSingle(ProcessPool):
    """The same without chunks: what is needed when each task is to be known by itself."""

    name = "ProcessPoolExecutor, task by task"

    def run(self, names: Sequence[str], place: Path, scratch: Path) -> float:
        from bench.work import touch

        began = time.perf_counter()
        with ProcessPoolExecutor(WORKERS) as pool:
            futures = [pool.submit(touch, name, str(place)) for name in names]
            for future in futures:
                future.result()
        return time.perf_counter() - began


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Send what native code prints to nowhere."""
    kept = [os.dup(fd) for fd in (1, 2)]
    with open(os.devnull, "w") as nowhere:  # noqa: PTH123
        for fd in (1, 2):
            os.dup2(nowhere.fileno(), fd)
    try:
        yield
    finally:
        for fd, old in zip((1, 2), kept, strict=True):
            os.dup2(old, fd)
            os.close(old)


def timed(command: Sequence[str], stdin: str) -> float:
    """Wall seconds of a command that must end with 0."""
    began = time.perf_counter()
    subprocess.run(command, input=stdin, text=True, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began


PROCESSES: tuple[Peer, ...] = (Xargs(), GnuParallel(), HyperQueue())
CALLABLES: tuple[Peer, ...] = (ProcessPool(), ProcessPoolSingle())
