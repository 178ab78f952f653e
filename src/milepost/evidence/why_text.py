"""The story of a job or a shard in words, for a terminal of 80 columns."""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from milepost.clock import iso
from milepost.evidence.tabulate import WIDTH
from milepost.evidence.why_next import next_step
from milepost.evidence.words import duration

if TYPE_CHECKING:
    from milepost.evidence.why import Running, Story, Waiting
    from milepost.evidence.why_attempts import AttemptStory

LABEL = 11
_EVIDENCE_LINES = 3
_WITNESS = {"priority": "(sprio)", "fair share": "(sshare)", "start": "(squeue --start)"}


def told(story: Story) -> str:
    """The whole story; commands stand on lines of their own behind a `$`."""
    lines = [_title(story)]
    lines += pairs(_facts(story))
    if story.attempts:
        lines += ["", "attempts" if len(story.attempts) > 1 else "attempt"]
        for attempt in story.attempts:
            lines += _attempt(attempt)
    lines += _next(story)
    if story.silences:
        lines += ["", "not heard"]
        for silence in story.silences:
            lines += textwrap.wrap(silence, WIDTH, initial_indent="  ", subsequent_indent="    ")
    return "\n".join(lines)


def _title(story: Story) -> str:
    shard = f"shard {story.run}/{story.shard}" if story.shard else ""
    job = f"job {story.job_id}" if story.job_id else ""
    who = f"{job} of {shard}" if job and shard else job or shard
    return f"{who}: {_standing(story)}"


def _standing(story: Story) -> str:
    if story.is_complete:
        return "done, every artifact verified"
    if story.state is not None:
        return story.state
    if story.running is not None:
        return "running"
    if story.holder is not None and story.holder_alive is None:
        return "cannot be told"
    if story.attempts:
        last = story.attempts[-1]
        return f"not running; attempt {last.number} ended" if last.number else "not running"
    return "nothing is known" if story.job_id else "not started"


def _facts(story: Story) -> Iterator[tuple[str, str]]:
    about = ", ".join(f"{k} {v}" for k, v in story.about.items() if k != "name")
    if about:
        yield "where", about
    if story.waiting is not None:
        yield from _waiting(story.waiting, story)
    if story.running is not None:
        yield from _running(story.running, story)
    if story.holder is not None:
        life = {True: "alive", False: "dead", None: "cannot be told alive or dead"}
        yield "lease", f"{story.holder}: {life[story.holder_alive]}"
    if story.progress is not None:
        tasks = "" if story.progress.tasks is None else f" of {story.progress.tasks}"
        failed = f", {story.progress.failed} failed" if story.progress.failed else ""
        yield (
            "journal",
            f"{story.progress.done}{tasks} done{failed}; last row: {story.progress.last_row}",
        )
        if story.progress.checkpoint is not None:
            yield "checkpoint", story.progress.checkpoint


def _waiting(waiting: Waiting, story: Story) -> Iterator[tuple[str, str]]:
    reason = waiting.reason
    detail = f" ({reason.detail})" if reason.detail else ""
    yield "why", f"{reason.name}{detail}: {reason.meaning}"
    yield "wait?", reason.says
    yield "do", f"{reason.advice}\n{reason.remedy}"
    if waiting.since is not None:
        yield "submitted", f"{_moment(waiting.since)}, {duration(story.now - waiting.since)} ago"
    silent = " ".join(story.silences)
    for label, text in (
        ("priority", _priority(waiting)),
        ("fair share", _share(waiting)),
        ("start", _forecast(waiting, story.now)),
    ):
        yield label, "n/a: not heard, see below" if _WITNESS[label] in silent else text


def _priority(waiting: Waiting) -> str:
    value = waiting.priority
    if value is None:
        return "n/a: sprio shows none for it (held, not yet looked at, or no priorities here)"
    parts = " + ".join(f"{name} {part:g}" for name, part in value.parts.items())
    ahead = {None: "", 0: "; no job of its partition is ahead of it"}.get(
        value.ahead, f"; {value.ahead} waiting ahead of it"
    )
    return f"{value.value}" + (f" = {parts}" if parts else "") + ahead


def _share(waiting: Waiting) -> str:
    value = waiting.share
    if value is None:
        return "n/a: sshare shows none for this user and account"
    return (
        f"account {value.account}: {_percent(value.share)} is yours of it, "
        f"{_percent(value.usage)} of all use was yours, factor {_plain(value.factor)} (1 is best)"
    )


def _forecast(waiting: Waiting, now: float) -> str:
    value = waiting.forecast
    if value is None:
        return "n/a: the scheduler has made no forecast for it"
    where = f" on {value.nodes}" if value.nodes else ""
    return (
        f"about {_moment(value.start)} (in {duration(max(0.0, value.start - now))}){where}, "
        "if every job ahead uses its whole time"
    )


