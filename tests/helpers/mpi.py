"""A real `mpirun` for tests; where it is missing and may be installed, it is."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest


def have(program: str, package: str) -> None:
    """Install `package` when its program is missing and this is root; else skip (in CI: fail)."""
    if shutil.which(program):
        return
    why = f"{program} is missing: apt-get install {package}"
    if os.geteuid() == 0 and shutil.which("apt-get"):
        install = ["install", "-y", "--no-install-recommends", package]
        for words in (install, ["update"], install):  # a new machine has no lists of packages yet
            done = _apt_get(*words)
            if shutil.which(program):
                return
        why = f"{why}: {done.stderr.strip()}"
    if os.environ.get("CI") == "true":
        pytest.fail(why)
    pytest.skip(why)


def _apt_get(*words: str) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    return subprocess.run(
        ["apt-get", *words], capture_output=True, text=True, env=environ, timeout=600, check=False
    )


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
