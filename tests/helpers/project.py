"""A small workflow folder that a test drives as a user does: by command lines, never by imports.

Its tasks count themselves. Each execution appends one line to `executions/<run>/<task key>` (or
`rehearsals/…` in the smoke test), so that a test can say what ran, and how often.
"""

from __future__ import annotations

import csv
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from milepost.config.freeze import freeze
from milepost.config.load import parse_config
from milepost.config.tasks import read_tasks, task_key
from milepost.model import Shard, WorkKind
from milepost.paths import RunPaths
from milepost.shardtable import shard_name, write_shards

REPOSITORY = Path(__file__).resolve().parents[2]
CONFIG = "config/config.yaml"
LIMIT_S = 120
"""A hung command line fails its test instead of the whole session."""

TASK = """\
import json, os, pathlib, sys

fields = dict(word.split("=", 1) for word in sys.argv[2:])
out = pathlib.Path(sys.argv[1])
rehearsal = "/smoke/" in os.environ["MILEPOST_LEASE"]
counts = pathlib.Path("rehearsals" if rehearsal else "executions", os.environ["MILEPOST_RUN"])
counts.mkdir(parents=True, exist_ok=True)
name = counts / os.environ["MILEPOST_TASK"]
fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
os.write(fd, (os.environ["MILEPOST_ATTEMPT"] + "\\n").encode())
os.close(fd)
if os.path.exists("broken/" + fields["n"]) and not rehearsal:
    sys.exit("ValueError: n=" + fields["n"] + " is out of its domain")
if os.path.exists("held/" + fields["n"]) and not rehearsal:
    open("held/" + fields["n"]).read()  # a fifo: waits for the test
text = json.dumps({"square": int(fields["n"]) ** 2})
if os.path.exists("truncated/" + fields["n"]) and not rehearsal:
    text = text[:-3]
(out / "score.json").write_text(text + "\\n")
"""

PYTHON = "python -I -S"
"""Starts in a third of the time; the tasks need nothing but the standard library."""


