"""Names of people and machines: those of this process, and those that a text gives away."""

from __future__ import annotations

import os
import re
import socket
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
    ]
)
_HOME = re.compile(
    r"(?:/(?:home|users|u|usr/home|home\d+|cluster/home|nfs/home|export/home)/|[A-Z]:\\Users\\|(?<![\w/])~)"
    r"([A-Za-z_][\w.-]*)",
    re.IGNORECASE,
)
_SHELL = re.compile(r"(?:^|[\s\[(])([a-z_][\w-]*)@([a-z][\w.-]*)(?=[:\s\])]|$)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Names:
    """Lower-case names of users and of hosts."""

    users: frozenset[str] = frozenset()
    hosts: frozenset[str] = frozenset()

    def __or__(self, other: Names) -> Names:
        return Names(self.users | other.users, self.hosts | other.hosts)


@cache
def known_names() -> Names:
    """Who runs this process and where. Common words (root, localhost) are left out."""
    users = [os.environ.get(key, "") for key in ("USER", "LOGNAME", "SUDO_USER", "USERNAME")]
    home = os.path.basename(os.path.expanduser("~").rstrip("/"))
    host = socket.gethostname()
    return Names(_private([*users, home, _account()]), _private([host, host.partition(".")[0]]))


def names_in(text: str) -> Names:
    """Names that stand in home folders or before and after the @ of a shell prompt."""
    users = {found.rstrip(".") for found in _HOME.findall(text)}
    shells = _SHELL.findall(text)
    return Names(
        _private([*users, *(user for user, _ in shells)]), _private([host for _, host in shells])
    )


def _private(names: list[str]) -> frozenset[str]:
    lower = {name.lower() for name in names if len(name) >= _SHORTEST}
    return frozenset(name for name in lower if name not in _COMMON and not name.isdigit())


def _account() -> str:
    import pwd

    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return ""
