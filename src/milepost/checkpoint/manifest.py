"""`ckpt.manifest.json`: what a generation is, what it needs, and where it may be restored."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from typing import Any

from milepost.checkpoint.environment import Environment
from milepost.errors import DataError
from milepost.model import FileProof

FORMAT_VERSION = 1
MANIFEST = "ckpt.manifest.json"
OK = "OK"
REKEY = ".rekey.json"
"""Beside generations whose key is being exchanged: what they become."""
_NAME = re.compile(r"(\d{6,})-a(\d+)")
_DIGEST = re.compile(r"(blake3|blake3-blocks|sha256):[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Output:
    """A file outside the checkpoint that belongs to it: after a restore, writing goes on at
    `append_offset`, and what stands behind it is of a lost future."""

    path: str
    size_bytes: int
    append_offset: int

    def as_json(self) -> dict[str, Any]:
        return {"path": self.path, "bytes": self.size_bytes, "append_offset": self.append_offset}


@dataclass(frozen=True, slots=True)
class Metrics:
    """What the checkpoint cost; None where it was not measured.

    `blocked_s`: the application waited. `durable_s`: from the call until all data was on disk.
    `bytes_logical`: the arrays. `bytes_stored`: what their files take. `saves_skipped` and
    `saves_waited`: how many that came while another was under way, since the process started.
    """

    blocked_s: float | None = None
    durable_s: float | None = None
    bytes_logical: int | None = None
    bytes_stored: int | None = None
    saves_skipped: int | None = None
    saves_waited: int | None = None

    def as_json(self) -> dict[str, Any]:
        return {
            "blocked_s": self.blocked_s,
            "durable_s": self.durable_s,
            "bytes_logical": self.bytes_logical,
            "bytes_stored": self.bytes_stored,
            "saves_skipped": self.saves_skipped,
            "saves_waited": self.saves_waited,
        }


@dataclass(frozen=True, slots=True)
class Manifest:
    """One generation. `kind` is `arrays` (data files of milepost) or `files` (an application's).

    `ranks` maps the rank to its file. `bases` are the generations whose blocks it refers to.
    `control` is `{"metric": name, "value": number}` or None.
    """

    name: str
    step: int
    created: str
    files: tuple[FileProof, ...]
    environment: Environment
    kind: str = "arrays"
    bases: tuple[str, ...] = ()
    ranks: Mapping[int, str] = field(default_factory=dict)
    decomposition_version: int = 1
    rng: Any = None
    solver: Mapping[str, Any] = field(default_factory=dict)
    outputs: tuple[Output, ...] = ()
    control: Mapping[str, Any] | None = None
    metrics: Metrics = field(default_factory=Metrics)

    @property
    def number(self) -> int:
        return parse_name(self.name)[0]

    @property
    def attempt(self) -> int:
        return parse_name(self.name)[1]

    @property
    def size_bytes(self) -> int:
        return sum(proof.size_bytes for proof in self.files)

    def as_json(self) -> dict[str, Any]:
        return {
            "format": FORMAT_VERSION,
            "name": self.name,
            "generation": self.number,
            "attempt": self.attempt,
            "kind": self.kind,
            "step": self.step,
            "created": self.created,
            "files": [proof.as_json() for proof in self.files],
            "bases": list(self.bases),
            "environment": self.environment.as_json(),
            "decomposition": {
                "version": self.decomposition_version,
                "ranks": {str(rank): name for rank, name in self.ranks.items()},
            },
            "rng": self.rng,
            "solver": dict(self.solver),
            "outputs": [output.as_json() for output in self.outputs],
            "control": None if self.control is None else dict(self.control),
            "metrics": self.metrics.as_json(),
        }

    def to_bytes(self) -> bytes:
        return (json.dumps(self.as_json(), indent=1, allow_nan=False) + "\n").encode()

    def with_digests(self, digests: Mapping[str, str]) -> Manifest:
        """The same with other digests of some files (path -> digest)."""
        files = tuple(replace(p, digest=digests.get(p.path, p.digest)) for p in self.files)
        return replace(self, files=files)

    def is_same_but_for_keys(self, other: Manifest) -> bool:
        """Is it the same generation, perhaps under another key? First pages differ then."""
        blank = {proof.path: "" for proof in self.files}
        return self.with_digests(blank) == other.with_digests(blank)


def generation_name(number: int, attempt: int) -> str:
    """Such as 000012-a2: generation 12, committed by attempt 2 (0 without a runner)."""
    return f"{number:06d}-a{attempt}"


def parse_name(name: str) -> tuple[int, int]:
    """Number and attempt of a generation's name."""
    match = _NAME.fullmatch(name)
    if match is None:
        raise DataError(f"{name!r} is not the name of a generation, such as 000012-a2")
    return int(match[1]), int(match[2])


def is_name(name: str) -> bool:
    return _NAME.fullmatch(name) is not None


def is_digest(text: str) -> bool:
    """Is it an algorithm-tagged digest of an algorithm that is used here?"""
    return _DIGEST.fullmatch(text) is not None


def commit_order(name: str) -> tuple[int, int]:
    """Sort key, newest largest: a later attempt is newer, whatever an earlier one left behind."""
    number, attempt = parse_name(name)
    return attempt, number


def parse_manifest(data: bytes, where: object) -> Manifest:
    """Parse and check a manifest; DataError names the field. A newer format is refused."""
    try:
        value = json.loads(data)
    except (ValueError, UnicodeDecodeError) as error:
        raise DataError(f"is not JSON ({error})", where=where) from error
    if not isinstance(value, dict):
        raise DataError("is not a JSON object", where=where)
    version = value.get("format")
    if type(version) is not int or version > FORMAT_VERSION:
        raise DataError(
            f"has manifest format {version!r}; this milepost reads up to {FORMAT_VERSION}",
            where=where,
            fix="use the milepost that wrote it, or a newer one",
        )
    try:
        return _build(_Fields(value))
    except DataError as error:
        raise DataError(error.what, where=where, fix=error.fix) from error


def _build(top: _Fields) -> Manifest:
    name = top.get("name", str)
    if parse_name(name) != (top.get("generation", int), top.get("attempt", int)):
        raise DataError(f"name {name!r} does not fit its generation and attempt")
    decomposition = _Fields(top.get("decomposition", dict), "decomposition.")
    files = tuple(_proof(_Fields(item, "files.")) for item in top.list_of("files", dict))
    ranks = _ranks(decomposition.get("ranks", dict), {proof.path for proof in files})
    bases = tuple(top.list_of("bases", str))
    for base in bases:
        parse_name(base)
    return Manifest(
        name=name,
        step=top.get("step", int),
        created=top.get("created", str),
        files=files,
        environment=Environment.parse(top.get("environment", dict)),
        kind=top.get("kind", str),
        bases=bases,
        ranks=ranks,
        decomposition_version=decomposition.get("version", int),
        rng=top.value.get("rng"),
        solver=top.get("solver", dict),
        outputs=tuple(_output(_Fields(item, "outputs.")) for item in top.list_of("outputs", dict)),
        control=top.get("control", dict, type(None)),
        metrics=_metrics(_Fields(top.get("metrics", dict), "metrics.")),
    )


class _Fields:
    """Typed access to a JSON object; a missing or wrong field is a DataError that names it."""

    def __init__(self, value: Mapping[str, Any], prefix: str = "") -> None:
        self.value, self.prefix = value, prefix

    def get(self, key: str, *kinds: type) -> Any:
        found = self.value.get(key, _MISSING)
        if type(found) not in kinds:
            shown = "missing" if found is _MISSING else f"{found!r:.60}"
            wanted = " or ".join(kind.__name__ for kind in kinds)
            raise DataError(f"field {self.prefix}{key} is {shown}, expected {wanted}")
        return found

    def size(self, key: str) -> int:
        found: int = self.get(key, int)
        if found < 0:
            raise DataError(f"field {self.prefix}{key} is {found}, expected 0 or more")
        return found

    def list_of(self, key: str, kind: type) -> list[Any]:
        items: list[Any] = self.get(key, list)
        for item in items:
            if type(item) is not kind:
                raise DataError(f"field {self.prefix}{key} holds {item!r:.60}")
        return items


_MISSING = object()


def _proof(fields: _Fields) -> FileProof:
    path, digest = fields.get("path", str), fields.get("digest", str)
    check_file_name(path)
    if not is_digest(digest):
        raise DataError(f"field files.digest of {path!r} is {digest!r:.80}")
    return FileProof(path, fields.size("bytes"), digest)


def check_file_name(path: str) -> None:
    """A file of a generation has a plain relative path below its folder, else a DataError."""
    parts = PurePosixPath(path).parts
    plain = bool(parts) and str(PurePosixPath(path)) == path and "\0" not in path
    if not plain or path.startswith("/") or ".." in parts or path in (MANIFEST, OK, "."):
        raise DataError(f"file name {path!r} is not a plain path below the generation")


def _ranks(value: Mapping[str, Any], files: set[str]) -> dict[int, str]:
    ranks = {}
    for rank, name in value.items():
        if not rank.isdecimal() or name not in files:
            raise DataError(f"decomposition.ranks maps {rank!r} to {name!r}, which is not a file")
        ranks[int(rank)] = str(name)
    return ranks


def _output(fields: _Fields) -> Output:
    return Output(fields.get("path", str), fields.size("bytes"), fields.size("append_offset"))


def _metrics(fields: _Fields) -> Metrics:
    none = type(None)
    return Metrics(
        fields.get("blocked_s", float, int, none),
        fields.get("durable_s", float, int, none),
        fields.get("bytes_logical", int, none),
        fields.get("bytes_stored", int, none),
        *(
            fields.get(key, int, none) if key in fields.value else None
            for key in ("saves_skipped", "saves_waited")
        ),
    )
