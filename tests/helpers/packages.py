"""Programs that tests need; where one is missing and may be installed, it is."""

from __future__ import annotations

import os
import shutil
import subprocess

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
