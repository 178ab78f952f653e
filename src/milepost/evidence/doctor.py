"""From symptom to cause to remedy: what ails a run, by what it left on disk.

Each ailment has a question that returns its diagnoses and says what it looked at, so that a
healthy run gets none and a person sees that it was not for want of looking. Words, causes and
remedies stand in workflow/policies/doctor.yaml. Why a single shard is not done is asked of
`milepost why`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from milepost.evidence.doctor_facts import CaseFile, Patient
from milepost.evidence.redact import without_credentials
from milepost.resources import load_yaml

_LINES = 3


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """An ailment of a shard, or of the whole run (`shard` is None)."""

    ailment: str
    cause: str
    shard: str | None
    evidence: tuple[str, ...]
    fields: Mapping[str, str] = field(default_factory=dict)

    @property
    def symptom(self) -> str:
        return str(policy()[self.ailment]["symptom"])

    @property
    def why(self) -> str:
        return str(self._cause()["why"])

    @property
    def remedy(self) -> str:
        return str(self._cause()["do"])

    def commands(self, run: str) -> tuple[str, ...]:
        """The commands of the remedy; what is not known stays in capitals."""
        known = {"run": run, "shard": self.shard or "SHARD", "folder": "FOLDER"}
        values = known | {"generation": "GENERATION"} | dict(self.fields)
        return tuple(str(text).format(**values) for text in self._cause()["run"])

    def _cause(self) -> Mapping[str, Any]:
        cause: Mapping[str, Any] = policy()[self.ailment]["causes"][self.cause]
        return cause

    def as_json(self, run: str) -> dict[str, Any]:
        return {
            "ailment": self.ailment,
            "shard": self.shard,
            "symptom": self.symptom,
            "cause": self.cause,
            "why": self.why,
            "evidence": list(self.evidence),
            "remedy": self.remedy,
            "commands": list(self.commands(run)),
        }


@dataclass(frozen=True, slots=True)
class Answer:
    """What a question found, and what it looked at."""

    ailment: str
    looked_at: str
    found: tuple[Diagnosis, ...] = ()


@dataclass(frozen=True, slots=True)
class Report:
    """All answers about a run, in the order of doctor.yaml."""

    run: str
    answers: tuple[Answer, ...]

    @property
    def diagnoses(self) -> tuple[Diagnosis, ...]:
        return tuple(d for answer in self.answers for d in answer.found)

    def as_json(self) -> dict[str, Any]:
        value = {
            "run": self.run,
            "healthy": not self.diagnoses,
            "diagnoses": [d.as_json(self.run) for d in self.diagnoses],
            "looked_at": {a.ailment: a.looked_at for a in self.answers},
        }
        cleaned: dict[str, Any] = without_credentials(value)
        return cleaned


def diagnose_run(case: CaseFile) -> Report:
    """Ask every question; a pure function of the case."""
    from milepost.evidence.doctor_questions import QUESTIONS

    answers = {answer.ailment: answer for answer in (ask(case) for ask in QUESTIONS)}
    return Report(case.run.paths.run, tuple(answers[name] for name in policy()))


@cache
def policy() -> Mapping[str, Any]:
    """Ailment -> its words, from doctor.yaml."""
    known: Mapping[str, Any] = load_yaml("policies", "doctor.yaml")["ailments"]
    return known


@cache
def _signs(ailment: str) -> re.Pattern[str]:
    return re.compile("|".join(policy()[ailment].get("said", ["(?!)"])), re.IGNORECASE)


def said(patient: Patient, ailment: str) -> Iterator[tuple[int, str]]:
    """Attempt and line, newest attempt first, of logs that name the ailment."""
    signs = _signs(ailment)
    for attempt in sorted(patient.logs, reverse=True):
        lines = dict.fromkeys(
            line.strip() for line in patient.logs[attempt].splitlines() if signs.search(line)
        )
        yield from ((attempt, line) for line in lines)


def first_lines(found: Iterable[tuple[int, str]]) -> tuple[str, ...]:
    """A few lines of logs as evidence."""
    texts = [f"attempt {attempt}: {line[:300]}" for attempt, line in found]
    more = [f"and {len(texts) - _LINES} lines more"] if len(texts) > _LINES else []
    return (*texts[:_LINES], *more)
