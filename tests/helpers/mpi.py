"""A real `mpirun` for tests."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from helpers.packages import have


def mpirun(
    ranks: int, script: str, *words: str, survive: bool = False, timeout_s: float = 60
) -> subprocess.CompletedProcess[str]:
    """Run a Python script on so many ranks. `survive`: mpirun leaves the others alone when one
    is killed. Slurm is not asked, also inside a job."""
    have("mpirun", "openmpi-bin")
    options = ["--allow-run-as-root", "--oversubscribe", "-np", str(ranks)]
    options += ["--mca", "plm", "isolated", "--mca", "ras", "^slurm"]
    if survive:
        options += ["--enable-recovery", "--continuous"]
    environ = {name: value for name, value in os.environ.items() if not name.startswith("SLURM_")}
    return subprocess.run(
        ["mpirun", *options, sys.executable, "-c", script, *words],
        capture_output=True,
        text=True,
        timeout=timeout_s,
        env=environ,
        cwd=Path("/"),
        check=False,
    )
