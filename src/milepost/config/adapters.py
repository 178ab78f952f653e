"""Find adapters by name."""

from __future__ import annotations

from pathlib import Path

from milepost.durable import digest_file
from milepost.errors import ConfigError
from milepost.resources import data_file, load_yaml


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


def check_adapter(name: str) -> None:
    """ConfigError when the adapter is missing or does not follow its schema."""
    from jsonschema import Draft202012Validator

    path, schema = find_adapter(name), load_yaml("schemas", "adapter.schema.yaml")
    for error in Draft202012Validator(schema).iter_errors(load_yaml("adapters", path.name)):
        raise ConfigError(
            f"adapter {name} is wrong: {error.json_path}: {error.message}",
            where=path,
            fix="mend the adapter; workflow/schemas/adapter.schema.yaml describes its keys",
        )