def _running(running: Running, story: Story) -> Iterator[tuple[str, str]]:
    since = (
        ""
        if running.since is None
        else (f" since {_moment(running.since)}, {duration(story.now - running.since)}")
    )
    yield "running", f"{running.where or 'n/a'}{since}"
    if running.limit_s is not None and math.isinf(running.limit_s):
        yield "time left", "no limit"
    else:
        left_s = running.left_s(story.now)
        limit = "" if running.limit_s is None else f" of {duration(running.limit_s)}"
        yield "time left", duration(None if left_s is None else max(0.0, left_s)) + limit


def _attempt(attempt: AttemptStory) -> Iterator[str]:
    number = "" if attempt.number is None else f"{attempt.number}  "
    job = "" if attempt.job_id is None else f", job {attempt.job_id}"
    end = "still running" if attempt.is_open else f"to {_moment(attempt.ended)}"
    yield f"  {number}{_moment(attempt.started)} {end} ({duration(attempt.wall_s)})"
    yield from _indented(f"on {attempt.where or 'n/a'}{job}")
    yield from _indented(_ending(attempt))
    if not attempt.is_open:
        yield from _indented(_usage(attempt))
    if attempt.finding is not None:
        finding = attempt.finding
        cause = "" if attempt.cause is None else f": {attempt.cause}"
        yield from _indented(f"{finding.failure_class}/{finding.subclass}{cause}")
        lines = [e for e in finding.evidence if not e.startswith(("scheduler state", "exit code"))]
        yield from (_cut(f"    | {line}") for line in lines[:_EVIDENCE_LINES])
    if attempt.log is not None:
        yield f"    log {attempt.log}"


def _ending(attempt: AttemptStory) -> str:
    parts = [attempt.state or ""]
    if attempt.stop is not None:
        parts.append(f"runner: {attempt.stop}")
    if attempt.exit_text is not None:
        words = f" ({attempt.exit_words})" if attempt.exit_words else ""
        parts.append(f"exit {attempt.exit_text}{words}")
    return ", ".join(part for part in parts if part)


def _usage(attempt: AttemptStory) -> str:
    memory = "n/a" if attempt.max_rss_bytes is None else _size(attempt.max_rss_bytes)
    if attempt.asked_bytes:
        part = (
            ""
            if attempt.max_rss_bytes is None
            else (f" ({100 * attempt.max_rss_bytes / attempt.asked_bytes:.0f} %)")
        )
        memory += f" of {_size(attempt.asked_bytes)}{part}"
    cpu = f"CPU {duration(attempt.cpu_s)}"
    if attempt.cpus and attempt.cpu_wall_s and attempt.cpu_s is not None:
        share = 100 * attempt.cpu_s / (attempt.cpus * attempt.cpu_wall_s)
        cpu += f" of {attempt.cpus} x {duration(attempt.cpu_wall_s)} ({share:.0f} %)"
    return f"memory {memory}, {cpu}"


def _next(story: Story) -> list[str]:
    step = next_step(story)
    if step is None:
        return []
    text, commands = step
    return ["", *pairs([("next", "\n".join([text, *commands]))])]


def pairs(labelled: Iterable[tuple[str, str]]) -> list[str]:
    """Label and text in two columns; what follows a newline are commands, kept whole."""
    lines: list[str] = []
    for label, value in labelled:
        text, *commands = value.split("\n")
        wrapped = textwrap.wrap(text, WIDTH - LABEL - 2, break_on_hyphens=False) or [""]
        wrapped += [line for command in commands for line in command_lines(command)]
        lines.append(f"  {label:<{LABEL}}{wrapped[0]}")
        lines += [" " * (LABEL + 2) + line for line in wrapped[1:]]
    return lines


def command_lines(commands: str, width: int = WIDTH - LABEL - 2) -> Iterator[str]:
    """Commands one below the other; a long one goes on after a backslash, never inside quotes."""
    for command in re.split(r"; (?=\w)", commands):
        line = "$"
        for word in re.findall(r"(?:'[^']*'|[^\s'])+", command):
            if len(line) + len(word) > width - 3 and line.strip() != "$":
                yield line + " \\"
                line = "   "
            line += f" {word}"
        yield line


def _indented(text: str) -> list[str]:
    return textwrap.wrap(
        text, WIDTH, initial_indent="    ", subsequent_indent="    ", break_on_hyphens=False
    )


def _cut(line: str) -> str:
    return line if len(line) <= WIDTH else line[: WIDTH - 2] + " …"


def _moment(epoch_s: float | None) -> str:
    return "n/a" if epoch_s is None else f"{iso(epoch_s)[:19]}Z"


def _size(number: int) -> str:
    if number < 2**20:
        return "under 1 MiB"
    return f"{number / 2**20:.0f} MiB" if number < 10 * 2**30 else f"{number / 2**30:.1f} GiB"


def _percent(value: float | None) -> str:
    return "n/a" if value is None else f"{100 * value:.1f} %"


def _plain(value: float | None) -> str:
    return "n/a" if value is None else f"{value:.3f}"
