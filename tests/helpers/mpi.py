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
    is killed. Slurm is not asked, also inside a job. Where a rank hangs is in the failure."""
    have("mpirun", "openmpi-bin")
    options = ["--allow-run-as-root", "--oversubscribe", "-np", str(ranks)]
    options += ["--mca", "plm", "isolated", "--mca", "ras", "^slurm"]
    if survive:
        options += ["--enable-recovery", "--continuous"]
    environ = {name: value for name, value in os.environ.items() if not name.startswith("SLURM_")}
    watched = f"import faulthandler\nfaulthandler.dump_traceback_later({timeout_s - 10})\n{script}"
    try:
        return subprocess.run(
            ["mpirun", *options, sys.executable, "-c", watched, *words],
            capture_output=True,
            text=True,
            timeout=timeout_s,
            env=environ,
            cwd=Path("/"),
            check=False,
        )
    except subprocess.TimeoutExpired as late:
        said = b"\n".join(part for part in (late.stdout, late.stderr) if part)
        raise AssertionError(
            f"mpirun took longer than {timeout_s} s; each rank's stack, if any was left:\n"
            + said.decode(errors="replace")
        ) from None
