"""The verbs of `milepost ckpt` that change something."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from milepost.cli.ckpt_common import (
    FOLDER,
    JSON,
    emit,
    key_named,
    none_in,
    remotes,
    store_at,
    with_key,
)
from milepost.errors import ConfigError, MilepostError


@click.command()
@FOLDER
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--step", required=True, type=int, help="Step of the computation.")
@click.option(
    "--capture",
    default="auto",
    show_default=True,
    help="auto: shared blocks where the file system has them, else a copy. link: a hard link, for "
    "files that the application never writes to again. reflink, copy.",
)
@click.option(
    "--base",
    type=click.Path(path_type=Path, file_okay=False),
    default=".",
    show_default=True,
    help="Names in the generation are relative to this folder.",
)
@click.option("--rotation", type=int, help="Afterwards keep the newest N verified.")
@click.option("--warm", help="Also send it to this place (path or URL), and prove it there.")
@JSON
def add(
    folder: Path,
    files: tuple[Path, ...],
    step: int,
    capture: str,
    base: Path,
    rotation: int | None,
    warm: str | None,
    as_json: bool,
) -> None:
    """Commit FILES, which an application wrote, as one generation of FOLDER.

    They must not change meanwhile. `restore` writes them out again.
    """
    from milepost.checkpoint.files import commit_files
    from milepost.checkpoint.prune import prune as apply
    from milepost.checkpoint.retention import Retention
    from milepost.checkpoint.store import CheckpointStore
    from milepost.checkpoint.upload import upload_generation

    store = CheckpointStore(folder)
    store.clean()
    manifest = commit_files(store, step, _named(files, base), capture=capture)
    proofs = []
    for remote in remotes(warm, None):
        remote.tier.clean()
        proofs = upload_generation(store, manifest.name, remote.tier, remote.prefix)
    gone = [] if rotation is None else apply(store, Retention(rotation))
    found = {"generation": manifest.name, "step": step, "bytes": manifest.size_bytes}
    found |= {"sent": [proof.as_json() for proof in proofs], "deleted": list(gone)}
    emit(found, as_json, f"{manifest.name}  step {step}  {manifest.size_bytes / 1e6:,.4g} MB")


def _named(files: tuple[Path, ...], base: Path) -> dict[str, Path]:
    """Name in the generation -> path; what lies outside of `base` is refused."""
    named = {}
    for path in files:
        try:
            named[path.absolute().relative_to(base.absolute()).as_posix()] = path
        except ValueError as error:
            raise ConfigError(
                f"lies outside of {base}", where=path, fix="name the folder above it with --base"
            ) from error
    return named


@click.command()
@FOLDER
@click.option("--rotation", default=3, show_default=True, help="Keep the newest N verified.")
@click.option("--gold-every", type=int, help="Keep every k-th generation as well.")
@click.option("--ttl-days", type=float, help="… until it is this old.")
@click.option("--max-gap-hours", type=float, help="Keep so many that none are further apart.")
@click.option("--dry-run", is_flag=True, help="Only tell.")
@with_key
@JSON
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
    gone = apply(store_at(folder), rules, key=key, is_dry=dry_run)
    word = "would delete" if dry_run else "deleted"
    text = "\n".join(f"{word} {name}" for name in gone) or "nothing to delete"
    emit({"deleted": list(gone), "dry_run": dry_run}, as_json, text)


@click.command()
@FOLDER
@click.option("--stop", is_flag=True, help="The application is to end after it, with 75.")
@click.option("--timeout", "timeout_s", default=600.0, show_default=True, help="Wait seconds.")
@JSON
def force(folder: Path, stop: bool, timeout_s: float, as_json: bool) -> None:
    """Ask the application that checkpoints into FOLDER for one now, and wait for it."""
    from milepost.checkpoint.request import force as ask

    manifest = ask(store_at(folder), stop=stop, timeout_s=timeout_s)
    found = {"generation": manifest.name, "step": manifest.step, "created": manifest.created}
    emit(found, as_json, f"{manifest.name}  step {manifest.step}  {manifest.created}")


@click.command()
@FOLDER
@click.argument("generation")
@click.option("--off", is_flag=True, help="Take the mark back.")
@JSON
def gold(folder: Path, generation: str, off: bool, as_json: bool) -> None:
    """Mark GENERATION to be kept for good."""
    store = store_at(folder)
    store.set_gold(generation, not off)
    marks = sorted(store.gold())
    emit({"gold": marks}, as_json, f"gold: {', '.join(marks) or 'none'}")


@click.command()
@FOLDER
@click.argument("generation")
@JSON
def release(folder: Path, generation: str, as_json: bool) -> None:
    """Take GENERATION out of quarantine: it may be restored again."""
    store = store_at(folder)
    store.manifest(generation)
    store.clear_restore(generation)
    emit({"released": generation}, as_json, f"{generation} may be restored again")


@click.command()
@FOLDER
@with_key
@click.option("--new-key-file", help="File with the new key.")
@click.option("--new-key-env", help="Environment variable with the new key.")
@click.option("--new-age-recipient", help="New recipient of the age command.")
@click.option("--new-age-identity", help="File with the new age identity.")
@click.option("--warm", help="Also exchange it in this place (path or URL).")
@click.option("--cold", help="Also exchange it in this place (path or URL).")
@JSON
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

    new = key_named(new_key_file, new_key_env, new_age_identity, new_age_recipient)
    if key is None or new is None:
        raise ConfigError(
            "rekey needs the old key and the new one", fix="give --key-file and --new-key-file"
        )
    store, found = store_at(folder), {}
    try:
        found["scratch"] = apply(store, key, new)
        for remote in remotes(warm, cold):
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
    emit(value, as_json, "\n".join(lines) or "no generations")


@click.command()
@FOLDER
@click.option("--warm", help="Also look in this place (path or URL).")
@click.option("--cold", help="Also look in this place (path or URL).")
@JSON
def keys(folder: Path, warm: str | None, cold: str | None, as_json: bool) -> None:
    """Tell under which key each generation is, here and in other tiers. Needs no key."""
    from milepost.checkpoint.rekey import keys_of
    from milepost.checkpoint.rekey_far import keys_there

    store = store_at(folder)
    rows = [_keys_row("scratch", name, keys_of(store, name)) for name in store.generations()]
    for remote in remotes(warm, cold):
        names = remote.generations()
        rows += [_keys_row(remote.label, name, keys_there(remote, name)) for name in names]
    lines = [f"{r['tier']}  {r['generation']}  {', '.join(r['key_ids']) or 'none'}" for r in rows]
    emit(rows, as_json, "\n".join(lines) or none_in(folder))


def _keys_row(tier: str, generation: str, key_ids: tuple[str, ...]) -> dict[str, Any]:
    return {"tier": tier, "generation": generation, "key_ids": list(key_ids)}
