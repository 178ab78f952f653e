"""The report of a closeout: one self-contained HTML page, a pure function of the closing."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from milepost.clock import iso
from milepost.evidence import charts
from milepost.evidence.account import failures
from milepost.evidence.closeout import Item, planned_observed
from milepost.evidence.control import Control
from milepost.evidence.reconcile import ShardVerdict
from milepost.evidence.standing import duration

if TYPE_CHECKING:
    from milepost.evidence.closing import Closing

Context = dict[str, Any]
_TEMPLATES = Path(__file__).parent / "templates"
_SIGNS = {True: ("ok", "✓", "yes"), False: ("bad", "✗", "no"), None: ("none", "–", "n/a")}
_CONTROL_ROWS = 20
_NEXT_SHARDS = 5
_COVERED = ("shards_done", "artifacts_verified", "tasks_terminal")
"""Items whose next action is to run shards again; the shards themselves are named at the top."""
_DO = {
    "none": "Nothing to do.",
    "wait": "Wait: the cause lies outside and ends by itself.",
    "retry_same": "Run the named shards again as they are.",
    "retry_more_memory": "Raise resources.mem_mb, then run the named shards again.",
    "longer_walltime": "Raise resources.runtime_s, then run the named shards again.",
    "resume_from_checkpoint": "Run the named shards again: they go on from their checkpoint.",
    "fix_no_retry": "Mend the cause first; the same again would fail the same way.",
}


def render(closing: Closing, record: dict[str, Any]) -> str:
    """The page as text."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["island"] = _island
    template = environment.get_template("report.html.j2")
    return template.render(_context(closing, record)).lstrip() + "\n"


def _island(value: Any) -> Any:
    """JSON that stands safely inside a script element."""
    from markupsafe import Markup

    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    return Markup(text.replace("<", "\\u003c").replace("\u2028", "\\u2028"))


def _context(closing: Closing, record: dict[str, Any]) -> Context:
    run, spec = closing.facts.run, closing.facts.run.spec
    return {
        "css": (_TEMPLATES / "report.css").read_text(encoding="utf-8"),
        "js": (_TEMPLATES / "report.js").read_text(encoding="utf-8"),
        "run": run.paths.run,
        "purpose": "" if spec is None else spec.purpose,
        "kind": "" if spec is None else f"{spec.workload}, {spec.work.kind}",
        "created": closing.now[:16].replace("T", " ") + " UTC",
        "partial": closing.partial,
        "verdict": closing.closeout.verdict,
        "tone": _tone(closing),
        "next": _next(closing),
        "accepted": _accepted(closing),
        "tiles": _tiles(closing, record),
        "items": [_item(item) for item in closing.closeout.items],
        "best": _best(closing),
        "control": _control(closing),
        "timeline": _time_line(closing),
        "hours": _hours(closing),
        "account_note": _account_note(closing),
        "planned": planned_observed(run, closing.facts.account),
        "failures": [_failure(group) for group in failures(run)],
        "interruptions": _interruptions(closing),
        "results": _results(closing),
        "shards": _shards(closing),
        "contract": _contract(closing),
        "versions": sorted(record["versions"].items()),
        "notes": list(run.notes),
        "milepost": record["milepost"],
    }


def _tone(closing: Closing) -> str:
    if not closing.closeout.is_closed:
        return "bad"
    return "warn" if closing.closeout.false_items else "ok"


def _next(closing: Closing) -> list[Context]:
    """What a person does now, once each: open shards with their command, then the other items."""
    open_ = closing.closeout.open_items
    shards = [v for v in closing.facts.verdicts if v.command][:_NEXT_SHARDS]
    steps = [
        {"text": f"Shard {v.shard.name}: {v.next_action}", "command": v.command} for v in shards
    ]
    more = sum(bool(v.command) for v in closing.facts.verdicts) - len(shards)
    if more:
        steps.append(
            {"text": f"The same for {more} more shards of the table below.", "command": ""}
        )
    covered = _COVERED if shards else ()
    steps += [
        {"text": f"{i.title}: {i.next_action}", "command": ""}
        for i in open_
        if i.key not in covered
    ]
    return steps if open_ else []


def _accepted(closing: Closing) -> list[Context]:
    titles = {item.key: item.title.lower() for item in closing.closeout.items}
    return [
        {"time": a.time[:10], "reason": a.reason, "titles": "; ".join(titles[k] for k in a.items)}
        for a in closing.closeout.accepted
    ]


