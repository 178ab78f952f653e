"""What the pre-production checklist is judged by: contract, smoke test, plan and the places.

Reads only; every tier is asked for its room, and a local one whether it may be written.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from milepost.checkpoint.crypt import load_key
from milepost.checkpoint.manifest import Manifest
from milepost.checkpoint.metrics import metric_names
from milepost.checkpoint.store import CheckpointStore
from milepost.checkpoint.verify import verify_generation
from milepost.config.contract import parse_contract, read_contract
from milepost.config.spec import RunSpec
from milepost.config.versions import find_versions
from milepost.durable import read_json
from milepost.errors import DataError, MilepostError
from milepost.evidence.public_texts import Withheld, public_texts
from milepost.evidence.redact import find_credentials
from milepost.evidence.types import RunEvidence
from milepost.paths import RunPaths
from milepost.resources import load_yaml
from milepost.tiers import open_tier

_METRIC = re.compile(r"\bmilepost_[a-z0-9_]+")
_TABLE_BYTES = 1 << 20
"""So much of the task table is looked through for credentials."""


@dataclass(frozen=True, slots=True)
class Rehearsed:
    """What a shard of the smoke slice left: its newest generation, None when there is none."""

    folder: str
    newest: Manifest | None
    damages: tuple[str, ...]
    uploaded: bool
    metrics: frozenset[str]
    """Names of the metrics that it wrote."""


@dataclass(frozen=True, slots=True)
class Place:
    """A tier, or the folder of the run. Bytes are None where it does not tell; `problem` says why
    it cannot be used or looked at."""

    name: str
    place: str
    free_bytes: int | None = None
    total_bytes: int | None = None
    is_shared: bool = False
    """It lies on the file system of the workflow's folder, which outlives every node."""
    problem: str | None = None
    is_known_later: bool = False
    """Its path holds a variable that only the job knows."""


@dataclass(frozen=True, slots=True)
class Alerts:
    """The alert rules that come with milepost; `unknown` are metrics that nobody writes."""

    count: int
    unknown: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Facts:
    """Everything that the checks look at; a part that is not there is None."""

    run: str
    spec: RunSpec | None
    contract: Mapping[str, Any] | None
    smoke: Mapping[str, Any] | None
    plan: Mapping[str, Any] | None
    changed_inputs: tuple[str, ...] = ()
    versions: Mapping[str, str] | None = None
    rehearsed: tuple[Rehearsed, ...] = ()
    places: tuple[Place, ...] = ()
    alerts: Alerts = Alerts(0, ())
    withheld: tuple[Withheld, ...] = ()
    credentials: tuple[str, ...] = ()
    key_problem: str | None = None


def gather_facts(paths: RunPaths, *, quick: bool = False) -> Facts:
    """Look at everything. A file that is damaged counts as not there; its check names it.

    `quick` reads neither inputs nor checkpoints to their end: they are taken for what they were
    a moment ago, when they were frozen and tested.
    """
    from milepost.evidence.closing import changed_inputs

    contract = _contract(paths)
    smoke, plan = _json(paths.smoke), _json(paths.plan)
    if contract is None:
        return Facts(paths.run, None, None, smoke, plan)
    spec = parse_contract(contract).spec
    run = RunEvidence(paths, spec, contract, None, smoke, plan, None, ())
    return Facts(
        run=paths.run,
        spec=spec,
        contract=contract,
        smoke=smoke,
        plan=plan,
        changed_inputs=() if quick else tuple(changed_inputs(run)),
        versions=find_versions(spec.software),
        rehearsed=tuple(_rehearsed(paths, contract["digest"], deep=not quick)),
        places=look_at_places(paths, spec),
        alerts=_alerts(),
        withheld=public_texts(run).withheld,
        credentials=tuple(_credentials(paths, contract)),
        key_problem=_key_problem(spec),
    )


def _contract(paths: RunPaths) -> Mapping[str, Any] | None:
    try:
        return read_contract(paths.frozen_contract)
    except DataError:
        return None


def _json(path: Path) -> Mapping[str, Any] | None:
    try:
        value = read_json(path)
    except (FileNotFoundError, DataError):
        return None
    return value if isinstance(value, dict) else None


