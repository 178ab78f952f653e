"""Carry a closeout out: look at everything, judge, and write table, report and records."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from milepost.config.contract import load_contract
from milepost.config.freeze import read_amendments
from milepost.config.inputs import find_inputs
from milepost.durable import atomic_file, read_json, write_json
from milepost.errors import ConfigError, DataError, Refused
from milepost.evidence import results
from milepost.evidence.account import account
from milepost.evidence.closeout import Acceptance, Closeout, Facts
from milepost.evidence.control import controls
from milepost.evidence.crate import crate
from milepost.evidence.gather import gather
from milepost.evidence.items import items
from milepost.evidence.public import public, public_page
from milepost.evidence.reconcile import Ask, reconcile, write
from milepost.evidence.records import record
from milepost.evidence.redact import without_credentials
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


def close(
    paths: RunPaths, *, now: str, partial: bool, accept: str | None = None, ask: Ask | None = None
) -> Closing:
    """Judge a run and write everything; `now` is the time to record, as ISO 8601 with Z.

    Digests of all artifacts are compared unless `partial`. Idempotent. Raises Refused when
    `accept` meets a run on which somebody still works.
    """
    run = gather(paths, deep=not partial)
    verdicts = reconcile(run, ask)
    write(paths, verdicts)
    table = results.merge(run)
    changed, amended = changed_inputs(run), read_amendments(paths)
    facts = Facts(run, verdicts, account(run), controls(run), changed, amended)
    closeout = Closeout(items(facts), _acceptances(paths))
    if accept is not None:
        closeout = _accept(paths, closeout, accept, now)
    closing = Closing(facts, closeout, table, now, partial)
    _publish(closing)
    return closing


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
    open_ = {item.key: item.evidence for item in closeout.open_items}
    if "nothing_running" in open_:
        raise Refused(
            f"somebody still works on the run: {open_['nothing_running']}",
            where=paths.work,
            fix=f"wait for it or end it, then accept what is left; milepost status {paths.run}",
        )
    if not open_:
        return closeout
    all_ = (*closeout.accepted, Acceptance(reason, now, open_))
    plain = [{"reason": a.reason, "time": a.time, "items": dict(a.items)} for a in all_]
    write_json(accepted_path(paths), plain)
    return Closeout(closeout.items, all_)


def _publish(closing: Closing) -> None:
    """Write the records; the record itself comes last and proves that the others are there."""
    from milepost.evidence.report import render

    folder = closing.facts.run.paths.closeout
    open_record, whole = public(closing), without_credentials(record(closing))
    write_json(folder / "public.json", open_record)
    _write(folder / "public.md", public_page(open_record))
    _write(folder / "report.html", render(closing, whole))
    write_json(folder / "ro-crate-metadata.json", crate(closing, open_record))
    write_json(folder / "record.json", whole)


def _write(path: Path, text: str) -> None:
    with atomic_file(path) as stream:
        stream.write(text)
