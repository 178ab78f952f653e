"""Names of people and machines: those of this process, and those that a text gives away."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

_SHORTEST = 3
_COMMON = frozenset(
    [
        "root",
        "user",
        "users",
        "admin",
        "guest",
        "test",
        "nobody",
        "ubuntu",
        "centos",
        "rocky",
        "debian",
        "ec2-user",
        "runner",
        "docker",
        "localhost",
        "local",
        "home",
        "work",
        "data",
        "scratch",
        "project",
        "projects",
        "shared",
        "public",
        "group",
        "build",
        "jenkins",
        "conda",
        "opt",
        "the",
        "and",
        "for",
        "run",
        "runs",
        "host",
        "node",
        "server",
        "batch",
        "default",
        "compute",
        "normal",
        "short",
        "long",
        "main",
        "all",
        "cpu",
        "gpu",
        "debug",
        "worker",
        "login",
        "cluster",
        "slurm",
        "git",
        "github.com",
        "gitlab.com",
        "bitbucket.org",
    ]
)
_HOME = re.compile(
    r"(?:(?<![\w/.~-])(?:/[\w.-]+){0,4}?/(?:home|users|u|home\d+)/|[A-Z]:\\Users\\)"
    r"([A-Za-z_][\w.-]*)|(?<![\w/])~([a-z_][\w.-]*)(?=/)",
    re.IGNORECASE,
)
VERSION = r"(?!v?\d|(?:main|master|latest|stable|dev|develop)\b)"
"""Behind an @ that is no machine: package@v3."""
_SHELL = re.compile(
    r"(?:^|[\s\[(])([a-z_][\w-]*)@" + VERSION + r"([a-z][\w-]+(?:[\w.-]*(?=:[~/])|(?![\w.-])))"
    r"(?=[:\s\])]|$)",
    re.MULTILINE,
)
_MAIL = re.compile(r"\b([a-z]+)\.([a-z]+)@(?:[\w-]+\.)+[a-z]{2,}", re.IGNORECASE)
_CLUSTER = {
    "account": ("SLURM_JOB_ACCOUNT", "SBATCH_ACCOUNT", "SLURM_JOB_RESERVATION", "SLURM_JOB_QOS"),
    "partition": ("SLURM_JOB_PARTITION", "SBATCH_PARTITION"),
    "host": ("SLURM_CLUSTER_NAME", "SLURM_SUBMIT_HOST", "SLURMD_NODENAME"),
}


@dataclass(frozen=True, slots=True)
class Names:
    """Lower-case names of users and of hosts, and `more`: (kind, name) of any other kind."""

    users: frozenset[str] = frozenset()
    hosts: frozenset[str] = frozenset()
    more: frozenset[tuple[str, str]] = frozenset()

    def __or__(self, other: Names) -> Names:
        return Names(self.users | other.users, self.hosts | other.hosts, self.more | other.more)

    def by_kind(self) -> dict[str, set[str]]:
        """Kind -> names; kinds without any are left out."""
        kinds = {"user": set(self.users), "host": set(self.hosts)}
        for kind, name in self.more:
            kinds.setdefault(kind, set()).add(name)
        return {kind: names for kind, names in sorted(kinds.items()) if names}

    def host_families(self) -> set[str]:
        """What the numbered hosts are called without their number: frida17 has sisters."""
        found = {re.match(r"([a-z][a-z-]*[a-z])-?\d+(?:\.|$)", host) for host in self.hosts}
        return {m[1] for m in found if m and len(m[1]) >= _SHORTEST and m[1] not in _COMMON}


def named(kind: str, words: Iterable[str | None]) -> Names:
    """Names of a kind, those left out that are too short or too common to look for."""
    known = [word.strip() for word in words if word]
    numbers = {word for word in known if kind == "job" and word.isdigit()}
    return Names(more=frozenset((kind, word) for word in {*_private(known), *numbers}))


@cache
def known_names() -> Names:
    """Who runs this process and where. Common words (root, localhost) are left out."""
    users = [os.environ.get(key, "") for key in ("USER", "LOGNAME", "SUDO_USER", "USERNAME")]
    home = os.path.basename(os.path.expanduser("~").rstrip("/"))
    account, person = _account()
    more = Names()
    for kind, keys in _CLUSTER.items():
        more |= named(kind, [os.environ.get(key) for key in keys])
    if " " in person:
        more |= named("person", [person])
    return Names(_private([*users, home, account]), _hosts([socket.gethostname()])) | more


def host_names(hosts: Iterable[str]) -> Names:
    """Hosts, with and without their domain."""
    return Names(hosts=_hosts(hosts))


def names_in(text: str) -> Names:
    """Names that stand in home folders, in addresses, or about the @ of a shell prompt."""
    users = {(a or b).rstrip(".") for a, b in _HOME.findall(text)}
    shells = _SHELL.findall(text)
    people = named("person", [f"{first} {last}" for first, last in _MAIL.findall(text)])
    private = _private([*users, *(user for user, _ in shells)])
    return Names(private, _private([host for _, host in shells])) | people


def _hosts(hosts: Iterable[str]) -> frozenset[str]:
    return _private([name for host in hosts for name in (host, host.partition(".")[0])])


def _private(names: list[str]) -> frozenset[str]:
    lower = {name.lower() for name in names if len(name) >= _SHORTEST}
    return frozenset(name for name in lower if name not in _COMMON and not name.isdigit())


def _account() -> tuple[str, str]:
    """Name of the account, and of the person behind it; empty when the system knows none."""
    import pwd

    try:
        entry = pwd.getpwuid(os.getuid())
    except KeyError:
        return "", ""
    return entry.pw_name, entry.pw_gecos.partition(",")[0].strip()
