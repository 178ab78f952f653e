"""Names, ports and paths of the testbed: the only place that knows them."""

import os
import socket
from dataclasses import dataclass
from pathlib import Path

NODES = ("n1", "n2", "n3", "n4")
GPUS_PER_NODE = 4
CLUSTER = "testbed"
ACCOUNTS = {"physics": 3, "chemistry": 1}  # account: shares
LOCK = Path("/run/lock/milepost-testbed.lock")
DEFAULT_STATE = Path("/var/tmp/milepost-testbed")
ETC_SLURM = Path("/etc/slurm")
ETC_BACKUP = Path("/etc/slurm.before-milepost-testbed")
PORTS = {"slurmctld": 16817, "slurmdbd": 16819, "mariadbd": 13306} | {
    node: 17001 + index for index, node in enumerate(NODES)
}
MARKER_VARIABLE = "MILEPOST_TESTBED"
OWN_FILE = "milepost-testbed"  # stands in every folder that is ours
MAX_SOCKET_PATH_BYTES = 107  # sun_path of unix(7)


class TestbedError(Exception):
    """The testbed could not be brought up, changed or ended. Exit code 1."""

    exit_code = 1


class Unavailable(TestbedError):
    """This machine cannot or must not carry the testbed: nothing was changed. Exit code 3."""

    exit_code = 3


@dataclass(frozen=True)
class Layout:
    """Paths below the state folder."""

    state: Path

    @property
    def etc(self) -> Path:
        return self.state / "etc"

    @property
    def run(self) -> Path:
        return self.state / "run"

    @property
    def log(self) -> Path:
        return self.state / "log"

    @property
    def devices(self) -> Path:
        return self.state / "dev"

    @property
    def database(self) -> Path:
        return self.state / "mysql"

    @property
    def munge_socket(self) -> Path:
        return self.run / "munge.socket"

    @property
    def munge_key(self) -> Path:
        return self.state / "munge" / "munge.key"

    @property
    def password_file(self) -> Path:
        return self.state / "database.password"

    @property
    def accounts_done(self) -> Path:
        return self.state / "accounts.done"

    def record(self, daemon: str) -> Path:
        return self.run / f"{daemon}.json"

    def is_ours(self) -> bool:
        return (self.state / OWN_FILE).is_file()


def layout_of(state: str | Path | None) -> Layout:
    """Check the state folder's name. Raises TestbedError when it cannot serve."""
    path = Path(os.path.abspath(state or DEFAULT_STATE))
    checkout = Path(__file__).resolve().parents[2]
    if path == checkout or checkout in path.parents:
        raise TestbedError(
            f"--state {path}: lies in the checkout. Name a folder outside {checkout}."
        )
    if len(os.fsencode(path / "run" / "munge.socket")) > MAX_SOCKET_PATH_BYTES - 20:
        raise TestbedError(f"--state {path}: too long for a socket's path. Name a shorter folder.")
    if any(character in str(path) for character in " \t\"'#=,\\"):
        raise TestbedError(
            f"--state {path}: Slurm's files cannot hold this name. Use plain letters."
        )
    return Layout(path)


def host_name() -> str:
    return socket.gethostname().split(".")[0]


def is_bindable() -> bool:
    """Tell whether the host's name means 127.0.0.1: the only address that Slurm's daemons can then be bound to.

    With another one, such as Debian's 127.0.1.1, srun would listen there and be called back at 127.0.0.1.
    """
    try:
        found = socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET)
    except socket.gaierror:
        return False
    return found[0][4][0] == "127.0.0.1"
