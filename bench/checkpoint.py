"""Checkpoints: milepost beside the floor of the machine and beside a backup program.

The state is one array of random numbers, which no compression makes smaller. Each measurement
begins with a first, untimed checkpoint, as a long run does; then the state changes and the second
one is timed. A restore counts only when it gives back the same bytes.
"""

from __future__ import annotations

import mmap
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bench.measure import Sample, alternate, ratio, summarise
from bench.peers import quiet

MIB = 1 << 20
SIZES = (256 * MIB,)
QUICK = (32 * MIB,)
CHANGED_FRACTION = 0.02
OURS = "milepost"
TITLES = {
    "blocked": "Time that the application waits",
    "durable": "Full checkpoint, until it is durable",
    "changed": "Checkpoint with 2 % changed, until it is durable",
    "restore": "Restore with verification",
}

State = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True, slots=True)
class Case:
    """A way to do what the group names: `run(state, folder)` returns seconds."""

    group: str
    name: str
    does: str
    run: Callable[[State, Path], float]
    needs: str | None = None

    def is_here(self) -> bool:
        return self.needs is None or shutil.which(self.needs) is not None


def new_state(size_bytes: int) -> State:
    return np.random.default_rng(1).random(size_bytes // 8)


def change_all(state: State) -> None:
    state += 1.0


def change_some(state: State) -> None:
    """Change a connected piece in the middle."""
    first = len(state) // 3
    state[first : first + int(len(state) * CHANGED_FRACTION)] += 1.0


def clock(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


# --- the floor


def memory_copy(state: State, folder: Path) -> float:
    """Into memory that the kernel has backed already."""
    target = state.copy()
    return clock(lambda: np.copyto(target, state))


def raw_direct(state: State, folder: Path) -> float:
    """One file of the same bytes past the page cache, in pieces of 8 MiB, then fsync."""
    buffer = mmap.mmap(-1, state.nbytes)
    buffer[:] = state.tobytes()
    view = memoryview(buffer)

    def write() -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_DIRECT
        try:
            fd = os.open(folder / "raw.bin", flags, 0o666)
        except OSError:  # a file system without direct writing, such as tmpfs
            fd = os.open(folder / "raw.bin", os.O_WRONLY | os.O_CREAT, 0o666)
        for start in range(0, len(view), 8 * MIB):
            os.write(fd, view[start : start + 8 * MIB])
        os.fsync(fd)
        os.close(fd)

    return clock(write)


# --- milepost


def _checkpointer(folder: Path, delta: bool) -> Any:
    from milepost import Checkpointer

    return Checkpointer(folder / "ckpt", interval_s=1e9, delta=delta)


def milepost_blocked(state: State, folder: Path) -> float:
    with _checkpointer(folder, delta=False) as ck:
        ck.save(0, {"state": state})
        ck.wait()
        change_all(state)
        return clock(lambda: ck.save(1, {"state": state}))


def milepost_durable(state: State, folder: Path) -> float:
    return _until_durable(state, folder, change_all, delta=False)


def milepost_changed(state: State, folder: Path) -> float:
    return _until_durable(state, folder, change_some, delta=True)


def _until_durable(
    state: State, folder: Path, change: Callable[[State], None], delta: bool
) -> float:
    with _checkpointer(folder, delta) as ck:
        ck.save(0, {"state": state})
        ck.wait()
        change(state)

        def save() -> None:
            ck.save(1, {"state": state})
            ck.wait()

        return clock(save)


def milepost_restore(state: State, folder: Path) -> float:
    with _checkpointer(folder, delta=False) as ck:
        ck.save(0, {"state": state})
    with _checkpointer(folder, delta=False) as ck, quiet():
        began = time.perf_counter()
        saved = ck.restore()
        seconds = time.perf_counter() - began
    _same(saved.arrays["state"], state)
    return seconds


def _same(restored: State, state: State) -> None:
    if restored.tobytes() != state.tobytes():
        raise SystemExit("bench: the restored state is another one")


# --- restic


def _restic(folder: Path, *words: str) -> None:
    environment = {
        **os.environ,
        "RESTIC_REPOSITORY": str(folder / "repository"),
        "RESTIC_PASSWORD": "bench",
        "RESTIC_CACHE_DIR": str(folder / "cache"),
    }
    command = ["restic", "--quiet", *words]
    subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)


def _restic_ready(state: State, folder: Path) -> Path:
    """A repository that holds the state once already."""
    source = folder / "state.bin"
    state.tofile(source)
    _restic(folder, "init")
    _restic(folder, "backup", str(source))
    return source


def restic_durable(state: State, folder: Path) -> float:
    return _restic_again(state, folder, change_all)


def restic_changed(state: State, folder: Path) -> float:
    return _restic_again(state, folder, change_some)


def _restic_again(state: State, folder: Path, change: Callable[[State], None]) -> float:
    source = _restic_ready(state, folder)
    change(state)
    state.tofile(source)
    return clock(lambda: _restic(folder, "backup", str(source)))


def restic_restore(state: State, folder: Path) -> float:
    source = _restic_ready(state, folder)
    there = folder / "restored"
    seconds = clock(lambda: _restic(folder, "restore", "latest", "--target", str(there)))
    _same(np.fromfile(there / source.relative_to("/")), state)
    return seconds


CASES = (
    Case("blocked", OURS, "save()", milepost_blocked),
    Case("blocked", "one memory copy", "numpy.copyto into backed memory", memory_copy),
    Case("durable", OURS, "digests, manifest, fsync, rename", milepost_durable),
    Case("durable", "raw direct write", "O_DIRECT, fsync, no digest", raw_direct),
    Case("durable", "restic", "backup of a file already written", restic_durable, "restic"),
    Case("changed", OURS, "delta against the generation before", milepost_changed),
    Case("changed", "restic", "backup of a file already written", restic_changed, "restic"),
    Case("restore", OURS, "every block checked", milepost_restore),
    Case("restore", "restic", "restore latest", restic_restore, "restic"),
)


def measure(
    sizes: Sequence[int], repeats: int, folder: Path | None, say: Callable[[str], None]
) -> list[Sample]:
    """All cases and sizes, the ways of one group taking turns."""
    for case in CASES:
        if not case.is_here():
            say(f"{case.needs} is not installed; left out of {case.group!r}")
    samples = []
    for size in sizes:
        for group in TITLES:
            here = [case for case in CASES if case.group == group and case.is_here()]
            for case in alternate(here, repeats):
                with tempfile.TemporaryDirectory(prefix="milepost-bench-", dir=folder) as place:
                    sample = Sample(group, case.name, size, case.run(new_state(size), Path(place)))
                say(f"{group:>9} {size // MIB:>5} MiB {case.name:<18} {rate(sample):9.1f} MB/s")
                samples.append(sample)
    return samples


def rate(measured: Sample) -> float:
    """10^6 bytes of state for each second."""
    return measured.size / measured.seconds / 1e6


def table(samples: Sequence[Sample]) -> Iterator[str]:
    """Markdown: a table for each group; above 1, the way takes longer than milepost."""
    summaries = summarise(samples)
    does = {(case.group, case.name): case.does for case in CASES}
    for group, title in TITLES.items():
        rows = [row for row in summaries if row.group == group]
        if not rows:
            continue
        yield from (
            f"### {title}",
            "",
            "| state | tool | does | s | range | MB/s | against milepost |",
        )
        yield "|--:|---|---|--:|--:|--:|--:|"
        for row in sorted(rows, key=lambda row: (row.size, row.median_s)):
            against = ratio(summaries, row, OURS)
            yield (
                f"| {row.size // MIB} MiB | {row.name} | {does[group, row.name]} "
                f"| {row.median_s:.4f} | {row.least_s:.4f} - {row.greatest_s:.4f} "
                f"| {row.size / row.median_s / 1e6:,.0f} "
                f"| {'n/a' if against is None else f'{against:.2f}'} |"
            )
        yield ""


def describe() -> Iterator[str]:
    yield "## Checkpoints"
    yield ""
    yield (
        "The state is one array of random numbers. A first checkpoint is not timed, then the state "
        "changes and the next one is. MB/s count the whole state, also where only a part of it "
        "changed. What restic backs up has been written to a file before its clock starts. Both "
        "restores read from the page cache."
    )
    yield ""
