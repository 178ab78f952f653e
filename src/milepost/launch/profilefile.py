"""Read the file of profiles that a run names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from milepost.errors import ConfigError


def read_profile_file(name: str, root: Path) -> Any:
    """The parsed file; ConfigError when it is not there or no YAML."""
    import yaml

    path = root / name
    try:
        return yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ConfigError(
            f"planner.profiles names {name}, which is not there",
            where=path,
            fix="mend the path, or set planner.profiles to null",
        ) from error
    except yaml.YAMLError as error:
        raise ConfigError(f"is not YAML ({error})", where=path) from error