def _rehearsed(paths: RunPaths, digest: str, *, deep: bool) -> Iterator[Rehearsed]:
    root = paths.smoke_place(digest) / "undisturbed"
    own = RunPaths(paths.run, root)
    for folder in sorted((root / "scratch" / paths.run).glob("*/ckpt")):
        store, shard = CheckpointStore(folder), folder.parent.name
        names = store.generations()
        newest, damages = _newest(store, names, deep)
        warm = CheckpointStore(root / "warm" / paths.run / shard / "ckpt")
        yield Rehearsed(
            str(folder), newest, damages, bool(warm.generations()), _metrics(own.metrics(shard))
        )


def _newest(
    store: CheckpointStore, names: Sequence[str], deep: bool
) -> tuple[Manifest | None, tuple[str, ...]]:
    if not names:
        return None, ()
    damages = tuple(str(damage) for damage in verify_generation(store, names[0], deep=deep))
    try:
        return store.manifest(names[0]), damages
    except DataError:
        return None, damages


def _metrics(path: Path) -> frozenset[str]:
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return frozenset()
    return frozenset(
        _METRIC.findall("\n".join(line for line in text.splitlines() if line[:1] != "#"))
    )


def look_at_places(paths: RunPaths, spec: RunSpec) -> tuple[Place, ...]:
    """The folder of the run and its tiers, with their room."""
    tiers = {"scratch": spec.tiers.scratch, "warm": spec.tiers.warm, "cold": spec.tiers.cold}
    places = [_folder("work", str(paths.work), paths.root)]
    return (*places, *(_tier(n, p, paths.root) for n, p in tiers.items() if p is not None))


def _tier(name: str, place: str, root: Path) -> Place:
    if "$" in os.path.expandvars(place):
        return Place(name, place, is_known_later=True)
    if "://" not in place:
        return _folder(name, os.path.expandvars(os.path.expanduser(place)), root)
    try:
        tier = open_tier(place, retry_limit=0)
        tier.list("preflight")
        return Place(name, place, tier.free_bytes())
    except (MilepostError, OSError, ImportError) as error:
        return Place(name, place, problem=f"cannot be listed: {error}")


def _folder(name: str, place: str, root: Path) -> Place:
    """A path relative to the workflow's folder is one of its folders."""
    folder = (root / place).absolute()
    while not folder.exists():
        folder = folder.parent
    problem = None if os.access(folder, os.W_OK) else f"{folder} may not be written"
    usage = shutil.disk_usage(folder)
    is_shared = folder.stat().st_dev == root.absolute().stat().st_dev
    return Place(name, place, usage.free, usage.total, is_shared, problem)


def _alerts() -> Alerts:
    rules = [
        rule
        for group in load_yaml("policies", "alerts.yaml")["groups"]
        for rule in group["rules"]
        if "alert" in rule
    ]
    named = {name for rule in rules for name in _METRIC.findall(str(rule["expr"]))}
    return Alerts(len(rules), tuple(sorted(named - metric_names())))


def _credentials(paths: RunPaths, contract: Mapping[str, Any]) -> Iterator[str]:
    """Where in the contract or the task table something looks like a password, token or key."""
    for key, text in _leaves({"frozen": contract["frozen"], "accepted": contract["accepted"]}):
        label = key.rpartition(".")[2]  # LAB_TOKEN tells what its value is
        if any(leak.end > len(label) for leak in find_credentials(f"{label}={text}")):
            yield key.partition(".")[2]
    table = paths.root / str(contract["table"]["path"])
    if table.is_file():
        with table.open("rb") as stream:
            text = stream.read(_TABLE_BYTES).decode("utf-8", "replace")
        yield from (f"{contract['table']['path']}:{leak.line}" for leak in find_credentials(text))


def _leaves(value: Any, key: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield key, value
    elif isinstance(value, Mapping):
        for name, item in value.items():
            yield from _leaves(item, f"{key}.{name}" if key else str(name))
    elif isinstance(value, Sequence):
        for number, item in enumerate(value):
            yield from _leaves(item, f"{key}[{number}]")


def _key_problem(spec: RunSpec) -> str | None:
    from dataclasses import asdict

    if spec.checkpoint.encrypt is None:
        return None
    try:
        load_key(asdict(spec.checkpoint.encrypt))
    except MilepostError as error:
        return str(error.what)
    return None
