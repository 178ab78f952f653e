"""The public record of a run: only the fields listed here.

Every value is a number, a word out of a list that milepost knows, or one of the three texts that
a person wrote for the public; those are checked by `public_texts` and withheld when they would
tell something private. No queue, host, user, path, project, account, job id or environment value
belongs in it; nor does the run's name, nor the name of a file.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from milepost import __version__
from milepost.config.schema import config_schema
from milepost.config.spec import RunSpec
from milepost.evidence.account import Account, failures
from milepost.evidence.public_texts import PublicTexts, public_texts
from milepost.evidence.signatures import load_signatures
from milepost.evidence.types import RunEvidence
from milepost.model import Action, FailureClass

if TYPE_CHECKING:
    from milepost.evidence.closing import Closing

SCHEMA = 1
_VERDICTS = ("CLOSED", "CLOSED WITH ACCEPTED FAILURES", "NOT CLOSED", "CLOSED AS SUPERSEDED")
_CHOICES = ("workload", "resource_class", "resume", "stop")
_OWN_SUBCLASSES = frozenset(
    ["bad_artifact", "killed", "unknown", "unknown_state", "not_a_failure", "time_limit"]
)
"""Those that milepost gives without a signature."""
_SUFFIX = re.compile(
    r"\.(?:bam|bcf|bed|bin|cif|cpp|csv|dat|fasta|fastq|gro|gz|h5|hdf5|html|jpg|json|jsonl|log|md|mol|mol2|"
    r"mrc|nc|npy|npz|out|parquet|pdb|pdf|png|pt|py|sdf|sh|sqlite|svg|tar|toml|trr|tsv|txt|vcf|xtc|xyz|yaml|"
    r"zip|zst)"
)
FIXES = {
    "none": "nothing to do",
    "wait": "wait: it passes by itself, or somebody has to release it",
    "retry_same": "run again, elsewhere if it was the node",
    "retry_more_memory": "run again with more memory",
    "longer_walltime": "run again with a longer walltime",
    "resume_from_checkpoint": "run again: it goes on from its checkpoint",
    "fix_no_retry": "mend the cause first",
}


def public(closing: Closing) -> dict[str, Any]:
    """The record for the public: allowed fields only."""
    run, spec = closing.facts.run, closing.facts.run.spec
    texts = public_texts(run)
    fields: dict[str, Any] = {
        "schema": SCHEMA,
        "verdict": _verdict(closing),
        "milepost": __version__,
        **_workload(spec, texts),
        "counts": _counts(closing),
        "durations": _durations(closing.facts.account),
        "failure_modes": _failure_modes(run),
        "accepted" if closing.closeout.is_closed else "open": [
            item.title for item in closing.closeout.false_items
        ],
        "note": texts.note,
        "withheld": [{"text": w.what, "kinds": dict(w.kinds)} for w in texts.withheld],
    }
    return {k: v for k, v in fields.items() if v not in (None, "", [])}


def _verdict(closing: Closing) -> str:
    """The verdict in a word of the list; what else it says may name another run."""
    said = closing.closeout.verdict
    if said in _VERDICTS:
        return said
    if not closing.closeout.is_closed:
        return _VERDICTS[2]
    return _VERDICTS[1] if closing.closeout.false_items else _VERDICTS[0]


def _workload(spec: RunSpec | None, texts: PublicTexts) -> dict[str, Any]:
    if spec is None:
        return {}
    kinds = sorted({f"{known_suffix(a.path)}: {a.check}" for a in spec.artifacts})
    return {
        "purpose": texts.purpose,
        "software": list(texts.software),
        **{name: _choice(name, getattr(spec, name)) for name in _CHOICES},
        "artifacts": kinds,
    }


def _choice(name: str, value: str) -> str | None:
    """A word that the configuration's schema lists for this key; None for any other."""
    keys = config_schema()["properties"]["runs"]["additionalProperties"]["properties"]
    return value if value in keys[name]["enum"] else None


