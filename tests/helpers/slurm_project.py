"""A tiny run on a real Slurm, its head a real `snakemake --profile slurm`, and what became of it.

The solver and the tasks note each step that they execute by one appended line, so that lost and
repeated work can be counted. They go on until the file `go` appears: a test says when work ends,
and nothing depends on how fast the machine is.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from helpers.project import REPOSITORY, Project, ok
from helpers.slurm_cluster import Cluster
from milepost.config.tasks import task_key

RUN = "ends"
INTERVAL_S = 1.0
STEP_S = 0.1
REPEATS_AT_MOST = 40
"""Steps that one interruption may repeat: an interval, and what a busy machine adds to it."""
HEAD_LIMIT_S = 240.0

SOLVER = """\
import json, os, pathlib, signal, sys, time

import numpy as np

from milepost import Checkpointer

out, least = pathlib.Path(sys.argv[1]), int(sys.argv[2])
rehearsal = "/smoke/" in os.environ["MILEPOST_LEASE"]
place = pathlib.Path("rehearsals" if rehearsal else "executions")
place.mkdir(exist_ok=True)
name = place / os.environ["MILEPOST_SHARD"]
fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)


def asked(what):
    return not rehearsal and os.path.exists(what)


if asked("deaf"):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
with Checkpointer.from_env() as ck:
    saved = ck.restore()
    x = np.zeros(1) if saved is None else saved.arrays["x"].copy()
    step = 0 if saved is None else saved.step + 1
    while step < least or not (rehearsal or os.path.exists("go")):
        time.sleep(0.1)
        x[0] += step * step
        os.write(fd, f"{os.environ['MILEPOST_ATTEMPT']} {step}\\n".encode())
        ck.step(step, lambda: ({"x": x}, {}))
        if asked("exit-1"):
            sys.exit("ValueError: the box is too small")
        if asked("kill-9"):
            os.remove("kill-9")
            os.kill(os.getpid(), signal.SIGKILL)
        if ck.stopping:
            break
        step += 1
    else:
        ck.finish()
(out / "sum.json").write_text(json.dumps({"x": x[0], "steps": step}))
"""

TASK = """\
import json, os, pathlib, sys, time

