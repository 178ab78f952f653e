"""Slurm's version: what its commands print depends on it."""

from __future__ import annotations

import re

from milepost.slurm.command import NotHeard, ask

Version = tuple[int, int]
"""Such as (22, 5) for 22.05."""

_NUMBER = re.compile(r"(\d+)\.(\d+)")
_cache: dict[str, Version] = {}


def slurm_version() -> Version:
    """The version of the commands on this host; asked once a process. Raises NotHeard."""
    if "sacct" not in _cache:
        text = ask("sacct", "--version")
        version = parse_version(text)
        if version is None:
            raise NotHeard(f"`sacct --version` says {text.strip()!r}", fix="see which sacct it is")
        _cache["sacct"] = version
    return _cache["sacct"]


def parse_version(text: str) -> Version | None:
    """The version in a text such as `slurm-wlm 22.05.8`."""
    match = _NUMBER.search(text)
    return None if match is None else (int(match[1]), int(match[2]))