def _tiles(closing: Closing, record: dict[str, Any]) -> list[Context]:
    account, tasks, shards = closing.facts.account, record["tasks"], record["shards"]
    hours = account.allocated_core_s
    lost = account.lost_core_s
    named = {
        "tasks done": f"{tasks['done']:,} / {tasks['all']:,}",
        "shards done": f"{shards.get('DONE', 0):,} / {sum(shards.values()):,}",
        "interruptions": f"{account.interruption_count:,}",
        "checkpoints": f"{account.checkpoint_count:,}",
        "core time lost": duration(lost),
        "core hours": "n/a" if hours is None else f"{hours / 3600:.3g}",
        "elapsed": duration(account.elapsed_s),
    }
    return [{"name": name, "value": value} for name, value in named.items()]


def _item(item: Item) -> Context:
    tone, sign, word = _SIGNS[item.holds]
    shown = item.as_json() | {"tone": tone, "sign": sign, "word": word}
    return shown | {"next_action": ""} if item.key in _COVERED else shown


def _best(closing: Closing) -> Context | None:
    table, spec = closing.table, closing.facts.run.spec
    if table.best is None or table.best_by is None or spec is None:
        return None
    by = table.best_by
    values = [v for row in table.first if (v := _number(row.get(by))) is not None]
    value = _number(table.best[by]) or 0.0
    is_spread = len(values) > 2 and min(values) < max(values)
    shown = f" (the first {len(table.first)})" if table.row_count > len(table.first) else ""
    return {
        "by": by,
        "value": _trim(table.best[by]),
        "is": "largest" if spec.work.result.best_is == "max" else "smallest",
        "count": f"{table.row_count:,}",
        "row": _best_row(table.best, by),
        "strip": charts.strip([*values, value], value) if is_spread else "",
        "low": f"{min(values, default=value):.4g}",
        "high": f"{max(values, default=value):.4g}",
        "shown": shown,
    }


def _best_row(best: Mapping[str, str], by: str) -> list[tuple[str, str]]:
    """Parameters and other results first, then which task it was."""
    own = ("task", "shard")
    rows = [(k, _trim(v)) for k, v in best.items() if k != by and k not in own]
    return rows + [(k, best[k]) for k in own]


def _control(closing: Closing) -> Context | None:
    spec, found = closing.facts.run.spec, closing.facts.controls
    if not found or spec is None or spec.control is None:
        return None
    worst_first = sorted(found, key=lambda c: (c.agrees is not False, -(c.sigmas or 0.0)))
    distances = [d for c in found if (d := _signed(c)) is not None]
    svg, limit = charts.pulls(distances, spec.control.sigmas) if distances else ("", 0.0)
    return {
        "metric": spec.control.metric,
        "sigmas": f"{spec.control.sigmas:g}",
        "rows": [_control_row(c) for c in worst_first[:_CONTROL_ROWS]],
        "more": max(0, len(found) - _CONTROL_ROWS),
        "pulls": svg,
        "low": f"{-limit:.2g}",
        "high": f"{limit:.2g}",
    }


def _signed(control: Control) -> float | None:
    if control.value is None or control.reference is None or not control.error:
        return None
    return (control.value - control.reference) / control.error


def _control_row(control: Control) -> Context:
    distance = "n/a" if control.sigmas is None else f"{control.sigmas:.2f} σ"
    return {
        "shard": control.shard,
        "value": control.problem or _short(control.value),
        "reference": _short(control.reference),
        "error": "n/a" if control.error is None else f"{control.error:.2g}",
        "distance": distance,
        "agrees": control.agrees,
    }


def _time_line(closing: Closing) -> Context | None:
    line = charts.time_line(closing.facts.run.shards)
    if line is None:
        return None
    tried = sum(bool(s.attempts) for s in closing.facts.run.shards)
    more = tried - len(line.shards)
    return {
        "svg": line.svg,
        "names": [s.name for s in line.shards],
        "row_px": charts.ROW_PX,
        "start": iso(line.start_s)[:16].replace("T", " ") + " UTC",
        "length": duration(line.end_s - line.start_s),
        "note": f"{len(line.shards)} of {tried} shards, those with most attempts" if more else "",
    }


