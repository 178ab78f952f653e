"""The report of a closeout: one self-contained HTML page, a pure function of the closing."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from milepost.evidence import sections, sections_time
from milepost.evidence.closeout import Item
from milepost.evidence.redact import without_credentials
from milepost.evidence.words import core_hours, duration, plural

if TYPE_CHECKING:
    from milepost.evidence.closing import Closing
    from milepost.evidence.types import RunEvidence

Context = dict[str, Any]
_TEMPLATES = Path(__file__).parent / "templates"
_SIGNS = {True: ("ok", "✓", "yes"), False: ("bad", "✗", "no"), None: ("none", "–", "n/a")}
_NEXT_SHARDS = 5
_COVERED = ("shards_judged", "shards_done", "artifacts_verified", "tasks_terminal")
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
    environment.filters |= {"island": _island, "cell": shown}
    template = environment.get_template("report.html.j2")
    context = without_credentials(_context(closing, record))
    return template.render(context).lstrip() + "\n"


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
        "superseded": _superseded(closing),
        "tiles": _tiles(record),
        "items": [_item(item) for item in closing.closeout.items],
        "best": sections.best(closing),
        "control": sections.control(closing),
        "timeline": sections_time.time_line(closing),
        "hours": sections_time.hours(record),
        "queue": sections_time.queue(record),
        "account_note": _account_note(closing),
        "planned": [tuple(row.values()) for row in record["planned_observed"]],
        "failures": [_failure(group) for group in record["failures"]],
        "interruptions": _interruptions(closing),
        "results": sections.results(closing),
        "shards": sections_time.shards(record),
        "contract": _contract(closing),
        "amendments": record["amendments"],
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
        start = shards[0].command.partition(" results/")[0].removesuffix(" --force")
        text = (
            f"The same for {plural(more, 'more shard')}, listed below; all unfinished ones at once:"
        )
        steps.append({"text": text, "command": f"{start} failed"})
    covered = _COVERED if shards else ()
    steps += [
        {"text": f"{i.title}: {i.next_action}", "command": ""}
        for i in open_
        if i.key not in covered
    ]
    look = f"milepost reconcile {closing.facts.run.paths.run}"
    first = {"text": "See what is true now; nothing is launched anew before that:", "command": look}
    return [first, *steps] if open_ else []


def _accepted(closing: Closing) -> list[Context]:
    titles = {item.key: item.title.lower() for item in closing.closeout.items}
    return [
        {"time": a.time[:10], "reason": a.reason, "titles": "; ".join(titles[k] for k in a.items)}
        for a in closing.closeout.accepted
    ]


def _superseded(closing: Closing) -> Context | None:
    note = closing.closeout.superseded
    return None if note is None else {"by": note.by, "time": note.time[:10], "reason": note.reason}


def _tiles(record: dict[str, Any]) -> list[Context]:
    """The numbers of the run; `fact` is where each stands in the record, `as` its form."""
    account, tasks, shards = record["account"], record["tasks"], record["shards"]
    done = {"tasks.done": tasks["done"], "shards.DONE": shards.get("DONE", 0)}
    named = [
        (f"of {plural(tasks['all'], 'task')} done", "tasks.done", "count", done["tasks.done"]),
        (
            f"of {plural(sum(shards.values()), 'shard')} done",
            "shards.DONE",
            "count",
            done["shards.DONE"],
        ),
    ]
    for name, key, form in (
        ("interruptions", "interruption_count", "count"),
        ("checkpoints", "checkpoint_count", "count"),
        ("core hours lost", "lost_core_s", "core_seconds"),
        ("core hours allocated", "allocated_core_s", "core_seconds"),
        ("elapsed", "elapsed_s", "duration"),
    ):
        named.append((name, f"account.{key}", form, account[key]))
    return [
        {"name": name, "fact": fact, "as": form, "value": shown(value, form)}
        for name, fact, form, value in named
    ]


def shown(value: Any, form: str) -> str:
    """A fact of the record in the words of the page."""
    if form == "duration":
        return duration(value)
    if form == "core_hours":
        return core_hours(value)
    if form == "core_seconds":
        return core_hours(None if value is None else value / 3600.0)
    if form == "line":
        return ""
    if value is None:
        return "n/a"
    return f"{value:,}" if form == "count" else str(value)


def _item(item: Item) -> Context:
    tone, sign, word = _SIGNS[item.holds]
    shown = item.as_json() | {"tone": tone, "sign": sign, "word": word}
    return shown | {"next_action": ""} if item.key in _COVERED else shown


def _account_note(closing: Closing) -> str:
    account = closing.facts.account
    spec = closing.facts.run.spec
    cpus = "n/a" if spec is None else spec.resources.cpus
    cpu = duration(account.cpu_s)
    text = f"Core time: {cpus} CPU{'' if cpus == 1 else 's'} of a shard times the wall time of its attempts. CPU time {cpu}"
    if account.max_rss_bytes is not None:
        text += f"; peak memory of a process {account.max_rss_bytes / 1e6:,.0f} MB"
    if account.blind_count:
        killed = plural(account.blind_count, "attempt")
        text += f". Killed and counted up to the last sign in the journal: {killed}"
    return text + "."


def _interruptions(closing: Closing) -> str:
    """How attempts were interrupted, in words; empty when none was."""
    stops = closing.facts.account.stops
    cut = {
        k: n for k, n in stops.items() if k not in ("done", "failed", "error", "ended", "running")
    }
    return ", ".join(f"{n} {name}" for name, n in sorted(cut.items(), key=lambda x: -x[1]))


def _failure(group: dict[str, Any]) -> Context:
    shards = group["shards"]
    more = f" and {len(shards) - 3} more" if len(shards) > 3 else ""
    word = "shard" if len(shards) == 1 else "shards"
    where = f"{word} {', '.join(shards[:3])}{more}"
    return group | {"where": where, "do": _DO.get(group["action"], group["action"])}


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
    if run.places:
        rows.append(("places", places(run)))
    elif plan.get("mode"):
        rows.append(("mode", plan["mode"]))
    return rows


def places(run: RunEvidence) -> str:
    """How many shards are in each place."""
    counts = Counter(run.places.values())
    return "; ".join(
        f"{count} on {profile or 'this machine'}, {mode}"
        for (profile, mode), count in counts.items()
    )