class Project:
    """The folder of a workflow below `root`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.tiers: dict[str, Any] = {}
        self.runs: dict[str, dict[str, Any]] = {}

    def copy_to(self, root: Path) -> Project:
        """The same project with all that it has done so far, for a test of its own."""
        shutil.copytree(self.root, root, symlinks=True, dirs_exist_ok=True)
        other = Project(root)
        other.tiers, other.runs = json.loads(json.dumps([self.tiers, self.runs]))
        return other

    def write(self, name: str, text: str) -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    def flag(self, name: str) -> Path:
        """An empty file that a task looks for, such as `broken/3`."""
        return self.write(name, "")

    def hold(self, number: int) -> Path:
        """The task of this number will wait in its middle: see `wait_for_reader`."""
        path = self.root / "held" / str(number)
        path.parent.mkdir(exist_ok=True)
        os.mkfifo(path)
        return path

    def table(self, name: str, rows: Sequence[Mapping[str, object]]) -> None:
        path = self.write(f"config/{name}.csv", "")
        with path.open("w", encoding="utf-8", newline="") as stream:
            writer = csv.DictWriter(stream, list(rows[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)

    def numbers(self, run: str, numbers: Sequence[int]) -> None:
        """The table of a run whose only column is n."""
        self.table(run, [{"n": n} for n in numbers])

    def run(self, name: str, **keys: Any) -> dict[str, Any]:
        """Add a run with the block `keys`, or change keys of it; returns the block."""
        block = self.runs.setdefault(name, {})
        block.update(keys)
        self.configure()
        return block

    def configure(self) -> None:
        """Write config/config.yaml."""
        config: dict[str, Any] = {"runs": self.runs}
        if self.tiers:
            config["tiers"] = self.tiers
        self.write(CONFIG, yaml.safe_dump(config, sort_keys=False))

    def batch(self, name: str, numbers: Sequence[int], **keys: Any) -> dict[str, Any]:
        """Add a run of counted tasks, one for each number, that write the square of it."""
        if not (self.root / "task.py").exists():
            self.write("task.py", TASK)
        self.numbers(name, numbers)
        block: dict[str, Any] = {
            "work": {
                "kind": "batch",
                "tasks": f"config/{name}.csv",
                "command": f"{PYTHON} task.py {{out}} n={{n}}",
                "result": {"file": "score.json"},
            },
            "artifacts": [{"path": "score.json", "check": "json"}],
            "resources": {"cpus": 1, "mem_mb": 100, "gpus": 0, "runtime_s": 600},
            "smoke": {"tasks": 2},
            "shards": {"tasks_per_shard": 2},
            "retry": {"limit": 0},
        }
        return self.run(name, **{**block, **keys})

    def paths(self, run: str) -> RunPaths:
        return RunPaths(run, self.root)

    # driving

    def environment(self) -> dict[str, str]:
        """That of a user: the environment's programs on the path, nothing of a run or a job."""
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("MILEPOST_", "SLURM_", "PYTEST_", "SNAKEMAKE_"))
        }
        kept["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{kept['PATH']}"
        kept["XDG_CACHE_HOME"] = str(self.root / ".cache")
        return kept

    def snakemake(self, *words: str, cores: int = 2) -> subprocess.CompletedProcess[str]:
        """Run Snakemake on this folder to its end."""
        command = ["snakemake", "-s", str(REPOSITORY / "Snakefile")]
        command += ["--directory", str(self.root), *([f"-c{cores}"] if cores else []), *words]
        return self._call(command)

    def milepost(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run `milepost VERB …` in this folder to its end."""
        return self._call(["milepost", *words])

    def _call(self, command: Sequence[str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command,
            cwd=self.root,
            env=self.environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )

    def start(self, *words: str, **keys: Any) -> subprocess.Popen[str]:
        """Start `milepost VERB …` in a group of its own and leave it running."""
        return subprocess.Popen(
            ["milepost", *words],
            cwd=self.root,
            env=self.environment(),
            stdin=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
            **keys,
        )

    def prepare(self, run: str, *, upto: str = "submit") -> None:
        """Contract, smoke test, plan and submission of a run, without Snakemake."""
        for verb in ("contract", "smoke", "plan", "submit"):
            ok(self.milepost(verb, run))
            if verb == upto:
                return

    def launch(self, run: str, tasks_per_shard: int = 1000) -> RunPaths:
        """Freeze contract and shard table of a run in this process, past the gate: for tests of
        what comes after it."""
        spec = parse_config(yaml.safe_load((self.root / CONFIG).read_text()), root=self.root)
        paths = self.paths(run)
        freeze(spec.runs[run], paths, datetime.now(UTC))
        tasks = read_tasks(self.root / spec.runs[run].work.table)
        each = 1 if spec.runs[run].work.kind is not WorkKind.BATCH else tasks_per_shard
        groups = [tuple(tasks[at : at + each]) for at in range(0, len(tasks), each)]
        shards = [Shard(shard_name(n), group) for n, group in enumerate(groups, start=1)]
        write_shards(paths.frozen_shards, shards)
        return paths

    # looking

    def executions(self, run: str, folder: str = "executions") -> dict[str, int]:
        """How often each task ran, by its key; what never ran is not there."""
        place = self.root / folder / run
        files = sorted(place.iterdir()) if place.exists() else []
        return {path.name: len(path.read_text().splitlines()) for path in files}

    def squares(self, run: str, numbers: Sequence[int], times: int = 1) -> dict[str, int]:
        """What `executions` gives when each number ran so many times."""
        return {task_key({"n": str(n)}): times for n in sorted(numbers, key=_key_of)}

    def shards(self, run: str) -> dict[str, list[int]]:
        """Which numbers are in which shard of the published table."""
        found: dict[str, list[int]] = {}
        for row in self.csv(f"results/{run}/shards.csv"):
            found.setdefault(row["shard"], []).append(int(json.loads(row["params"])["n"]))
        return found

    def markers(self, run: str) -> list[str]:
        """The shards that have a marker."""
        folder = self.paths(run).results / "shards"
        return sorted(path.parent.name for path in folder.glob("*/journal.csv"))

    def csv(self, name: str) -> list[dict[str, str]]:
        with (self.root / name).open(encoding="utf-8", newline="") as stream:
            return list(csv.DictReader(stream))

    def json(self, name: str) -> Any:
        return json.loads((self.root / name).read_text(encoding="utf-8"))

    def snapshot(self, *names: str) -> dict[str, bytes]:
        """Bytes of every file below the folders that are named."""
        files = [p for name in names for p in sorted((self.root / name).rglob("*")) if p.is_file()]
        return {str(path.relative_to(self.root)): path.read_bytes() for path in files}


def wait_for_reader(fifo: Path) -> int:
    """Return when a task waits at the fifo. Closing the descriptor lets the task go on."""
    return os.open(fifo, os.O_WRONLY)


def _key_of(number: int) -> str:
    return task_key({"n": str(number)})


def ok(done: subprocess.CompletedProcess[str]) -> subprocess.CompletedProcess[str]:
    """Demand exit code 0; what was said stands in the failure."""
    assert done.returncode == 0, f"{done.args}\nexit {done.returncode}\n{said(done)}"
    return done


def said(done: subprocess.CompletedProcess[str]) -> str:
    return done.stdout + done.stderr


def started_jobs(done: subprocess.CompletedProcess[str]) -> list[str]:
    """The rules whose jobs Snakemake started, in the order of its log."""
    heads = ("rule ", "localrule ", "checkpoint ", "localcheckpoint ")
    lines = (line for line in done.stderr.splitlines() if line.startswith(heads))
    return [line.split()[1].rstrip(":") for line in lines]
