"""milepost ckpt: look at checkpoints and handle them by hand."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from milepost.cli import ckpt_change
from milepost.cli.ckpt_common import (
    FOLDER,
    GENERATION,
    JSON,
    emit,
    newest,
    none_in,
    remotes,
    store_at,
    with_key,
)
from milepost.errors import DataError


@click.group()
def command() -> None:
    """Look at the checkpoints in FOLDER, restore and prune them, exchange their key."""


@command.command()
@FOLDER
@JSON
def ls(folder: Path, as_json: bool) -> None:
    """List the generations, newest first."""
    from milepost.checkpoint.verify import verify_generation

    store = store_at(folder)
    gold, counts, rows = store.gold(), store.restore_counts(), []
    for name in store.names():
        damages = verify_generation(store, name, deep=False)
        row: dict[str, Any] = {"generation": name, "ok": not damages, "gold": name in gold}
        row |= {"restores": counts.get(name, 0), "step": None, "created": None}
        row |= {"bytes": None, "bases": [], "damages": [str(damage) for damage in damages]}
        if not damages:
            manifest = store.manifest(name)
            row |= {"step": manifest.step, "created": manifest.created}
            row |= {"bytes": manifest.size_bytes, "bases": list(manifest.bases)}
        rows.append(row)
    emit(rows, as_json, "\n".join(map(_line, rows)) or none_in(folder))


@command.command()
@FOLDER
@GENERATION
@JSON
def show(folder: Path, generation: str | None, as_json: bool) -> None:
    """Show the manifest of GENERATION (the newest by default)."""
    store = store_at(folder)
    manifest = store.manifest(generation or newest(store)).as_json()
    emit(manifest, as_json, json.dumps(manifest, indent=2))


@command.command()
@FOLDER
@GENERATION
@with_key
@JSON
def verify(folder: Path, generation: str | None, key: Any, as_json: bool) -> None:
    """Read every byte of GENERATION (of all by default) and name each damage."""
    from milepost.checkpoint.verify import verify_generation

    store = store_at(folder)
    names = [generation] if generation else store.names()
    found = {name: verify_generation(store, name, key=key) for name in names}
    rows = [
        {"generation": name, "ok": not damages, "damages": [str(d) for d in damages]}
        for name, damages in found.items()
    ]
    lines = [
        "\n  ".join([f"{row['generation']}  {'ok' if row['ok'] else 'DAMAGED'}", *row["damages"]])  # type: ignore[misc]
        for row in rows
    ]
    emit(rows, as_json, "\n".join(lines) or none_in(folder))
    if any(found.values()):
        bad = [name for name, damages in found.items() if damages]
        raise DataError(
            f"{len(bad)} of {len(found)} generations are damaged: {', '.join(bad)}",
            where=folder,
            fix="a restart takes the newest intact one; see what the other tiers hold",
        )


@command.command()
@FOLDER
@click.argument("target", type=click.Path(path_type=Path, file_okay=False))
@click.option("--generation", help="Take this one instead of the newest intact one.")
@click.option("--allow", multiple=True, help="Accept this difference: container, gpu_profile, …")
@click.option("--warm", help="Also look in this place (path or URL).")
@click.option("--cold", help="Also look in this place (path or URL).")
@with_key
@JSON
def restore(
    folder: Path,
    target: Path,
    generation: str | None,
    allow: tuple[str, ...],
    warm: str | None,
    cold: str | None,
    key: Any,
    as_json: bool,
) -> None:
    """Write what a generation holds into the new folder TARGET.

    Application files come out as they were; arrays as one .npy file each, per rank, beside
    meta.json.
    """
    from milepost.checkpoint.export import export_generation

    far = remotes(warm, cold)
    found = export_generation(store_at(folder), target, generation, allow, far, key)
    lines = [f"step {found['step']} of {found['generation']} ({found['tier']}) is in {target}"]
    lines += [f"passed over {damage}" for damage in found["damages"]]
    if found["damages"]:
        steps, seconds = found["lost"]["steps"], found["lost"]["seconds"]
        lost_s = "n/a" if seconds is None else f"{seconds:.1f}"
        lines.append(f"lost {'n/a' if steps is None else steps} steps, {lost_s} s of work")
    emit(found, as_json, "\n".join(lines))


@command.command()
@FOLDER
@click.argument("first")
@click.argument("second")
@with_key
@JSON
def diff(folder: Path, first: str, second: str, key: Any, as_json: bool) -> None:
    """Tell what changed from generation FIRST to SECOND, array by array."""
    from milepost.checkpoint.diff import diff_generations

    changes = diff_generations(store_at(folder), first, second, key)
    lines = [_change_line(change) for change in changes if change.how != "same"]
    lines.append(f"{sum(change.how == 'same' for change in changes)} are the same")
    emit([change.as_json() for change in changes], as_json, "\n".join(lines))


@command.command()
@FOLDER
@JSON
def audit(folder: Path, as_json: bool) -> None:
    """Show who did what to these checkpoints, and prove the log unbroken."""
    from milepost.checkpoint.audit import read_audit

    store = store_at(folder)
    found = read_audit(folder)
    problems = [*found.problems, *_unlike(store, found.content)]
    lines = [_audit_line(record) for record in found.records]
    lines.append(f"{len(found.records)} records, the last one is {found.head}")
    value = {"records": list(found.records), "head": found.head, "problems": problems}
    emit(value, as_json, "\n".join(lines))
    if problems:
        raise DataError(
            "the audit log is broken:\n  " + "\n  ".join(problems),
            where=folder,
            fix="find out who can write there; `milepost ckpt verify` reads the data itself",
        )


def _unlike(store: Any, content: Mapping[str, str]) -> list[str]:
    """Generations that are not what was recorded of them."""
    found = []
    for name in store.generations():
        flag = (store.path(name) / "OK").read_text(encoding="ascii", errors="replace").strip()
        if name not in content:
            found.append(f"{name} is there, and nobody recorded it")
        elif content[name] != flag:
            found.append(f"{name} is not what was recorded: its manifest is another one")
    return found


def _audit_line(record: Mapping[str, Any]) -> str:
    words = [str(record.get(name)) for name in ("n", "time", "what", "generation")]
    tier = record.get("tier")
    line = f"{words[0]:>5}  {words[1]}  uid {record.get('uid')}  {words[2]:<8}  {words[3]}"
    return line if tier is None else f"{line}  ({tier})"


def _change_line(change: Any) -> str:
    where = "" if change.rank is None else f"rank {change.rank}  "
    text = f"{where}{change.name}  {change.how}  {change.size_bytes / 1e6:,.3f} MB"
    if change.changed_blocks is not None:
        share = change.changed_blocks / change.blocks
        text += f"  {share:.1%} of blocks, {change.changed_bytes:,} bytes"
        far = "n/a" if change.max_abs is None else f"{change.max_abs:g}"
        text += f", at most {far} apart"
    return text


def _line(row: dict[str, Any]) -> str:
    marks = [word for word, is_so in (("gold", row["gold"]), ("delta", row["bases"])) if is_so]
    if not row["ok"]:
        return f"{row['generation']}  DAMAGED  {'; '.join(row['damages'])}"
    size = f"{row['bytes'] / 1e6:,.4g} MB"
    return f"{row['generation']}  step {row['step']:>10}  {size:>14}  {row['created']}  {' '.join(marks)}".rstrip()


for _verb in ("add", "prune", "force", "gold", "release", "rekey", "keys"):
    command.add_command(getattr(ckpt_change, _verb))
