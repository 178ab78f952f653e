"""The public record of a run: only the fields listed here, and those cleaned once more.

No queue, host, user, path, project, account, job id or environment value belongs in it. What is
free text (purpose, note) was written by a person and passes the second net, `redact`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from milepost import __version__
from milepost.evidence.account import Account, failures
from milepost.evidence.redact import redact
from milepost.evidence.types import RunEvidence

if TYPE_CHECKING:
    from milepost.evidence.closing import Closing

SCHEMA = 1


def public(closing: Closing) -> dict[str, Any]:
    """The record for the public: allowed fields only, then cleaned of what looks private."""
    run, spec = closing.facts.run, closing.facts.run.spec
    fields: dict[str, Any] = {
        "schema": SCHEMA,
        "verdict": closing.closeout.verdict,
        "milepost": __version__,
    }
    if spec is not None:
        fields |= {
            "purpose": spec.purpose,
            "software": list(spec.software),
            "workload": spec.workload,
            "resource_class": spec.resource_class,
            "artifacts": sorted(
                {f"{Path(a.path).suffix or 'file'}: {a.check}" for a in spec.artifacts}
            ),
            "resume": spec.resume,
            "stop": spec.stop,
        }
    fields |= {
        "counts": _public_counts(closing),
        "durations": _public_durations(closing.facts.account),
        "failure_modes": [
            {k: g[k] for k in ("class", "subclass", "action", "count")} for g in failures(run)
        ],
        "accepted" if closing.closeout.is_closed else "open": [
            item.title for item in closing.closeout.false_items
        ],
        "note": _note(run),
    }
    cleaned: dict[str, Any] = clean({k: v for k, v in fields.items() if v not in (None, "", [])})
    return cleaned


def _public_counts(closing: Closing) -> dict[str, int]:
    run, account = closing.facts.run, closing.facts.account
    return {
        "shards": len(run.shards),
        "tasks": sum(len(s.tasks) for s in run.shards),
        "tasks_done": sum(s.done for s in run.shards),
        "attempts": account.attempt_count,
        "interruptions": account.interruption_count,
        "checkpoints": account.checkpoint_count,
    }


def _public_durations(account: Account) -> dict[str, float]:
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


def _note(run: RunEvidence) -> str | None:
    """The text of the file that privacy.public_note names."""
    if run.spec is None or run.spec.public_note is None:
        return None
    path = run.paths.root / run.spec.public_note
    return path.read_text(encoding="utf-8").strip() if path.is_file() else None


def public_page(record: dict[str, Any]) -> str:
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
        f"- {m['count']} x {m['class']} / {m['subclass']}: {m['action'].replace('_', ' ')}"
        for m in record.get("failure_modes", ())
    ] or ["- none"]
    if "accepted" in record:
        lines += ["", "Closed although not true: " + "; ".join(record["accepted"]) + "."]
    if "open" in record:
        lines += ["", "Not closed, because not true: " + "; ".join(record["open"]) + "."]
    if "note" in record:
        lines += ["", "## Note", "", record["note"]]
    return "\n".join(lines) + "\n"


def _label(name: str) -> str:
    text = name.removesuffix("_s").replace("_", " ")
    return f"{text} (s)" if name.endswith("_s") else text


def clean(value: Any) -> Any:
    """Every text in a JSON value without what looks private; keys are ours and stay."""
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, list):
        return [clean(v) for v in value]
    if isinstance(value, dict):
        return {k: clean(v) for k, v in value.items()}
    return value
