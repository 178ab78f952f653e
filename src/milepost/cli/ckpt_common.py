"""What the verbs of `milepost ckpt` share: arguments, keys, tiers, output."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from milepost.errors import DataError

FOLDER = click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
GENERATION = click.argument("generation", required=False)
JSON = click.option("--json", "as_json", is_flag=True, help="Write JSON to stdout.")


def with_key(function: Callable[..., Any]) -> Callable[..., Any]:
    """Options that name a key; the function gets `key`, a UserKey or None."""

    @functools.wraps(function)
    def named(
        key_file: str | None, key_env: str | None, age_identity: str | None, **words: Any
    ) -> Any:
        return function(key=key_named(key_file, key_env, age_identity), **words)

    for option in (
        click.option("--age-identity", help="File with the age identity of that key."),
        click.option("--key-env", help="Environment variable with that key."),
        click.option("--key-file", help="File with the key of encrypted checkpoints."),
    ):
        named = option(named)
    return named


def store_at(folder: Path) -> Any:
    """The store in `folder`; a key exchange that was interrupted there is finished first."""
    from milepost.checkpoint.rekey import finish_rekeys
    from milepost.checkpoint.store import CheckpointStore

    if not folder.is_dir():
        raise DataError("there is no such folder", where=folder, fix="name a checkpoint folder")
    store = CheckpointStore(folder)
    finish_rekeys(store)
    return store


def none_in(folder: Path) -> str:
    more = f"; look into {folder / 'ckpt'}" if (folder / "ckpt").is_dir() else ""
    return f"no generations in {folder}{more}"


def newest(store: Any) -> str:
    names: list[str] = store.generations()
    if not names:
        raise DataError("holds no generation", where=store.folder)
    return names[0]


def key_named(
    key_file: str | None,
    key_env: str | None,
    age_identity: str | None = None,
    age_recipient: str | None = None,
) -> Any:
    from milepost.checkpoint.crypt import load_key

    given = {"key_file": key_file, "key_env": key_env}
    given |= {"age_identity": age_identity, "age_recipient": age_recipient}
    return load_key({k: v for k, v in given.items() if v} or None)


def remotes(warm: str | None, cold: str | None) -> list[Any]:
    from milepost.checkpoint.upload import Remote
    from milepost.tiers import open_tier

    places = {"warm": warm, "cold": cold}
    return [Remote(label, open_tier(place)) for label, place in places.items() if place]


def emit(value: Any, as_json: bool, text: str) -> None:
    click.echo(json.dumps(value, indent=2) if as_json else text)
