"""The crate of a closeout, held against the profile by a validator of the field, without a network."""

from __future__ import annotations

import gzip
import io
import json
from pathlib import Path
from typing import Any

import pytest
import requests
from requests_cache import CachedSession
from rocrate_validator import models, services
from urllib3 import HTTPResponse

from helpers.run_folder import RunFolder, finished_simulation, finished_sweep
from milepost.evidence.closing import close
from milepost.evidence.crate import CONTEXT

PROFILE = "process-run-crate-0.5"
CONTEXT_FILE = Path(__file__).parents[1] / "data" / "ro-crate-1.1-context.jsonld.gz"
"""The JSON-LD context of RO-Crate 1.1 (public domain, CC0 1.0), as the package rocrate 0.14 has it."""
CANNOT_BE_KNOWN = {
    "The Root Data Entity SHOULD have a link to a Contextual Entity representing the `author` of the RO-Crate",
    "The `publisher` property of a `Root Data Entity` SHOULD be an `Organization`",
    "The Action SHOULD have an agent that is a Person or Organization",
    "The SoftwareApplication id SHOULD be an absolute URI",
    "The Application SHOULD have a url",
}
"""Recommendations that are left open on purpose: who made a run is not told, milepost's own
package names no page, and the last but one is asked of the class itself."""
NOT_MEASURED = {"The Action SHOULD have an endTime in ISO 8601 format"}
"""Besides those, where no attempt ever ran."""


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The validator's cache of pages, which holds nothing but the context."""
    path = tmp_path_factory.mktemp("validator") / "cache"
    body = gzip.decompress(CONTEXT_FILE.read_bytes())
    assert json.loads(body)["@id"] == CONTEXT
    raw = HTTPResponse(
        body=io.BytesIO(body),
        status=200,
        headers={"Content-Type": "application/ld+json"},
        preload_content=False,
        request_url=CONTEXT,
    )
    request = requests.Request("GET", CONTEXT).prepare()
    response = requests.adapters.HTTPAdapter().build_response(request, raw)
    assert response.content == body
    with CachedSession(cache_name=str(path)) as session:
        session.cache.save_response(response)
    return path


def validated(folder: Path, cache: Path) -> Any:
    settings = services.ValidationSettings(
        rocrate_uri=str(folder),
        profile_identifier=PROFILE,
        requirement_severity=models.Severity.RECOMMENDED,
        offline=True,
        cache_path=str(cache),
    )
    return services.validate(settings)


def closed(folder: RunFolder) -> Path:
    close(folder.paths, now="2026-03-02T00:00:00.000Z", partial=True)
    return folder.paths.closeout


def failed_run(root: Path) -> RunFolder:
    folder = finished_sweep(root)
    folder.table({"0001": {"a1": {}, "a2": {}}, "0002": {"b1": {}, "z9": {}}})
    folder.failed("0002", "z9")
    return folder


def unmeasured_run(root: Path) -> RunFolder:
    """Only a contract: no smoke test, no plan, no attempt, no software named."""
    return RunFolder(root).contract(software=[], purpose="")


def bare_run(root: Path) -> RunFolder:
    folder = RunFolder(root)
    folder.paths.work.mkdir(parents=True)
    return folder


RUNS = {
    "batch": finished_sweep,
    "resumed": finished_simulation,
    "failed": failed_run,
    "unmeasured": unmeasured_run,
    "nothing": bare_run,
}


@pytest.mark.parametrize("kind", RUNS)
def test_it_conforms_to_the_profile(tmp_path: Path, cache: Path, kind: str) -> None:
    result = validated(closed(RUNS[kind](tmp_path)), cache)
    issues = result.get_issues(models.Severity.OPTIONAL)
    required = [i.message for i in issues if i.severity is models.Severity.REQUIRED]
    assert required == []
    open_ = CANNOT_BE_KNOWN | (NOT_MEASURED if kind in ("unmeasured", "nothing") else set())
    assert {i.message for i in issues} <= open_
    without_page = [i.violatingEntity for i in issues if i.message.endswith("have a url")]
    assert len(without_page) == 1
    ran = {check.identifier for check in result.executed_checks}
    assert any(name.startswith("ro-crate-1.1") for name in ran)
    assert any(name.startswith(PROFILE) for name in ran)
    missing = [s for s in result.skipped_checks if s.check.severity is models.Severity.REQUIRED]
    assert missing == []


def test_the_validator_does_find_what_is_wrong(tmp_path: Path, cache: Path) -> None:
    folder = closed(finished_sweep(tmp_path))
    path = folder / "ro-crate-metadata.json"
    crate = json.loads(path.read_text(encoding="utf-8"))
    for entity in crate["@graph"]:
        entity.pop("instrument", None)
    path.write_text(json.dumps(crate), encoding="utf-8")
    issues = validated(folder, cache).get_issues(models.Severity.REQUIRED)
    assert any("MUST have an instrument" in i.message for i in issues)


def entities(folder: Path) -> dict[str, dict[str, Any]]:
    graph = json.loads((folder / "ro-crate-metadata.json").read_text(encoding="utf-8"))["@graph"]
    return {entity["@id"]: entity for entity in graph}


def test_what_is_not_known_is_left_out(tmp_path: Path) -> None:
    found = entities(closed(unmeasured_run(tmp_path)))
    assert "startTime" not in found["#run"] and "endTime" not in found["#run"]
    assert not any("null" in json.dumps(entity) for entity in found.values())
    assert found["./"]["license"] == {"@id": "#license"}


def test_a_stated_license_is_named(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path).contract(privacy={"license": "CC-BY-4.0"})
    found = entities(closed(folder))
    assert found["./"]["license"] == {"@id": "https://spdx.org/licenses/CC-BY-4.0"}
    assert found["https://spdx.org/licenses/CC-BY-4.0"]["name"] == "CC-BY-4.0"


def test_a_failed_run_says_so_and_why(tmp_path: Path) -> None:
    found = entities(closed(failed_run(tmp_path)))
    assert found["#run"]["actionStatus"] == "http://schema.org/FailedActionStatus"
    assert "Every shard has the verdict DONE" in found["#run"]["error"]
    assert found["#run"]["startTime"] == "2026-03-01T08:00:05.000+00:00"


def test_inputs_are_told_by_digest_and_never_by_name(tmp_path: Path) -> None:
    folder = closed(finished_sweep(tmp_path))
    text = (folder / "ro-crate-metadata.json").read_text(encoding="utf-8")
    assert "fit.py" not in text and "tasks.csv" not in text and "record.json" not in text
    inputs = [e for key, e in entities(folder).items() if key.startswith("#input-")]
    assert inputs[0]["name"] == "Input 1 (.py, 14 bytes)"
    assert all(":" in e["identifier"] for e in inputs)