out, n = pathlib.Path(sys.argv[1]), sys.argv[2]
rehearsal = "/smoke/" in os.environ["MILEPOST_LEASE"]
place = pathlib.Path("rehearsals" if rehearsal else "executions")
place.mkdir(exist_ok=True)
fd = os.open(place / n, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
os.write(fd, f"{os.environ['MILEPOST_ATTEMPT']} {n}\\n".encode())


def asked(what):
    return not rehearsal and os.path.exists(what)


if asked("broken/" + n):
    sys.exit("ModuleNotFoundError: No module named 'solver'")
if asked("hungry/" + n):
    block = bytearray(550 << 20)
if asked("truncated/" + n):
    (out / "score.json").write_text('{"square": 4')
    sys.exit(0)
if asked("slow/" + n):
    while not os.path.exists("go"):
        time.sleep(0.1)
(out / "score.json").write_text(json.dumps({"square": int(n) ** 2}))
"""


class SlurmProject(Project):
    """One run, `ends`, of one shard, driven by `snakemake --profile slurm`."""

    head: subprocess.Popen[str] | None = None

    def resumable(self, **keys: Any) -> dict[str, Any]:
        """One solver that steps until `go` exists, 20 steps at least."""
        self.write("solver.py", SOLVER)
        self.table(RUN, [{"steps": 20}])
        block: dict[str, Any] = {
            "work": {
                "kind": "resumable",
                "members": f"config/{RUN}.csv",
                "command": "python solver.py {out} {steps}",
            },
            "artifacts": [{"path": "sum.json", "check": "json"}],
            "control": {"file": "sum.json", "metric": "x"},
            "checkpoint": {"interval_seconds": INTERVAL_S},
            "resources": {"cpus": 1, "mem_mb": 600, "gpus": 0, "runtime_s": 600},
            "smoke": {"tasks": 1, "set": {"steps": "40"}},
        }
        return self.run(RUN, **{**block, **keys})

    def tasks(self, count: int = 4, **keys: Any) -> dict[str, Any]:
        """One shard of numbered tasks."""
        self.write("task.py", TASK)
        self.numbers(RUN, range(1, count + 1))
        block: dict[str, Any] = {
            "work": {
                "kind": "batch",
                "tasks": f"config/{RUN}.csv",
                "command": "python -I -S task.py {out} {n}",
                "result": {"file": "score.json"},
            },
            "artifacts": [{"path": "score.json", "check": "json"}],
            "resources": {"cpus": 1, "mem_mb": 600, "gpus": 0, "runtime_s": 600},
            "smoke": {"tasks": 1},
            "shards": {"tasks_per_shard": count},
        }
        return self.run(RUN, **{**block, **keys})

    def change_sbatch(self, *options: str, fails: bool = False) -> None:
        """Let the first sbatch of a head have these options; `fails`: it submits and says it did not."""
        real = shutil.which("sbatch")
        words = " ".join(options)
        end = "echo 'sbatch: error: Socket timed out on send/recv operation' >&2; exit 1"
        wrapper = self.write(
            "bin/sbatch",
            f"""#!/bin/sh
if mkdir "$(dirname "$0")/used" 2>/dev/null; then
    {real} {words} "$@" {"> /dev/null" if fails else ""} || exit 1
    {end if fails else "exit 0"}
fi
exec {real} "$@"
""",
        )
        wrapper.chmod(0o755)

    # the head

    def start_head(self, *words: str, **environment: str) -> None:
        """Start `snakemake --profile slurm`, which looks at its jobs often, in a session of its own."""
        command = ["snakemake", "-s", str(REPOSITORY / "Snakefile"), "--directory", str(self.root)]
        command += ["--profile", str(REPOSITORY / "profiles" / "slurm"), "--local-cores", "2"]
        command += [
            "--slurm-init-seconds-before-status-checks",
            "2",
            "--latency-wait",
            "10",
            *words,
        ]
        with (self.root / "head.log").open("a") as log:
            self.head = subprocess.Popen(
                command,
                cwd=self.root,
                env=self.environment() | environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                text=True,
                start_new_session=True,
            )

    def wait_head(self, patience_s: float = HEAD_LIMIT_S) -> int:
        """The exit code of the head."""
        assert self.head is not None
        try:
            return self.head.wait(timeout=patience_s)
        except subprocess.TimeoutExpired:
            self.kill_head()
            raise AssertionError(f"the head did not end\n{self.said()}") from None

    def kill_head(self, number: int = signal.SIGKILL) -> None:
        """Signal the head alone, as an OOM killer does: its jobs go on."""
        if self.head is not None and self.head.poll() is None:
            self.head.send_signal(number)
            self.head.wait(timeout=60)

    @contextmanager
    def head_stopped(self) -> Iterator[None]:
        """The head neither looks at its jobs nor submits any."""
        assert self.head is not None
        self.head.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.head.send_signal(signal.SIGCONT)

    def said(self, lines: int = 60) -> str:
        """The end of what all heads of this folder said, and the end of what the shards said."""
        logs = [self.root / "head.log", *sorted(self.paths(RUN).results.glob("logs/shard/*.log"))]
        texts = [p.read_text(errors="replace").splitlines()[-lines:] for p in logs if p.exists()]
        return "\n".join("\n".join(text) for text in texts)

    # the jobs

    def jobs(self) -> list[str]:
        """Ids of all jobs that were submitted from this folder and that slurmctld remembers."""
        answer = self._slurm("squeue", "-h", "-t", "all", "-o", "%i|%Z|%k")
        rows = [line.split("|") for line in answer.splitlines()]
        here = str(self.root.resolve())
        return sorted((r[0] for r in rows if r[1] == here and "rule_shard" in r[2]), key=int)

    def told(self) -> str:
        """All that the heads of this folder said, in one line, and the shards' last words."""
        logs = [self.root / "head.log", *self.paths(RUN).results.glob("logs/shard/*.log")]
        return " ".join(" ".join(p.read_text(errors="replace").split()) for p in logs)

    def jobs_of_shards(self) -> list[str]:
        """Ids of the jobs that the heads say they submitted for shards, in order."""
        text = (self.root / "head.log").read_text(errors="replace")
        return re.findall(r"SLURM jobid (\d+) \(log: \S*/rule_shard/", text)

    def restarts(self, job: str) -> int:
        """How often the job was requeued, by the records of its executions."""
        answer = self._slurm("sacct", "-n", "-X", "-D", "-P", "-j", job, "-o", "State")
        return len(answer.split()) - 1

    def job(self, patience_s: float = 90.0) -> str:
        """The id of the newest job of this folder, once there is one."""
        self.wait("a job in the queue", self.jobs, patience_s)
        return self.jobs()[-1]

    def wait(self, what: str, condition: Callable[[], object], patience_s: float = 90.0) -> None:
        """Poll until the condition holds; what the head said stands in the failure."""
        deadline = time.monotonic() + patience_s
        while not condition():
            assert time.monotonic() < deadline, (
                f"not within {patience_s:.0f} s: {what}\n{self.said()}"
            )
            time.sleep(0.3)

    def wait_at_work(self, attempt: int = 1, steps: int = 15, patience_s: float = 120.0) -> None:
        """Until an attempt has executed so many steps."""

        def reached() -> bool:
            return self.steps_of().get(attempt, 0) >= steps

        self.wait(f"{steps} steps in attempt {attempt}", reached, patience_s)

    def wait_attempt_ended(self, attempt: int, patience_s: float = 60.0) -> None:
        """Until the attempt's record says how it ended."""

        def ended() -> bool:
            return self.attempts()[attempt - 1]["ended"] is not None

        self.wait(f"the end of attempt {attempt}", ended, patience_s)

    def _slurm(self, *argv: str) -> str:
        done = subprocess.run(
            argv, capture_output=True, text=True, timeout=30, check=False, env=self.environment()
        )
        return done.stdout

    def environment(self) -> dict[str, str]:
        mine = super().environment()
        return mine | {"PYTHONUNBUFFERED": "1", "PATH": f"{self.root / 'bin'}:{mine['PATH']}"}

    # what became of it

    def notes(self) -> list[tuple[int, int]]:
        """(attempt, step or task number) of each execution, in order."""
        files = sorted((self.root / "executions").glob("*"))
        words = [line.split() for path in files for line in path.read_text().splitlines()]
        return [(int(a), int(n)) for a, n in words]

    def steps_of(self) -> Counter[int]:
        """How many steps each attempt executed."""
        return Counter(attempt for attempt, _ in self.notes())

    def attempts(self) -> list[dict[str, Any]]:
        folder = self.paths(RUN).shard("0001").attempts
        numbers = sorted(int(p.stem) for p in folder.glob("*.json") if p.stem.isdigit())
        return [json.loads((folder / f"{n}.json").read_text()) for n in numbers]

    def verdict(self) -> dict[str, Any]:
        """The row of the only shard in `milepost reconcile --json`."""
        done = ok(self.milepost("reconcile", RUN, "--json"))
        (row,) = json.loads(done.stdout)["shards"]
        return dict(row)

    def wait_verdict(
        self, verdict: str, scheduler: str, patience_s: float = 60.0
    ) -> dict[str, Any]:
        """Reconcile until it says so; its last row."""
        row: dict[str, Any] = {}

        def agrees() -> bool:
            row.clear()
            row.update(self.verdict())
            return (row["verdict"], row["scheduler"]) == (verdict, scheduler)

        try:
            self.wait(f"verdict {verdict}", agrees, patience_s)
        except AssertionError as error:
            raise AssertionError(f"{row}\n{error}") from None
        return row

    def said_by_slurm(self, attempt: int) -> dict[str, Any]:
        """What Slurm said about an attempt that could not say how it ended."""
        path = self.paths(RUN).shard("0001").attempts / f"{attempt}.slurm.json"
        return dict(json.loads(path.read_text()))

    def is_closed(self) -> bool:
        record = self.paths(RUN).results / "closeout" / "record.json"
        return record.exists() and bool(json.loads(record.read_text())["closed"])

    def finish(self, interruptions: int, *, patience_s: float = HEAD_LIMIT_S) -> None:
        """Let the work end, and demand that the head ends well and that nothing was lost."""
        self.flag("go")
        assert self.wait_head(patience_s) == 0, self.said()
        self.assert_whole(interruptions)

    def assert_whole(self, interruptions: int) -> None:
        """Closed, DONE, each step executed, and little repeated."""
        assert self.verdict()["verdict"] == "DONE", self.verdict()
        assert self.is_closed()
        steps = Counter(step for _, step in self.notes())
        result = json.loads(self.artifact("sum.json").read_text())
        assert set(range(result["steps"])) <= set(steps), "a step was lost"
        assert result["x"] == sum(n * n for n in range(result["steps"]))
        repeated = sum(steps.values()) - len(steps)
        assert repeated <= interruptions * REPEATS_AT_MOST, f"{repeated} steps repeated"

    def artifact(self, name: str) -> Path:
        return self.paths(RUN).artifacts / "0001" / name

    def square(self, n: int) -> Path:
        return self.paths(RUN).artifacts / task_key({"n": str(n)}) / "score.json"

    def clean_up(self) -> None:
        """End the head and the jobs of this folder."""
        if self.head is not None and self.head.poll() is None:
            os.killpg(self.head.pid, signal.SIGKILL)
            self.head.wait(timeout=30)
        jobs = self.jobs()
        if jobs:
            self._slurm("scancel", *jobs)


@contextmanager
def deaf(pid: int) -> Iterator[None]:
    """A process that does not get to hear its signals, as one that hangs in a file system.

    Slurm sends CONT before its TERM, so it is stopped again and again.
    """
    enough = threading.Event()

    def stop() -> None:
        while not enough.wait(0.003):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)

    thread = threading.Thread(target=stop, daemon=True)
    thread.start()
    try:
        yield
    finally:
        enough.set()
        thread.join()


