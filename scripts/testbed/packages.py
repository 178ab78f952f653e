"""The programs that the testbed needs, and the packages they come from."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .layout import Unavailable
from .processes import clean_environment

PROGRAMS = {
    "slurmctld": "slurm-wlm",
    "slurmd": "slurm-wlm",
    "sbatch": "slurm-wlm",
    "slurmdbd": "slurmdbd",
    "munged": "munge",
    "mariadbd": "mariadb-server",
    "mariadb-install-db": "mariadb-server",
    "mpirun": "openmpi-bin",
}
UNITS = {
    "slurm-wlm": ("slurmctld", "slurmd"),
    "slurmdbd": ("slurmdbd",),
    "munge": ("munge",),
    "mariadb-server": ("mariadb",),
}
PMIX_LIBRARY = (
    "libpmix.so"  # srun --mpi=pmix opens it by this name, which only the -dev package has
)
LIBRARY_FOLDERS = ("usr/lib/*/pmix2/lib/", "usr/lib/*/", "usr/lib64/", "usr/local/lib/")
SEARCH_PATH = "/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/sbin:/usr/local/bin"
POLICY = Path("/usr/sbin/policy-rc.d")
POLICY_TEXT = "#!/bin/sh\n# of milepost's scripts/slurm-testbed, while it installs: start no service\nexit 101\n"


def missing_programs() -> dict[str, str]:
    """Return program: package for what is not there."""
    missing = {
        program: package
        for program, package in PROGRAMS.items()
        if shutil.which(program, path=SEARCH_PATH) is None
    }
    if not any(True for folder in LIBRARY_FOLDERS for _ in Path("/").glob(folder + PMIX_LIBRARY)):
        missing[PMIX_LIBRARY] = "libpmix-dev"
    return missing


def check_unified_support() -> None:
    """Raise Unavailable when the installed Slurm is older than 22.05, which knows only legacy control groups."""
    patterns = (
        "usr/lib/*/slurm*/cgroup_v2.so",
        "usr/lib64/slurm/cgroup_v2.so",
        "usr/local/lib/slurm/cgroup_v2.so",
    )
    if not any(True for pattern in patterns for _ in Path("/").glob(pattern)):
        raise Unavailable(
            "this machine has unified control groups (v2), and its Slurm has no cgroup_v2.so, which came with 22.05. "
            "Use a newer release of the system, or boot with systemd.unified_cgroup_hierarchy=0."
        )


def install_missing(*, allowed: bool) -> list[str]:
    """Install what is missing and return the packages. Raises Unavailable naming what is missing and why."""
    missing = missing_programs()
    if not missing:
        return []
    packages = sorted(set(missing.values()))
    command = f"apt-get install --no-install-recommends {' '.join(packages)}"
    what = f"missing programs: {', '.join(missing)} (packages {', '.join(packages)})"
    if not allowed:
        raise Unavailable(f"{what}. --no-install was given; install them with: {command}")
    if os.geteuid() != 0:
        raise Unavailable(f"{what}. Only root may install them: sudo {command}")
    if shutil.which("apt-get") is None:
        raise Unavailable(
            f"{what}. There is no apt-get here; install Slurm with this system's own means."
        )
    with services_held_back():
        problem = apt_install(packages)
    if missing_programs():
        raise Unavailable(f"{what}. Installing failed: {problem}. Try by hand: {command}")
    disable_units(packages)
    return packages


def apt_install(packages: list[str]) -> str:
    """Install and return apt's complaint, empty when all went well. Removes no package, unless in CI."""
    options = ["--yes", "--no-install-recommends", "-o", "DPkg::Lock::Timeout=120"]
    if os.environ.get("CI") != "true":
        options.append("--no-remove")
    attempt = run_apt("install", *options, *packages)
    if attempt.returncode != 0:
        run_apt("update")
        attempt = run_apt("install", *options, *packages)
    complaints = [line for line in attempt.stderr.splitlines() if line.startswith("E:")]
    return "; ".join(complaints) or attempt.stderr.strip()[-500:]


def run_apt(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = clean_environment() | {"DEBIAN_FRONTEND": "noninteractive"}
    return subprocess.run(
        ["apt-get", *arguments],
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )


@contextmanager
def services_held_back() -> Iterator[None]:
    """Keep the packages' services from starting, by Debian's own switch; a switch that stands is kept."""
    if POLICY.exists() and POLICY.read_text() != POLICY_TEXT:
        yield
        return
    POLICY.write_text(POLICY_TEXT)
    POLICY.chmod(0o755)
    try:
        yield
    finally:
        POLICY.unlink()


def disable_units(packages: list[str]) -> None:
    """Keep the services that came with these packages from starting at the next boot."""
    units = [unit for package in packages for unit in UNITS.get(package, ())]
    if units and Path("/run/systemd/system").is_dir():
        command = ["systemctl", "disable", "--now", "--quiet", *units]
        subprocess.run(command, capture_output=True, timeout=120, check=False)
