"""Run Slurm's commands with a bound on their time: without a reachable daemon they may wait for ever."""

import subprocess
import time
from collections.abc import Callable

from .layout import TestbedError
from .processes import clean_environment


def ask(*argv: str, text: str = "", timeout_s: float = 10.0) -> subprocess.CompletedProcess[str]:
    """Run a command that reads the text; a time-out is exit code 124, as of timeout(1)."""
    try:
        return subprocess.run(
            argv,
            env=clean_environment(),
            input=text,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(argv, 124, "", f"no answer within {timeout_s:.0f} s")


def demand(*argv: str, timeout_s: float = 30.0) -> str:
    """Run a command and return what it printed. Raises TestbedError with its complaint."""
    answer = ask(*argv, timeout_s=timeout_s)
    if answer.returncode != 0:
        complaint = (answer.stderr or answer.stdout).strip()
        raise TestbedError(f"{' '.join(argv)}: exit code {answer.returncode}: {complaint}")
    return answer.stdout


def wait_until(condition: Callable[[], bool], patience_s: float) -> bool:
    """Poll ten times a second; False when it did not come true in time."""
    deadline = time.monotonic() + patience_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True
