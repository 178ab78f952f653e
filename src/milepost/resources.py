"""Find the data files that come with milepost: schemas, policies, adapters.

In a checkout they stand in workflow/, where users look for them; in an installed package they
are copied below the package.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from milepost.errors import ConfigError

_PACKAGE = Path(__file__).resolve().parent


def data_file(kind: str, name: str) -> Path:
    """Path of `kind/name`, kind being `schemas`, `policies` or `adapters`."""
    for folder in (_PACKAGE.parents[1] / "workflow", _PACKAGE / "_data"):
        path = folder / kind / name
        if path.is_file():
            return path
    raise ConfigError(
        f"there is no {kind}/{name}", where=_PACKAGE, fix="mend the installation of milepost"
    )


def load_yaml(kind: str, name: str) -> Any:
    """Parse a data file that comes with milepost."""
    import yaml  # a shard that fails nowhere reads no YAML

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return yaml.load(data_file(kind, name).read_text(encoding="utf-8"), Loader=loader)
