"""Speak to a Slurm from tests: every command bounded in time, every wait for an event bounded too."""

import os
import re
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

TESTBED = Path(__file__).resolve().parents[2] / "scripts" / "slurm-testbed"
ENDED = frozenset(
    [
        "COMPLETED",
        "CANCELLED",
        "FAILED",
        "TIMEOUT",
        "NODE_FAIL",
        "PREEMPTED",
        "OUT_OF_MEMORY",
        "DEADLINE",
        "BOOT_FAIL",
    ]
)


def testbed(*arguments: str, timeout_s: float = 120.0) -> subprocess.CompletedProcess[str]:
    """Run scripts/slurm-testbed and return what it said, whatever its exit code."""
    return subprocess.run(
        [str(TESTBED), *arguments], capture_output=True, text=True, timeout=timeout_s, check=False
    )


testbed.__test__ = False  # type: ignore[attr-defined]


@dataclass
class Cluster:
    """The running cluster, with the jobs that a test submitted (cancelled at its end)."""

    submitted: list[str] = field(default_factory=list)

    def run(self, *argv: str, timeout_s: float = 20.0, cwd: Path | None = None) -> str:
        """Run a command and return its output. Fails the test with the command's own complaint."""
        result = subprocess.run(
            argv, cwd=cwd, capture_output=True, text=True, timeout=timeout_s, check=False
        )
        assert result.returncode == 0, f"{' '.join(argv)}: {result.returncode}: {result.stderr}"
        return result.stdout

    def testbed(self, *arguments: str) -> str:
        """Run scripts/slurm-testbed, such as testbed("kill-node", "n3")."""
        return self.run(str(TESTBED), *arguments, timeout_s=120.0)

    def submit(self, folder: Path, script: str, *options: str) -> str:
        """Submit a bash script, remember its id and return it; its output goes to FOLDER/ID.out."""
        text = script if script.startswith("#!") else f"#!/bin/bash\n{script}\n"
        path = folder / f"job-{len(self.submitted)}.sh"
        path.write_text(text)
        out = f"--output={folder}/%j.out"
        answer = self.run(
            "sbatch", "--parsable", out, "--open-mode=append", *options, str(path), cwd=folder
        )
        job_id = answer.strip().split(";")[0]
        self.submitted.append(job_id)
        return job_id

    def fields(self, job_id: str) -> dict[str, str]:
        """Return what scontrol knows of a job; empty when slurmctld does not know it."""
        argv = ["scontrol", "-o", "show", "job", job_id]
        result = subprocess.run(argv, capture_output=True, text=True, timeout=20.0, check=False)
        return dict(re.findall(r"(\w+(?:/\w+)?(?::\w+)?)=(\S*)", result.stdout))

    def state(self, job_id: str) -> str:
        return self.fields(job_id).get("JobState", "")

    def wait(self, what: str, condition: Callable[[], object], patience_s: float = 30.0) -> None:
        """Poll five times a second until the condition holds. Fails the test, naming what was awaited."""
        deadline = time.monotonic() + patience_s
        while not condition():
            assert time.monotonic() < deadline, f"not within {patience_s:.0f} s: {what}"
            time.sleep(0.2)

    def wait_state(self, job_id: str, *states: str, patience_s: float = 30.0) -> str:
        """Wait until the job is in one of the states and return the one."""
        seen = ""

        def reached() -> bool:
            nonlocal seen
            seen = self.state(job_id)
            return seen in states

        self.wait(f"job {job_id} in {' or '.join(states)}", reached, patience_s)
        return seen

    def wait_end(self, job_id: str, patience_s: float = 30.0) -> str:
        return self.wait_state(job_id, *ENDED, patience_s=patience_s)

    def records(self, job_id: str, fields: str = "JobID,State,ExitCode") -> list[list[str]]:
        """Return sacct's rows of all attempts and steps."""
        answer = self.run("sacct", "-n", "-P", "-D", "-j", job_id, "-o", fields)
        return [line.split("|") for line in answer.splitlines()]

    def node_state(self, node: str) -> str:
        return self.run("sinfo", "-h", "-N", "-p", "main", "-n", node, "-o", "%T").strip()

    def cancel_submitted(self) -> None:
        """Cancel what the test left behind and wait until no node still cleans up after it."""
        if self.submitted:
            subprocess.run(
                ["scancel", *self.submitted], capture_output=True, timeout=20.0, check=False
            )
            ids = ",".join(self.submitted)
            ask = ["squeue", "-h", "-j", ids]

            def gone() -> bool:
                answer = subprocess.run(
                    ask, capture_output=True, text=True, timeout=20.0, check=False
                )
                return not answer.stdout.strip()

            self.wait(f"jobs {ids} gone", gone)
        self.submitted.clear()


def in_ci() -> bool:
    return os.environ.get("CI") == "true"
