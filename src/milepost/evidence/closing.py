"""Carry a closeout out: look at everything, judge, and write table, report and records."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from milepost.config.contract import load_contract
from milepost.config.freeze import read_amendments
from milepost.config.inputs import find_inputs
from milepost.durable import atomic_file, read_json, write_json
from milepost.errors import ConfigError, DataError, Refused
from milepost.evidence import results
from milepost.evidence.account import account
from milepost.evidence.closeout import STILL, Acceptance, Closeout, Facts
from milepost.evidence.columns import no_collector
from milepost.evidence.control import controls
from milepost.evidence.crate import crate
from milepost.evidence.gather import gather
from milepost.evidence.items import items
from milepost.evidence.leftovers import leftovers
from milepost.evidence.public import public, public_page
from milepost.evidence.reconcile import Ask, ask_lease, reconcile, write
from milepost.evidence.records import record
from milepost.evidence.redact import without_credentials
from milepost.evidence.scheduler import SlurmWitness, witness_of
from milepost.evidence.superseded import (
    Superseded,
    check_successor,
    read_superseded,
    supersede,
)
from milepost.evidence.types import RunEvidence
from milepost.paths import RunPaths


@dataclass(frozen=True, slots=True)
class Closing:
    """A closeout with all that a report and the records say about it."""

    facts: Facts
    closeout: Closeout
    table: results.Merged
    now: str
    partial: bool


RECORDS = (
    "report.html",
    "record.json",
    "public.json",
    "public.md",
    "ro-crate-metadata.json",
)


def close(
    paths: RunPaths,
    *,
    now: str,
    partial: bool,
    accept: str | None = None,
    superseded_by: str | None = None,
    ask: Ask | None = None,
) -> Closing:
    """Judge a run and write everything; `now` is the time to record, as ISO 8601 with Z.

    Digests of all artifacts are compared unless `partial`. Idempotent. Raises Refused when
    `accept` or `superseded_by` meets a run on which somebody still works, ConfigError when
    `superseded_by` cannot be the successor.
    """
    if superseded_by is not None:
        check_successor(paths, superseded_by)
    with no_collector():
        return _close(paths, now, partial, accept, superseded_by, ask)


def _close(
    paths: RunPaths,
    now: str,
    partial: bool,
    accept: str | None,
    superseded_by: str | None,
    ask: Ask | None,
) -> Closing:
    run = gather(paths, deep=not partial)
    witness = ask or witness_of(run, ask_lease)
    verdicts = reconcile(run, witness)
    run = replace(run, shards=tuple(v.shard for v in verdicts))
    write(paths, verdicts)
    table = results.merge(run)
    facts = Facts(
        run,
        verdicts,
        account(run),
        controls(run),
        changed_inputs(run),
        read_amendments(paths),
        leftovers(run, witness.waiting if isinstance(witness, SlurmWitness) else {}),
        unwritable(paths.closeout),
    )
    closeout = Closeout(items(facts), _acceptances(paths), read_superseded(paths))
    if superseded_by is not None:
        _check_quiet(paths, closeout)
        note = supersede(paths, Superseded(superseded_by, now, accept))
        closeout = Closeout(closeout.items, closeout.accepted, note)
    elif accept is not None:
        closeout = _accept(paths, closeout, accept, now)
    closing = Closing(facts, closeout, table, now, partial)
    _publish(closing)
    return closing


def unwritable(folder: Path) -> list[str]:
    """What stands in the way of the records, if anything does."""
    return [why for name in RECORDS if (why := _obstacle(folder / name)) is not None]


def _obstacle(path: Path) -> str | None:
    folder = path.parent
    if folder.exists() and not folder.is_dir():
        return f"{path} cannot be written: {folder} is a file"
    if folder.is_dir() and not os.access(folder, os.W_OK):
        return f"{path} cannot be written: its folder is read-only"
    return f"{path} cannot be written: a folder has its name" if path.is_dir() else None


def changed_inputs(run: RunEvidence) -> list[str]:
    """Inputs of the frozen contract that are gone, new, or have another digest now."""
    if run.contract is None or run.spec is None:
        return []
    if run.paths.frozen_contract.exists():
        try:
            load_contract(run.paths)
        except DataError as error:
            return [str(error.what)]
    try:
        now = {p.path: p.digest for p in find_inputs(run.spec, run.paths.root)}
    except (ConfigError, OSError) as error:
        return [str(error)]
    then = {i["path"]: i["digest"] for i in run.contract["inputs"]}
    return sorted(name for name in now.keys() | then.keys() if now.get(name) != then.get(name))


def accepted_path(paths: RunPaths) -> Path:
    return paths.work / "accepted.json"


def _acceptances(paths: RunPaths) -> tuple[Acceptance, ...]:
    try:
        return tuple(Acceptance(**value) for value in read_json(accepted_path(paths)))
    except FileNotFoundError:
        return ()


def _accept(paths: RunPaths, closeout: Closeout, reason: str, now: str) -> Closeout:
    """Write down for ever why the open items are accepted."""
    _check_quiet(paths, closeout)
    open_ = {item.key: item.evidence for item in closeout.open_items}
    if not open_:
        return closeout
    all_ = (*closeout.accepted, Acceptance(reason, now, open_))
    plain = [{"reason": a.reason, "time": a.time, "items": dict(a.items)} for a in all_]
    write_json(accepted_path(paths), plain)
    return Closeout(closeout.items, all_, closeout.superseded)


def _check_quiet(paths: RunPaths, closeout: Closeout) -> None:
    for item in closeout.false_items:
        if item.key == STILL:
            raise Refused(
                f"somebody still works on the run: {item.evidence}",
                where=paths.work,
                fix="wait for it or end it, then accept what is left, or name the successor;"
                f" milepost status {paths.run}",
            )


def _publish(closing: Closing) -> None:
    """Write the records; the record itself comes last and proves that the others are there."""
    from milepost.evidence.report import render

    folder = closing.facts.run.paths.closeout
    open_record, whole = public(closing), without_credentials(record(closing))
    texts = {
        "public.json": _json(open_record),
        "public.md": public_page(open_record),
        "report.html": render(closing, whole),
        "ro-crate-metadata.json": _json(crate(closing, open_record)),
        "record.json": _json(whole),
    }
    for name, text in texts.items():
        if _obstacle(folder / name) is None:  # those that can be written name the others
            _write(folder / name, text)


def _json(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _write(path: Path, text: str) -> None:
    with atomic_file(path) as stream:
        stream.write(text)
