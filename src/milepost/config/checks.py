"""Checks that a schema cannot make."""

from __future__ import annotations

from collections.abc import Mapping, Set
from pathlib import Path
from typing import Any

from milepost.config.schema import Problem


def check_config(data: Mapping[str, Any], root: Path, known: Set[str]) -> list[Problem]:
    """Mistakes that need more than the schema; keys in `known` are already reported."""
    return []