Scene = Callable[["Stage"], None]


class Stage:
    """What one scene needs: a project of its own, the cluster; all that it started ends with it."""

    def __init__(self, prepared: Mapping[str, SlurmProject], folder: Path) -> None:
        self._prepared = prepared
        self.folder = folder
        self.cluster = Cluster()
        self.projects: list[SlurmProject] = []

    def __enter__(self) -> Stage:
        return self

    def __exit__(self, *error: object) -> None:
        for project in self.projects:
            project.clean_up()
        self.cluster.cancel_submitted()

    def project(self, kind: str, **keys: Any) -> SlurmProject:
        """A project past the gate; `keys` change the run's block, as a user may after the launch."""
        original = self._prepared[kind]
        root = self.folder / kind
        shutil.copytree(original.root, root, symlinks=True)
        project = SlurmProject(root)
        project.runs = json.loads(json.dumps(original.runs))
        if keys:
            project.run(RUN, **keys)
        self.projects.append(project)
        return project

    def fresh(
        self,
        kind: str,
        *,
        upto: str = "submit",
        files: Mapping[str, str] | None = None,
        **keys: Any,
    ) -> SlurmProject:
        """A project with `keys` from the beginning, prepared up to a verb."""
        project = SlurmProject(self.folder / f"fresh-{kind}")
        for name, text in (files or {}).items():
            project.write(name, text)
        getattr(project, kind)(**keys)
        self.projects.append(project)
        project.prepare(RUN, upto=upto)
        return project

    def take_node(self, node: str, *options: str) -> str:
        """A short job of QOS high that needs most of a node: what gives way to it there must go."""
        wanted = ("--qos=high", "-w", node, "--mem=3000", "--time=5", *options)
        return self.cluster.submit(self.folder, "true", *wanted)

    def node_of(self, job: str) -> str:
        return self.cluster.fields(job)["NodeList"]


def scene(play_it: Scene) -> Callable[[Callable[[Scene], None]], None]:
    """Make a test of a scene; scenes are played at the same time, see the fixture `together`."""

    def test(play: Callable[[Scene], None]) -> None:
        play(play_it)

    test.__name__, test.__doc__ = play_it.__name__, play_it.__doc__
    test.scene = play_it  # type: ignore[attr-defined]
    return test


LARGE = {"cpus": 1, "mem_mb": 3200, "gpus": 0, "runtime_s": 600}
"""Most of a node of the testbed, so that a job that needs it, too, cannot share it."""
