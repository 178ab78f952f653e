"""From a private output folder to the results: verify, then one rename, never replacing."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from milepost.artifacts import check_artifact, verify_proofs
from milepost.clock import utc_now
from milepost.config.spec import ResultSpec
from milepost.durable import inside, publish_directory
from milepost.errors import DataError
from milepost.model import ArtifactCheck, FileProof

MAX_RESULT_BYTES = 64 << 10


def verify_output(
    folder: Path, checks: Iterable[ArtifactCheck], params: Mapping[str, str]
) -> list[FileProof]:
    """Proofs of all expected artifacts below `folder`; DataError for the first that fails."""
    return [proof for check in checks for proof in check_artifact(folder, check, params)]


def read_result(
    spec: ResultSpec,
    folder: Path | None,
    returned: Mapping[str, Any] | None,
    last_line: str | None,
) -> dict[str, Any]:
    """The task's result: from its file, its last line of stdout, or what the callable returned."""
    if spec.file is not None and folder is not None:
        path = inside(folder, spec.file)
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise DataError(f"the result cannot be read ({error})", where=path) from error
        return _parse(text, str(path))
    if spec.stdout:
        return _parse(last_line or "", "last line of stdout")
    return dict(returned) if returned else {}


def _parse(text: str, where: str) -> dict[str, Any]:
    if len(text) > MAX_RESULT_BYTES:
        raise DataError(
            f"a result of {len(text)} characters is too long for a table",
            where=where,
            fix="write numbers into the result and large data into an artifact",
        )
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise DataError(f"the result is not JSON ({error})", where=where) from error
    if not isinstance(value, dict):
        raise DataError(
            "the result is not a JSON object", where=where, fix='print {"name": value, …}'
        )
    return value


def publish(source: Path, target: Path, proofs: list[FileProof]) -> None:
    """Move a verified folder to its place among the results.

    When the place is taken, an earlier attempt was killed between its rename and its journal row.
    What is there stays if it is the same by digest; else it is set aside, because no row speaks
    for it.
    """
    if publish_directory(source, target):
        return
    if proofs and not verify_proofs(target, proofs, True):
        shutil.rmtree(source)
        return
    aside = target.with_name(f".{target.name}.unproven-{utc_now().replace(':', '')}")
    target.rename(aside)
    if not publish_directory(source, target):
        raise DataError(
            "somebody else publishes the same task",
            where=target,
            fix="see `milepost reconcile` for who works on this run",
        )
