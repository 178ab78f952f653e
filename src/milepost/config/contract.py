"""The contract: what a run is, frozen with a digest before its launch.

`frozen` holds what decides the results, `accepted` the rest. Both together are the whole
configuration of the run, so that everything after the contract reads the run from here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from milepost.config.build import build_run
from milepost.config.plain import json_digest, merge
from milepost.config.schema import config_schema, fill_defaults, schema_problems
from milepost.config.spec import RunSpec
from milepost.durable import read_json
from milepost.errors import DataError
from milepost.model import FileProof
from milepost.paths import RunPaths

SCHEMA = 1
ADAPTER_DIGEST = "adapter_digest"
"""Stands in `frozen` beside the keys of the configuration."""


@dataclass(frozen=True, slots=True)
class Contract:
    """A frozen contract; `spec` is the run as it was frozen, `data` the file as it stands."""

    run: str
    digest: str
    spec: RunSpec
    inputs: tuple[FileProof, ...]
    table: Mapping[str, Any]
    versions: Mapping[str, str]
    created: str
    data: Mapping[str, Any]


def load_contract(paths: RunPaths) -> Contract:
    """Read the frozen contract; DataError when it is damaged or there is none."""
    return parse_contract(read_contract(paths.frozen_contract))


def read_contract(path: Path) -> dict[str, Any]:
    """Read the data of a contract and check its version, its parts and its digest."""
    try:
        data = read_json(path)
    except FileNotFoundError as error:
        raise DataError(
            "there is no contract",
            where=path,
            fix=f"freeze it with `milepost contract {path.parent.name}`",
        ) from error
    if not isinstance(data, dict) or data.get("schema") != SCHEMA:
        version = data.get("schema") if isinstance(data, dict) else None
        raise DataError(
            f"has format version {version!r}, this milepost reads {SCHEMA}",
            where=path,
            fix="use the milepost that wrote it, or restore the file from a backup",
        )
    try:
        is_whole = data["digest"] == contract_digest(data["frozen"], data["inputs"])
    except (KeyError, TypeError) as error:
        raise DataError(f"is damaged ({error!r})", where=path, fix=_RESTORE) from error
    if not is_whole:
        raise DataError(
            "was changed by hand: its digest is not that of its content", where=path, fix=_RESTORE
        )
    return data


_RESTORE = "restore the file from a backup or its published copy, or take a new run name"


def parse_contract(data: Mapping[str, Any]) -> Contract:
    """The contract in `data`; DataError when it is damaged where no digest tells."""
    try:
        return _parse(data)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise DataError(f"the contract is damaged ({error!r})", fix=_RESTORE) from error


def _parse(data: Mapping[str, Any]) -> Contract:
    frozen = {key: value for key, value in data["frozen"].items() if key != ADAPTER_DIGEST}
    return Contract(
        run=data["run"],
        digest=data["digest"],
        spec=_spec(data["run"], merge(data["accepted"], frozen)),
        inputs=tuple(FileProof(i["path"], i["bytes"], i["digest"]) for i in data["inputs"]),
        table=data["table"],
        versions=data["versions"],
        created=data["created"],
        data=data,
    )


def _spec(run: str, keys: dict[str, Any]) -> RunSpec:
    """The run of a contract; keys that it lacks, since an older milepost wrote it, have their
    defaults."""
    try:
        return build_run(run, keys)
    except KeyError:
        schema = config_schema()["properties"]["runs"]["additionalProperties"]
        filled = fill_defaults(schema, keys)
        own = {key: value for key, value in filled.items() if key != "tiers"}
        problems = schema_problems(schema, own)
        if problems:
            raise ValueError("; ".join(map(str, problems))) from None
        return build_run(run, filled)


def contract_digest(frozen: Mapping[str, Any], inputs: Sequence[Mapping[str, Any]]) -> str:
    """`sha256:…` over what decides the results."""
    return json_digest({"frozen": frozen, "inputs": {i["path"]: i["digest"] for i in inputs}})
