"""The story of a job or a shard as plain data: times ISO 8601, None what is not known."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from milepost.clock import iso
from milepost.evidence.why_next import next_step

if TYPE_CHECKING:
    from milepost.evidence.why import Running, Story, Waiting
    from milepost.evidence.why_attempts import AttemptStory


def as_json(story: Story) -> dict[str, Any]:
    """Everything that `milepost why --json` prints."""
    step = next_step(story)
    return {
        "job": story.job_id,
        "run": story.run,
        "shard": story.shard,
        "state": story.state,
        "is_complete": story.is_complete,
        "about": story.about,
        "waiting": None if story.waiting is None else _waiting(story.waiting),
        "running": None if story.running is None else _running(story.running, story.now),
        "lease": None
        if story.holder is None
        else {"holder": story.holder, "is_alive": story.holder_alive},
        "progress": None if story.progress is None else asdict(story.progress),
        "attempts": [_attempt(attempt) for attempt in story.attempts],
        "next": None if step is None else {"text": step[0], "commands": list(step[1])},
        "not_heard": list(story.silences),
    }


def _waiting(waiting: Waiting) -> dict[str, Any]:
    start = waiting.forecast
    return {
        "reason": waiting.reason.as_json(),
        "since": _iso(waiting.since),
        "priority": None if waiting.priority is None else asdict(waiting.priority),
        "fair_share": None if waiting.share is None else asdict(waiting.share),
        "forecast": None if start is None else {"start": iso(start.start), "nodes": start.nodes},
    }


def _running(running: Running, now: float) -> dict[str, Any]:
    return {
        "where": running.where,
        "since": _iso(running.since),
        "limit_s": _finite(running.limit_s),
        "left_s": _finite(running.left_s(now)),
    }


def _attempt(attempt: AttemptStory) -> dict[str, Any]:
    return {
        "number": attempt.number,
        "job": attempt.job_id,
        "where": attempt.where,
        "started": _iso(attempt.started),
        "ended": _iso(attempt.ended),
        "is_open": attempt.is_open,
        "state": attempt.state,
        "stop": attempt.stop,
        "exit": attempt.exit_text,
        "exit_means": attempt.exit_words,
        "max_rss_bytes": attempt.max_rss_bytes,
        "asked_bytes": attempt.asked_bytes,
        "cpu_s": attempt.cpu_s,
        "cpu_wall_s": attempt.cpu_wall_s,
        "cpus": attempt.cpus,
        "finding": None if attempt.finding is None else attempt.finding.as_json(),
        "cause": attempt.cause,
        "log": None if attempt.log is None else str(attempt.log),
    }


def _iso(epoch_s: float | None) -> str | None:
    return None if epoch_s is None else iso(epoch_s)


def _finite(value: float | None) -> float | None:
    return None if value is None or math.isinf(value) else value
