"""milepost ckpt: look at checkpoints and handle them by hand."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click

from milepost.errors import ConfigError, DataError, MilepostError

_FOLDER = click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
_GENERATION = click.argument("generation", required=False)
_JSON = click.option("--json", "as_json", is_flag=True, help="Write JSON to stdout.")


def _with_key(function: Callable[..., Any]) -> Callable[..., Any]:
    """Options that name a key; the function gets `key`, a UserKey or None."""

    @functools.wraps(function)
    def with_key(
        key_file: str | None, key_env: str | None, age_identity: str | None, **words: Any
    ) -> Any:
        return function(key=_key(key_file, key_env, age_identity), **words)

    for option in (
        click.option("--age-identity", help="File with the age identity of that key."),
        click.option("--key-env", help="Environment variable with that key."),
        click.option("--key-file", help="File with the key of encrypted checkpoints."),
    ):
        with_key = option(with_key)
    return with_key


@click.group()
def command() -> None:
    """Look at the checkpoints in FOLDER, restore and prune them, exchange their key."""


@command.command()
@_FOLDER
@_JSON
def ls(folder: Path, as_json: bool) -> None:
    """List the generations, newest first."""
    from milepost.checkpoint.verify import verify_generation

    store = _store(folder)
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
    _emit(rows, as_json, "\n".join(map(_line, rows)) or _none(folder))


@command.command()
@_FOLDER
@_GENERATION
@_JSON
def show(folder: Path, generation: str | None, as_json: bool) -> None:
    """Show the manifest of GENERATION (the newest by default)."""
    store = _store(folder)
    manifest = store.manifest(generation or _newest(store)).as_json()
    _emit(manifest, as_json, json.dumps(manifest, indent=2))


@command.command()
@_FOLDER
@_GENERATION
@_with_key
@_JSON
def verify(folder: Path, generation: str | None, key: Any, as_json: bool) -> None:
    """Read every byte of GENERATION (of all by default) and name each damage."""
    from milepost.checkpoint.verify import verify_generation

    store = _store(folder)
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
    _emit(rows, as_json, "\n".join(lines) or _none(folder))
    if any(found.values()):
        bad = [name for name, damages in found.items() if damages]
        raise DataError(
            f"{len(bad)} of {len(found)} generations are damaged: {', '.join(bad)}",
            where=folder,
            fix="a restart takes the newest intact one; see what the other tiers hold",
        )


@command.command()
@_FOLDER
@click.argument("target", type=click.Path(path_type=Path, file_okay=False))
@click.option("--generation", help="Take this one instead of the newest intact one.")
@click.option("--allow", multiple=True, help="Accept this difference: container, gpu_profile, …")
@click.option("--warm", help="Also look in this place (path or URL).")
@click.option("--cold", help="Also look in this place (path or URL).")
@_with_key
@_JSON
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

    remotes = _remotes(warm, cold)
    found = export_generation(_store(folder), target, generation, allow, remotes, key)
    lines = [f"step {found['step']} of {found['generation']} ({found['tier']}) is in {target}"]
    lines += [f"passed over {damage}" for damage in found["damages"]]
    if found["damages"]:
        steps, seconds = found["lost"]["steps"], found["lost"]["seconds"]
        lost_s = "n/a" if seconds is None else f"{seconds:.1f}"
        lines.append(f"lost {'n/a' if steps is None else steps} steps, {lost_s} s of work")
    _emit(found, as_json, "\n".join(lines))


@command.command()
@_FOLDER
@click.option("--rotation", default=3, show_default=True, help="Keep the newest N verified.")
@click.option("--gold-every", type=int, help="Keep every k-th generation as well.")
@click.option("--ttl-days", type=float, help="… until it is this old.")
@click.option("--max-gap-hours", type=float, help="Keep so many that none are further apart.")
@click.option("--dry-run", is_flag=True, help="Only tell.")
@_with_key
@_JSON
def prune(
    folder: Path,
    rotation: int,
    gold_every: int | None,
    ttl_days: float | None,
    max_gap_hours: float | None,
    dry_run: bool,
    key: Any,
    as_json: bool,
) -> None:
    """Delete old generations; never a base of a kept one, never the last good one."""
    from milepost.checkpoint.options import parse_options
    from milepost.checkpoint.prune import prune as apply
    from milepost.checkpoint.session import retention_of

    given = {"rotation": rotation, "gold_every": gold_every, "ttl_days": ttl_days}
    gap_s = None if max_gap_hours is None else max_gap_hours * 3600
    rules = retention_of(parse_options({**given, "max_gap_s": gap_s}))
    gone = apply(_store(folder), rules, key=key, is_dry=dry_run)
    word = "would delete" if dry_run else "deleted"
    text = "\n".join(f"{word} {name}" for name in gone) or "nothing to delete"
    _emit({"deleted": list(gone), "dry_run": dry_run}, as_json, text)


@command.command()
@_FOLDER
@click.option("--stop", is_flag=True, help="The application is to end after it, with 75.")
@click.option("--timeout", "timeout_s", default=600.0, show_default=True, help="Wait seconds.")
@_JSON
def force(folder: Path, stop: bool, timeout_s: float, as_json: bool) -> None:
    """Ask the application that checkpoints into FOLDER for one now, and wait for it."""
    from milepost.checkpoint.request import force as ask

    manifest = ask(_store(folder), stop=stop, timeout_s=timeout_s)
    found = {"generation": manifest.name, "step": manifest.step, "created": manifest.created}
    _emit(found, as_json, f"{manifest.name}  step {manifest.step}  {manifest.created}")


@command.command()
@_FOLDER
@click.argument("generation")
@click.option("--off", is_flag=True, help="Take the mark back.")
@_JSON
def gold(folder: Path, generation: str, off: bool, as_json: bool) -> None:
    """Mark GENERATION to be kept for good."""
    store = _store(folder)
    store.set_gold(generation, not off)
    marks = sorted(store.gold())
    _emit({"gold": marks}, as_json, f"gold: {', '.join(marks) or 'none'}")


@command.command()
@_FOLDER
@click.argument("generation")
@_JSON
def release(folder: Path, generation: str, as_json: bool) -> None:
    """Take GENERATION out of quarantine: it may be restored again."""
    store = _store(folder)
    store.manifest(generation)
    store.clear_restore(generation)
    _emit({"released": generation}, as_json, f"{generation} may be restored again")


@command.command()
@_FOLDER
@click.argument("first")
@click.argument("second")
@_with_key
@_JSON
def diff(folder: Path, first: str, second: str, key: Any, as_json: bool) -> None:
    """Tell what changed from generation FIRST to SECOND, array by array."""
    from milepost.checkpoint.diff import diff_generations

    changes = diff_generations(_store(folder), first, second, key)
    lines = [_change_line(change) for change in changes if change.how != "same"]
    lines.append(f"{sum(change.how == 'same' for change in changes)} are the same")
    _emit([change.as_json() for change in changes], as_json, "\n".join(lines))


@command.command()
@_FOLDER
@_JSON
def audit(folder: Path, as_json: bool) -> None:
    """Show who did what to these checkpoints, and prove the log unbroken."""
    from milepost.checkpoint.audit import read_audit

    store = _store(folder)
    found = read_audit(folder)
    problems = [*found.problems, *_unlike(store, found.content)]
    lines = [_audit_line(record) for record in found.records]
    lines.append(f"{len(found.records)} records, the last one is {found.head}")
    value = {"records": list(found.records), "head": found.head, "problems": problems}
    _emit(value, as_json, "\n".join(lines))
    if problems:
        raise DataError(
            "the audit log is broken:\n  " + "\n  ".join(problems),
            where=folder,
            fix="find out who can write there; `milepost ckpt verify` reads the data itself",
        )


@command.command()
@_FOLDER
@_with_key
@click.option("--new-key-file", help="File with the new key.")
@click.option("--new-key-env", help="Environment variable with the new key.")
@click.option("--new-age-recipient", help="New recipient of the age command.")
@click.option("--new-age-identity", help="File with the new age identity.")
@click.option("--warm", help="Also exchange it in this place (path or URL).")
@click.option("--cold", help="Also exchange it in this place (path or URL).")
@_JSON
def rekey(
    folder: Path,
    key: Any,
    new_key_file: str | None,
    new_key_env: str | None,
    new_age_recipient: str | None,
    new_age_identity: str | None,
    warm: str | None,
    cold: str | None,
    as_json: bool,
) -> None:
    """Wrap the data keys of all generations under a new key; no data is written.

    No job should be saving into FOLDER meanwhile. Copies in other tiers keep the old key unless
    they are named: then only first pages, manifests and flags are sent there. May be interrupted
    and run again; each generation is under one of both keys at any time, see `keys`.
    """
    from milepost.checkpoint.rekey import rekey as apply
    from milepost.checkpoint.rekey_far import rekey_remote

    new = _key(new_key_file, new_key_env, new_age_identity, new_age_recipient)
    if key is None or new is None:
        raise ConfigError(
            "rekey needs the old key and the new one", fix="give --key-file and --new-key-file"
        )
    store, found = _store(folder), {}
    try:
        found["scratch"] = apply(store, key, new)
        for remote in _remotes(warm, cold):
            found[remote.label] = rekey_remote(store, remote, key, new)
    except MilepostError as error:
        error.add_note(
            "not every generation is under the new key; `milepost ckpt keys` tells which is under "
            "which, and the same command goes on"
        )
        raise
    files = {tier: {item.generation: item.files for item in done} for tier, done in found.items()}
    lines = [f"{t}  {name}  {n} files" for t, each in files.items() for name, n in each.items()]
    value = {"key_id": new.key_id, "files": files.pop("scratch"), "tiers": files}
    _emit(value, as_json, "\n".join(lines) or "no generations")


@command.command()
@_FOLDER
@click.option("--warm", help="Also look in this place (path or URL).")
@click.option("--cold", help="Also look in this place (path or URL).")
@_JSON
def keys(folder: Path, warm: str | None, cold: str | None, as_json: bool) -> None:
    """Tell under which key each generation is, here and in other tiers. Needs no key."""
    from milepost.checkpoint.rekey import keys_of
    from milepost.checkpoint.rekey_far import keys_there

    store = _store(folder)
    rows = [_keys_row("scratch", name, keys_of(store, name)) for name in store.generations()]
    for remote in _remotes(warm, cold):
        names = remote.generations()
        rows += [_keys_row(remote.label, name, keys_there(remote, name)) for name in names]
    lines = [f"{r['tier']}  {r['generation']}  {', '.join(r['key_ids']) or 'none'}" for r in rows]
    _emit(rows, as_json, "\n".join(lines) or _none(folder))


def _keys_row(tier: str, generation: str, key_ids: tuple[str, ...]) -> dict[str, Any]:
    return {"tier": tier, "generation": generation, "key_ids": list(key_ids)}


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


def _store(folder: Path) -> Any:
    from milepost.checkpoint.store import CheckpointStore

    if not folder.is_dir():
        raise DataError("there is no such folder", where=folder, fix="name a checkpoint folder")
    return CheckpointStore(folder)


def _none(folder: Path) -> str:
    more = f"; look into {folder / 'ckpt'}" if (folder / "ckpt").is_dir() else ""
    return f"no generations in {folder}{more}"


def _newest(store: Any) -> str:
    names: list[str] = store.generations()
    if not names:
        raise DataError("holds no generation", where=store.folder)
    return names[0]


def _key(
    key_file: str | None,
    key_env: str | None,
    age_identity: str | None = None,
    age_recipient: str | None = None,
) -> Any:
    from milepost.checkpoint.crypt import load_key

    given = {"key_file": key_file, "key_env": key_env}
    given |= {"age_identity": age_identity, "age_recipient": age_recipient}
    return load_key({k: v for k, v in given.items() if v} or None)


def _remotes(warm: str | None, cold: str | None) -> list[Any]:
    from milepost.checkpoint.upload import Remote
    from milepost.tiers import open_tier

    places = {"warm": warm, "cold": cold}
    return [Remote(label, open_tier(place)) for label, place in places.items() if place]


def _line(row: dict[str, Any]) -> str:
    marks = [word for word, is_so in (("gold", row["gold"]), ("delta", row["bases"])) if is_so]
    if not row["ok"]:
        return f"{row['generation']}  DAMAGED  {'; '.join(row['damages'])}"
    size = f"{row['bytes'] / 1e6:,.4g} MB"
    return f"{row['generation']}  step {row['step']:>10}  {size:>14}  {row['created']}  {' '.join(marks)}".rstrip()


def _emit(value: Any, as_json: bool, text: str) -> None:
    click.echo(json.dumps(value, indent=2) if as_json else text)
