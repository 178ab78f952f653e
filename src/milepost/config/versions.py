"""Versions of what does the work, as installed."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from importlib import metadata

from milepost import __version__


def find_versions(software: Sequence[str]) -> dict[str, str]:
    """Versions of python, milepost and those of `software` that are installed Python packages."""
    versions = {"python": platform.python_version(), "milepost": __version__}
    for name in software:
        try:
            versions[name] = metadata.version(name)
        except (metadata.PackageNotFoundError, ValueError):
            continue  # a program of another kind, a version of which nobody declares
    return versions
