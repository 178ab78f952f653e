"""The run as a Process Run Crate (RO-Crate 1.1, profile 0.5); what is not known is left out.

Sources: RO-Crate 1.1, https://w3id.org/ro/crate/1.1; Process Run Crate,
https://w3id.org/ro/wfrun/process/0.5.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from milepost import __version__
from milepost.evidence.account import end_of
from milepost.evidence.types import RunEvidence

if TYPE_CHECKING:
    from milepost.evidence.closing import Closing

PROFILE = "https://w3id.org/ro/wfrun/process/0.5"
FILES = {
    "record.json": ("The whole record", "application/json"),
    "public.json": ("The public record", "application/json"),
    "public.md": ("The public record for a person", "text/markdown"),
    "report.html": ("The report", "text/html"),
}
Entity = dict[str, Any]


def crate(closing: Closing) -> dict[str, Any]:
    """The metadata of the folder `closeout/` as a crate."""
    software = _software(closing.facts.run)
    inputs = _inputs(closing.facts.run)
    files = [
        {"@id": name, "@type": "File", "name": title, "encodingFormat": kind}
        for name, (title, kind) in FILES.items()
    ]
    graph = [_descriptor(), _root(closing), _profile(), _action(closing, software, inputs)]
    graph += [*software, *inputs, *files]
    return {"@context": "https://w3id.org/ro/crate/1.1/context", "@graph": graph}


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


def _root(closing: Closing) -> Entity:
    run = closing.facts.run
    purpose = "" if run.spec is None else run.spec.purpose
    return {
        "@id": "./",
        "@type": "Dataset",
        "name": f"Closeout of the run {run.paths.run}",
        "description": f"{purpose} {closing.closeout.verdict}.".strip(),
        "datePublished": closing.now,
        "conformsTo": {"@id": PROFILE},
        "hasPart": [{"@id": name} for name in FILES],
        "mentions": {"@id": "#run"},
    }


def _action(closing: Closing, software: list[Entity], inputs: list[Entity]) -> Entity:
    run = closing.facts.run
    attempts = [a for shard in run.shards for a in shard.attempts]
    start = min((a.started for a in attempts if a.started), default=None)
    end = max((e for a in attempts if (e := end_of(a))), default=None)
    done = "Completed" if closing.closeout.is_closed else "Failed"
    action: Entity = {
        "@id": "#run",
        "@type": "CreateAction",
        "name": run.paths.run,
        "instrument": [{"@id": entity["@id"]} for entity in software],
        "object": [{"@id": entity["@id"]} for entity in inputs],
        "result": [{"@id": "record.json"}],
        "actionStatus": f"http://schema.org/{done}ActionStatus",
    }
    times = {"startTime": start, "endTime": end}
    return action | {name: time for name, time in times.items() if time is not None}


def _software(run: RunEvidence) -> list[Entity]:
    versions = dict((run.contract or {}).get("versions", {}))
    names = dict.fromkeys((*(run.spec.software if run.spec else ()), *versions, "milepost"))
    versions.setdefault("milepost", __version__)
    entities = []
    for name in names:
        entity: Entity = {"@id": f"#software-{name}", "@type": "SoftwareApplication", "name": name}
        if name in versions:
            entity["softwareVersion"] = versions[name]
        entities.append(entity)
    return entities


def _inputs(run: RunEvidence) -> list[Entity]:
    """Inputs by name and digest: they are described, not part of the crate."""
    proofs = (run.contract or {}).get("inputs", ())
    return [
        {
            "@id": f"#input-{number}",
            "@type": "CreativeWork",
            "name": Path(proof["path"]).name,
            "identifier": proof["digest"],
        }
        for number, proof in enumerate(proofs, start=1)
    ]