def _hours(closing: Closing) -> Context | None:
    account = closing.facts.account
    named = (
        ("useful work", account.useful_core_s, "--work"),
        ("checkpoints", account.checkpoint_core_s, "--mark"),
        ("done again", account.lost_core_s, "--lost"),
        ("start, idle, cut off", account.other_core_s, "--other"),
    )
    known = [(name, value, color) for name, value, color in named if value]
    total = sum(value for _, value, _ in known)
    if not total:
        return None
    parts = [
        {
            "name": name,
            "value": f"{duration(value)} ({100 * value / total:.3g} %)",
            "percent": f"{100 * value / total:.3f}",
            "color": color,
        }
        for name, value, color in known
    ]
    return {"parts": parts, "label": "; ".join(f"{p['name']} {p['value']}" for p in parts)}


def _account_note(closing: Closing) -> str:
    account = closing.facts.account
    spec = closing.facts.run.spec
    cpus = "n/a" if spec is None else spec.resources.cpus
    cpu = duration(account.cpu_s)
    text = f"Core time: {cpus} CPUs of a shard times the wall time of its attempts. CPU time {cpu}"
    if account.max_rss_bytes is not None:
        text += f"; peak memory of a process {account.max_rss_bytes / 1e6:,.0f} MB"
    if account.blind_count:
        text += (
            f". {account.blind_count} killed attempts count up to their last sign in the journal"
        )
    return text + "."


def _interruptions(closing: Closing) -> str:
    """How attempts were interrupted, in words; empty when none was."""
    stops = closing.facts.account.stops
    cut = {k: n for k, n in stops.items() if k not in ("done", "failed", "error", "ended")}
    return ", ".join(f"{n} {name}" for name, n in sorted(cut.items(), key=lambda x: -x[1]))


def _failure(group: dict[str, Any]) -> Context:
    shards = group["shards"]
    more = f" and {len(shards) - 3} more" if len(shards) > 3 else ""
    word = "shard" if len(shards) == 1 else "shards"
    where = f"{word} {', '.join(shards[:3])}{more}"
    return group | {"where": where, "do": _DO.get(group["action"], group["action"])}


def _results(closing: Closing) -> Context:
    table = closing.table
    names = [n for n in table.columns if n != "shard"]
    rows = [[_trim(row.get(name, "")) for name in names] for row in table.first]
    all_ = f"{table.row_count:,} rows"
    first = f"the first {len(rows):,} of {all_}" if table.row_count > len(rows) else all_
    best = None if table.best is None else table.best["task"]
    note = f"{first}; all of them are in results.csv"
    return {"columns": names, "rows": rows, "best": best, "note": note}


def _shards(closing: Closing) -> Context:
    columns = ["shard", "verdict", "done", "failed", "missing", "attempts", "checkpoints", "next"]
    rows = [_shard_row(v) for v in closing.facts.verdicts]
    return {"columns": columns, "rows": rows, "best": None}


def _shard_row(verdict: ShardVerdict) -> list[str]:
    shard = verdict.shard
    bad = len(shard.failed) + len(shard.damaged)
    counts = (shard.done, bad, len(shard.missing), len(shard.attempts), len(shard.checkpoints))
    return [shard.name, str(verdict.verdict), *map(str, counts), verdict.next_action]


def _contract(closing: Closing) -> list[tuple[str, str]]:
    run, spec, plan = closing.facts.run, closing.facts.run.spec, closing.facts.run.plan or {}
    if run.contract is None or spec is None:
        return [("contract", "n/a")]
    need = spec.resources
    rows = [
        ("contract", run.contract["digest"]),
        ("frozen", run.contract["created"]),
        ("software", ", ".join(spec.software) or "n/a"),
        ("resources of a shard", f"{need.cpus} CPUs, {need.mem_mb} MB, {need.gpus} GPUs"),
        ("resource class", spec.resource_class),
        ("resume", spec.resume),
        ("stop", spec.stop),
    ]
    interval = plan.get("interval_s")
    if interval is not None:
        rows.append(
            (
                "checkpoint interval",
                f"{duration(interval)}, {plan.get('interval_source', 'planned')}",
            )
        )
    if plan.get("mode"):
        rows.append(("mode", plan["mode"]))
    return rows


def _number(text: str | None) -> float | None:
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value if value - value == 0 else None


def _short(value: float | None) -> str:
    return "n/a" if value is None else f"{value:.6g}"


def _trim(text: str) -> str:
    """A long decimal fraction with six digits; everything else as it is."""
    value = _number(text)
    return f"{value:.6g}" if value is not None and "." in text and len(text) > 8 else text
