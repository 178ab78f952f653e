"""The demo in a folder of its own, with executions counted, to be run, killed and compared."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import psutil
import yaml

from milepost.journal import read_journal

SWEEP_TASKS, MEMBERS, STAGES = 36, 3, 3
ALL_ROWS = SWEEP_TASKS + MEMBERS + MEMBERS * (STAGES + 1)
"""Done rows of tasks and stages when everything is done."""
REPO = Path(__file__).resolve().parents[2]
COUNT = '''
"""Note who is executed, then become the command; or call the function, not before `hold` is gone."""
import os, sys, time

def note(name):
    fd = os.open("executions.txt", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(fd, f"{os.environ.get('MILEPOST_OUT', '')} {name}\\n".encode())
    os.close(fd)

def score(**params):
    note(os.environ["MILEPOST_TASK"])
    while os.path.exists("hold") and "/smoke/" not in os.environ["MILEPOST_OUT"]:
        time.sleep(0.05)
    from examples.sweep import score as real
    return real(**params)

if __name__ == "__main__":
    note(sys.argv[1])
    os.execvp(sys.argv[2], sys.argv[2:])
'''


class Demo:
    """A copy of the demo: fewer rows, shards of a fixed size, every execution noted."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True)
        for name in ("examples", "config", "notes"):
            shutil.copytree(REPO / name, folder / name)
        (folder / "counted.py").write_text(COUNT)
        config = yaml.safe_load((REPO / "config" / "config.yaml").read_text())
        sweep, ising, words = (config["runs"][run] for run in ("sweep", "ising", "words"))
        sweep["work"]["function"] = "counted:score"
        sweep["shards"] = {"tasks_per_shard": 12}
        ising["checkpoint"]["interval_seconds"] = 0.5
        for stage in words["work"]["stages"]:
            stage["command"] = f"python counted.py {stage['name']} {stage['command']}"
        (folder / "config" / "config.yaml").write_text(yaml.safe_dump(config, sort_keys=False))
        self._shorten("sweep.csv", rows=SWEEP_TASKS)
        self._shorten("ising.csv", rows=MEMBERS, replace=("sweeps", "20000"))

    def _shorten(self, name: str, rows: int, replace: tuple[str, str] | None = None) -> None:
        path = self.folder / "config" / name
        header, *lines = path.read_text().splitlines()
        if replace is not None:
            at = header.split(",").index(replace[0])
            lines = [
                ",".join(replace[1] if n == at else cell for n, cell in enumerate(line.split(",")))
                for line in lines
            ]
        path.write_text("\n".join([header, *lines[:rows]]) + "\n")

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Start the one command, as the leader of a session, its output in a file."""
        command = [sys.executable, "-m", "snakemake", "-s", str(REPO / "Snakefile")]
        command += ["--directory", str(self.folder), "-c2", *arguments]
        bin_folder = str(Path(sys.executable).parent)
        env = {**os.environ, "PATH": f"{bin_folder}:{os.environ['PATH']}"}
        with (self.folder / f"head-{time.monotonic_ns()}.log").open("w") as log:
            return subprocess.Popen(
                command,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=env,
                text=True,
                start_new_session=True,
            )

    def output(self) -> str:
        """All that all heads said."""
        logs = sorted(self.folder.glob("head-*.log"))
        return "\n".join(log.read_text() for log in logs)

    def done(self) -> set[tuple[str, str]]:
        """Run and name of every task and stage that has a done row."""
        return {
            (path.parts[-4], f"{path.parts[-2]} {name}" if row.event == "stage" else name)
            for path in self.folder.glob("work/*/shards/*/journal.csv")
            for name, row in read_journal(path).done.items()
        }

    def executions(self) -> Counter[tuple[str, str]]:
        """How often each task of the sweep and each stage of the words began, smoke tests apart."""
        path = self.folder / "executions.txt"
        counted: Counter[tuple[str, str]] = Counter()
        for line in path.read_text().splitlines() if path.exists() else ():
            out, _, name = line.partition(" ")
            if "/smoke/" in out or not out:
                continue
            parts = Path(out).parts
            run, shard = parts[parts.index("work") + 1], parts[parts.index("shards") + 1]
            counted[run, name if run == "sweep" else f"{shard} {name}"] += 1
        return counted

    def results(self) -> dict[str, bytes]:
        """Bytes of all published artifacts and result tables."""
        files = [
            *self.folder.glob("results/*/artifacts/**/*"),
            *self.folder.glob("results/*/results.csv"),
        ]
        return {
            str(path.relative_to(self.folder)): path.read_bytes()
            for path in files
            if path.is_file()
        }


def kill_session(leader: subprocess.Popen[str]) -> None:
    """SIGKILL everything in the leader's session, until nothing of it is left."""
    while True:
        alive = [process for process in psutil.process_iter() if _is_in(process, leader.pid)]
        for process in alive:
            try:
                process.send_signal(signal.SIGKILL)
            except psutil.NoSuchProcess:
                continue
        if leader.poll() is None:
            leader.wait()
        if not alive:
            return
        psutil.wait_procs(alive, timeout=5)


def _is_in(process: psutil.Process, session: int) -> bool:
    try:
        return os.getsid(process.pid) == session and process.status() != psutil.STATUS_ZOMBIE
    except (ProcessLookupError, psutil.NoSuchProcess):
        return False
