"""The run as a Process Run Crate (RO-Crate 1.1, profile 0.5); what is not known is left out.

The crate is made to be published: it says what the public record says and no more. Inputs are
described by kind, size and digest, never by name; the whole record and the report stay at the
site and are no part of it.

Sources: RO-Crate 1.1, https://w3id.org/ro/crate/1.1; Process Run Crate,
https://w3id.org/ro/wfrun/process/0.5.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import metadata
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from milepost import __version__
from milepost.evidence.account import end_of
from milepost.evidence.public import known_suffix
from milepost.evidence.types import RunEvidence

if TYPE_CHECKING:
    from milepost.evidence.closing import Closing

CONTEXT = "https://w3id.org/ro/crate/1.1/context"
PROFILE = "https://w3id.org/ro/wfrun/process/0.5"
FILES = {
    "public.json": ("The public record", "application/json"),
    "public.md": ("The public record for a person", "text/markdown"),
}
_UNKNOWN_LICENSE = {
    "@id": "#license",
    "@type": "CreativeWork",
    "name": "No license stated",
    "description": "Whoever made the run has not said under which terms this record may be used.",
}
Entity = dict[str, Any]


def crate(closing: Closing, record: Mapping[str, Any]) -> dict[str, Any]:
    """The metadata of the folder `closeout/` as a crate, out of the public record of the run."""
    software = _software(closing.facts.run, record)
    inputs = _inputs(closing.facts.run)
    license_ = _license(closing.facts.run)
    files = [
        {"@id": name, "@type": "File", "name": title, "encodingFormat": kind}
        for name, (title, kind) in FILES.items()
    ]
    graph = [_descriptor(), _root(closing, record, license_), license_, _profile()]
    graph += [_action(closing, record, software, inputs), *software, *inputs, *files]
    return {"@context": CONTEXT, "@graph": graph}


def _descriptor() -> Entity:
    return {
        "@id": "ro-crate-metadata.json",
        "@type": "CreativeWork",
        "conformsTo": {"@id": "https://w3id.org/ro/crate/1.1"},
        "about": {"@id": "./"},
    }


def _profile() -> Entity:
    name = "Process Run Crate"
    return {"@id": PROFILE, "@type": "CreativeWork", "name": name, "version": "0.5"}


def _license(run: RunEvidence) -> Entity:
    stated = None if run.spec is None else run.spec.license
    if stated is None:
        return _UNKNOWN_LICENSE
    page = f"https://spdx.org/licenses/{stated}"
    about = "As whoever made the run stated it."
    return {"@id": page, "@type": "CreativeWork", "name": stated, "description": about}


def _root(closing: Closing, record: Mapping[str, Any], license_: Entity) -> Entity:
    kind = str(record.get("workload", "")).strip()
    return {
        "@id": "./",
        "@type": "Dataset",
        "name": f"Closeout of a run{f' of {kind}' if kind else ''}",
        "description": f"{record.get('purpose', '')} {record['verdict']}.".strip(),
        "datePublished": _time(closing.now),
        "license": {"@id": license_["@id"]},
        "conformsTo": {"@id": PROFILE},
        "hasPart": [{"@id": name} for name in FILES],
        "mentions": {"@id": "#run"},
    }


def _action(
    closing: Closing, record: Mapping[str, Any], software: list[Entity], inputs: list[Entity]
) -> Entity:
    run = closing.facts.run
    attempts = [a for shard in run.shards for a in shard.attempts]
    start = min((a.started for a in attempts if a.started), default=None)
    end = max((e for a in attempts if (e := end_of(a))), default=None)
    done = "Completed" if closing.closeout.is_closed else "Failed"
    counts = record["counts"]
    action: Entity = {
        "@id": "#run",
        "@type": "CreateAction",
        "name": f"The run ({record['verdict']})",
        "description": f"{counts['tasks_done']} of {counts['tasks']} tasks done in "
        f"{counts['shards']} shards, {counts['interruptions']} interruptions",
        "instrument": _ids(software),
        "result": {"@id": "public.json"},
        "actionStatus": f"http://schema.org/{done}ActionStatus",
    }
    if inputs:
        action["object"] = _ids(inputs)
    if done == "Failed":
        action["error"] = "not true: " + "; ".join(record.get("open", ["everything is open"]))
    times = {"startTime": start, "endTime": end}
    return action | {name: _time(time) for name, time in times.items() if time is not None}


def _ids(entities: list[Entity]) -> Any:
    """References; one alone is no list, as RO-Crate wants it."""
    ids = [{"@id": entity["@id"]} for entity in entities]
    return ids[0] if len(ids) == 1 else ids


def _time(iso: str) -> str:
    """The profile wants the offset of UTC in numbers."""
    return iso.removesuffix("Z") + "+00:00" if iso.endswith("Z") else iso


def _software(run: RunEvidence, record: Mapping[str, Any]) -> list[Entity]:
    """What the record names, with the versions that the contract froze."""
    versions = dict((run.contract or {}).get("versions", {})) | {"milepost": __version__}
    names = dict.fromkeys((*record.get("software", ()), "python", "milepost"))
    if "python" not in versions:
        names.pop("python")
    entities = []
    for number, name in enumerate(names, start=1):
        entity: Entity = {
            "@id": f"#software-{number}",
            "@type": "SoftwareApplication",
            "name": name,
        }
        more = {"softwareVersion": versions.get(name), "url": _home(name)}
        entities.append(entity | {k: v for k, v in more.items() if v})
    return entities


def _home(name: str) -> str | None:
    """The page of an installed package, as its author wrote it; None for anything else."""
    if name == "python":
        return "https://www.python.org/"
    try:
        about = metadata.metadata(name)
    except (metadata.PackageNotFoundError, ValueError):
        return None
    pages = [page for key in ("Home-page", "Project-URL") for page in about.get_all(key) or ()]
    urls = [page.rpartition(" ")[2] for page in pages]
    return next((url for url in urls if url.startswith("https://")), None)


def _inputs(run: RunEvidence) -> list[Entity]:
    """Inputs by kind, size and digest: they are described, not part of the crate."""
    return [
        {
            "@id": f"#input-{number}",
            "@type": "CreativeWork",
            "name": f"Input {number} ({known_suffix(str(PurePosixPath(proof['path']).name))}, "
            f"{proof['bytes']} bytes)",
            "identifier": proof["digest"],
        }
        for number, proof in enumerate((run.contract or {}).get("inputs", ()), start=1)
    ]
