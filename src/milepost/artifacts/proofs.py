"""Size and digest of artifacts: made when they verify, asked again at any time later."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from milepost.durable import digest_file, prove_file
from milepost.model import FileProof

_SMALL_BYTES = 1 << 20


def prove(path: str, name: str, content: bytes | None = None) -> FileProof:
    """Size and blake3 digest under `name`; `content` when the whole file was read already."""
    from blake3 import blake3

    if content is None:
        size = os.stat(path).st_size
        if size > _SMALL_BYTES:
            return prove_file(Path(path), name)
        with Path(path).open("rb", buffering=0) as stream:
            content = stream.read()
    return FileProof(name, len(content), f"blake3:{blake3(content).hexdigest()}")


def verify_proofs(folder: Path, proofs: Iterable[FileProof], deep: bool) -> list[str]:
    """Tell what is wrong with proved files below `folder`; an empty list when nothing is.

    Asks for the sizes only, or reads every byte when `deep`. Each problem names its file.
    """
    root = str(folder)
    return [f"{proof.path}: {what}" for proof in proofs if (what := _problem(root, proof, deep))]


def _problem(root: str, proof: FileProof, deep: bool) -> str | None:
    path = os.path.normpath(os.path.join(root, proof.path))
    if not path.startswith(os.path.normpath(root) + os.sep):
        return "leaves its folder"
    try:
        size = os.stat(path).st_size
        if size != proof.size_bytes:
            return f"has {size} bytes, {proof.size_bytes} were proved"
        if deep:
            digest = digest_file(path, proof.digest.partition(":")[0])
            if digest != proof.digest:
                return f"has digest {_short(digest)}, {_short(proof.digest)} was proved"
    except (FileNotFoundError, NotADirectoryError):
        return "is missing"
    except OSError as error:
        return f"cannot be read: {error.strerror or error}"
    return None


def _short(digest: str) -> str:
    algorithm, _, value = digest.partition(":")
    return f"{algorithm}:{value[:12]}…"
