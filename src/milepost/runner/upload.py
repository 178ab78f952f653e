"""Prove that what must outlive the node is in its tier: the journal and the newest checkpoint.

Artifacts need no upload: they were published to the results on the shared file system. What the
background uploader has sent already is proved at the far end, by size and digest, and not sent
again. A checkpoint whose scratch tier went with its node is proved from its manifest in the tier.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from milepost.checkpoint.store import CheckpointStore
from milepost.checkpoint.upload import Remote, upload_generation
from milepost.clock import utc_now
from milepost.config.contract import load_contract
from milepost.config.spec import RunSpec, UploaderSpec
from milepost.durable import digest_file, write_json
from milepost.errors import ConfigError, DataError, StorageError
from milepost.model import FileProof, WorkKind
from milepost.paths import RunPaths
from milepost.runner.places import checkpoint_place
from milepost.tiers import Tier, open_tier

SCHEMA = 1
JOURNAL = "journal.csv"
CKPT = "ckpt"


def upload_shard(paths: RunPaths, shard: str) -> dict[str, Any]:
    """Send what is missing, prove all of it, write `upload.json`; returns its content."""
    spec = load_contract(paths).spec
    uploader = spec.checkpoint.uploader
    record: dict[str, Any] = {"schema": SCHEMA, "run": spec.name, "shard": shard}
    if not uploader.enable:
        record |= {"tier": None, "generation": None, "files": [], "verified": False}
    else:
        tier = _open(spec, uploader, shard)
        generation, proofs = _prove_checkpoint(spec, shard, tier, paths.shard(shard).live)
        proofs.insert(0, _prove_journal(paths.shard(shard).marker, tier))
        files = [proof.as_json() | {"url": f"{tier.place}/{proof.path}"} for proof in proofs]
        record |= {"tier": uploader.to, "generation": generation, "files": files, "verified": True}
    record["created"] = utc_now()
    write_json(paths.shard(shard).upload, record)
    return record


def _open(spec: RunSpec, uploader: UploaderSpec, shard: str) -> Tier:
    place = spec.tiers.warm if uploader.to == "warm" else spec.tiers.cold
    if place is None:
        raise ConfigError(
            f"the uploader is to send to {uploader.to}, and there is no such tier",
            where=f"tiers.{uploader.to}",
            fix="name a path or URL there, or set checkpoint.uploader.enable: false",
        )
    return open_tier(
        checkpoint_place(place, spec.name, shard).removesuffix(f"/{CKPT}"),
        retry_limit=uploader.retries,
        max_bandwidth_mb_s=uploader.max_bandwidth_mb_s,
    )


def _prove_journal(marker: Path, tier: Tier) -> FileProof:
    if not marker.exists():
        raise DataError(
            "the shard has no marker: its work is not verified yet",
            where=marker,
            fix="run the shard first",
        )
    proof = FileProof(JOURNAL, marker.stat().st_size, digest_file(marker))
    if tier.stat(JOURNAL) is not None and tier.digest(JOURNAL) != proof.digest:
        tier.delete(JOURNAL)  # of an earlier verdict about the same shard
    tier.put_file(marker, JOURNAL)
    _require(tier, proof)
    return proof


def _prove_checkpoint(
    spec: RunSpec, shard: str, tier: Tier, beside: Path
) -> tuple[str | None, list[FileProof]]:
    """The newest generation wherever it is, and the proofs of its files in the tier."""
    if spec.work.kind is not WorkKind.RESUMABLE:
        return None, []
    store = CheckpointStore(Path(checkpoint_place(spec.tiers.scratch, spec.name, shard)))
    near = store.generations()
    if near:
        return near[0], upload_generation(store, near[0], tier, CKPT)
    remote = Remote(spec.checkpoint.uploader.to, tier, CKPT)
    far = remote.generations()
    if not far:
        return None, []  # it ended within its first interval: there was nothing to checkpoint
    return far[0], remote.prove(far[0], beside)


def _require(tier: Tier, proof: FileProof) -> None:
    algorithm = proof.digest.partition(":")[0]
    if (
        tier.stat(proof.path) != proof.size_bytes
        or tier.digest(proof.path, algorithm) != proof.digest
    ):
        raise StorageError(
            "what the tier holds differs from what was sent",
            where=f"{tier.place}/{proof.path}",
            fix="look at that storage; then run the same command again",
        )


def describe(record: dict[str, Any]) -> str:
    """One line about an upload."""
    if not record["verified"]:
        return f"{record['run']} {record['shard']}: the uploader is off, nothing was sent"
    size = sum(file["bytes"] for file in record["files"])
    what = f"checkpoint {record['generation']}" if record["generation"] else "no checkpoint"
    return (
        f"{record['run']} {record['shard']}: journal and {what} proved in {record['tier']} "
        f"({len(record['files'])} files, {size / 1e6:.3g} MB)"
    )