def known_suffix(path: str) -> str:
    """`.csv` for a well-known kind of file; names of files are nobody's business."""
    suffix = PurePosixPath(path).suffix
    return suffix if _SUFFIX.fullmatch(suffix) else "file"


def _counts(closing: Closing) -> dict[str, int]:
    run, account = closing.facts.run, closing.facts.account
    return {
        "shards": len(run.shards),
        "tasks": sum(len(s.tasks) for s in run.shards),
        "tasks_done": sum(s.done for s in run.shards),
        "attempts": account.attempt_count,
        "interruptions": account.interruption_count,
        "checkpoints": account.checkpoint_count,
    }


def _durations(account: Account) -> dict[str, float]:
    values = {
        "elapsed_s": account.elapsed_s,
        "core_hours": _hours(account.allocated_core_s),
        "core_hours_lost": _hours(account.lost_core_s),
        "checkpoint_blocks_s": account.blocked_s,
        "checkpoint_durable_s": account.durable_s,
    }
    return {name: round(value, 6) for name, value in values.items() if value is not None}


def _hours(seconds: float | None) -> float | None:
    return None if seconds is None else seconds / 3600


def _failure_modes(run: RunEvidence) -> list[dict[str, Any]]:
    """Classes with their remedy; a user's own subclass is `other`, whatever it is called."""
    counts: dict[tuple[str, str, str], int] = {}
    for group in failures(run):
        key = _known(group)
        counts[key] = counts.get(key, 0) + group["count"]
    return [
        {"class": c, "subclass": s, "action": a, "fix": FIXES[a], "count": n}
        for (c, s, a), n in counts.items()
    ]


def _known(group: Mapping[str, Any]) -> tuple[str, str, str]:
    class_ = group["class"] if group["class"] in list(FailureClass) else "unclassified"
    subclass = group["subclass"] if group["subclass"] in _subclasses() else "other"
    action = group["action"] if group["action"] in list(Action) else "none"
    return class_, subclass, action


@cache
def _subclasses() -> frozenset[str]:
    known = load_signatures()
    return _OWN_SUBCLASSES | {s.subclass for s in (*known.logs, *known.ends)}


def public_page(record: Mapping[str, Any]) -> str:
    """The public record as Markdown for a person."""
    lines = [f"# {record.get('purpose') or 'A run'}", ""]
    lines += [f"**{record['verdict']}**, with milepost {record['milepost']}.", ""]
    for name in ("software", "workload", "resource_class", "artifacts", "resume", "stop"):
        if name in record:
            value = record[name]
            text = ", ".join(value) if isinstance(value, list) else value
            lines.append(f"- {name.replace('_', ' ')}: {text}")
    lines += ["", "## In numbers", ""]
    lines += [f"- {k.replace('_', ' ')}: {v}" for k, v in record["counts"].items()]
    lines += [f"- {_label(k)}: {v:.4g}" for k, v in record["durations"].items()]
    lines += ["", "## Failures and their remedies", ""]
    lines += [
        f"- {m['count']} x {m['class']} / {m['subclass']}: {m['fix']}"
        for m in record.get("failure_modes", ())
    ] or ["- none"]
    if "accepted" in record:
        lines += ["", "Closed although not true: " + "; ".join(record["accepted"]) + "."]
    if "open" in record:
        lines += ["", "Not closed, because not true: " + "; ".join(record["open"]) + "."]
    if "note" in record:
        lines += ["", "## Note", "", record["note"]]
    if "withheld" in record:
        texts = ", ".join(f"{w['text']} ({', '.join(w['kinds'])})" for w in record["withheld"])
        lines += ["", f"Withheld, since private words stand in it: {texts}."]
    return "\n".join(lines) + "\n"


def _label(name: str) -> str:
    text = name.removesuffix("_s").replace("_", " ")
    return f"{text} (s)" if name.endswith("_s") else text
