"""Find adapters by name."""

from __future__ import annotations

from pathlib import Path

from milepost.durable import digest_file
from milepost.errors import ConfigError
from milepost.resources import data_file


def adapter_names() -> list[str]:
    """Names of the adapters that come with milepost."""
    return sorted(path.stem for path in data_file("adapters", "command.yaml").parent.glob("*.yaml"))


def find_adapter(name: str) -> Path:
    """The file of an adapter; ConfigError when there is none of that name."""
    names = adapter_names()
    if name not in names:
        raise ConfigError(
            f"there is no adapter {name!r}",
            where="work.adapter",
            fix=f"take one of {', '.join(names)}",
        )
    return data_file("adapters", f"{name}.yaml")


def adapter_digest(name: str) -> str:
    """Digest of the content of an adapter."""
    return digest_file(find_adapter(name))
