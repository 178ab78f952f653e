"""Name a failure from what was seen of it: the log, the scheduler's state, the exit code.

Every witness may speak; the finding nearest to the cause wins (`rank` in failures.yaml), so
that an MPI abort after a full disk is a full disk. What nothing explains stays unknown.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from milepost.evidence.logtext import lines_of
from milepost.evidence.signatures import Log, Signature, Signatures, load_signatures
from milepost.model import Action, FailureClass, Finding

_EVIDENCE_LINES = 3
_EVIDENCE_CHARS = 300
_KILLER_RANK = 90
_SURE_RANK = 40
_WARNING_COSTS = 15
_WARNING = re.compile(r"\bwarn(?:ing)?\b", re.IGNORECASE)
_LEVEL_CHARS = 60
"""A line says how serious it is at its beginning."""

_CONFIDENCE = ((90, 0.95), (75, 0.85), (60, 0.7), (40, 0.5), (20, 0.35), (0, 0.2))
_ATTEMPT_LINES = 20
_ATTEMPT_END = re.compile(r"due to (?:preemption|node failure|job requeue)", re.IGNORECASE)
_SHORT = {
    "BF": "BOOT_FAIL", "CA": "CANCELLED", "CD": "COMPLETED", "DL": "DEADLINE", "F": "FAILED",
    "NF": "NODE_FAIL", "OOM": "OUT_OF_MEMORY", "PD": "PENDING", "PR": "PREEMPTED",
    "R": "RUNNING", "RQ": "REQUEUED", "RS": "RESIZING", "RV": "REVOKED", "S": "SUSPENDED",
    "TO": "TIMEOUT", "CG": "COMPLETING", "CF": "CONFIGURING",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Candidate:
    """A signature that fits, with the lines of the log where it does."""

    signature: Signature
    lines: tuple[int, ...]
    is_warning: bool = False
    """All its lines call themselves warnings: what a program went on after is seldom its end."""

    @property
    def rank(self) -> int:
        is_complaint = _SURE_RANK <= self.signature.rank < _KILLER_RANK
        return self.signature.rank - (_WARNING_COSTS if self.is_warning and is_complaint else 0)

    @property
    def order(self) -> tuple[int, int]:
        """Sorts the best first: highest rank, then the earliest line."""
        return -self.rank, self.lines[0] if self.lines else 1 << 40


@dataclass(frozen=True, slots=True)
class End:
    """How a job ended, in all words under which signatures know it."""

    state: str | None
    exit_code: str | None
    states: frozenset[str]
    exits: frozenset[str]

    @property
    def is_success(self) -> bool:
        """Does the scheduler (or the exit code, without one) speak of success?"""
        good = self.exit_code in (None, "0", "0:0")
        if self.state is None:
            return good and self.exit_code is not None
        return good and "COMPLETED" in self.states and "COMPLETING" not in self.states

    @property
    def is_silent(self) -> bool:
        return self.state is None and self.exit_code is None

    def facts(self) -> tuple[str, ...]:
        state = () if self.state is None else (f"scheduler state {self.state}",)
        code = () if self.exit_code is None else (f"exit code {self.exit_code}",)
        return state + code


def classify(
    log: Path | str | bytes | None,
    *,
    state: str | None = None,
    exit_code: str | int | None = None,
    extra: Sequence[Mapping[str, Any]] = (),
) -> Finding:
    """Name the failure in a log (a Path, or the text itself), with the lines that prove it.

    `state` is a word of Slurm such as `TIMEOUT` or `CANCELLED by 0`; `exit_code` is a number
    (negative: a signal) or `exit:signal` as sacct prints it. `extra` are a user's own signatures.
    """
    return diagnose(log, state=state, exit_code=exit_code, extra=extra)[0]


def diagnose(
    log: Path | str | bytes | None,
    *,
    state: str | None = None,
    exit_code: str | int | None = None,
    extra: Sequence[Mapping[str, Any]] = (),
) -> tuple[Finding, str]:
    """The same as `classify`, with one sentence that explains the finding."""
    known = load_signatures(extra)
    end = _end(state, exit_code)
    log_lines = Log.of(_last_attempt(lines_of(log), end))
    candidates = _candidates(known, log_lines, end)
    if not candidates:
        return _nothing_found(log_lines, end)
    # The harmless lines are only looked for when a line is suspected.
    cleaned = log_lines.without(_harmless(known, log_lines, end))
    if cleaned is not log_lines:
        candidates = _candidates(known, cleaned, end)
    if not candidates:
        return _nothing_found(log_lines, end)
    best = candidates[0]
    finding = Finding(
        best.signature.failure_class,
        best.signature.subclass,
        best.signature.action,
        _evidence(best, cleaned, end),
        _confidence(candidates),
    )
    return finding, best.signature.why


def _candidates(known: Signatures, log: Log, end: End) -> list[Candidate]:
    found = [
        Candidate(signature, tuple(lines), _are_warnings(log, lines))
        for signature in known.logs
        if signature.is_for(end.states, end.exits) and (lines := signature.pattern.lines_in(log))
    ]
    if not end.is_silent:
        found += [Candidate(s, ()) for s in known.ends if s.is_for(end.states, end.exits)]
    if end.is_success:
        found = [c for c in found if not c.signature.only_failed]
    return sorted(found, key=lambda candidate: candidate.order)


def _are_warnings(log: Log, lines: Sequence[int]) -> bool:
    return all(_WARNING.search(log.lines[number][:_LEVEL_CHARS]) for number in lines)


def _harmless(known: Signatures, log: Log, end: End) -> set[int]:
    return {
        number
        for harmless in known.harmless
        if end.is_success or not harmless.after_success
        for number in harmless.pattern.lines_in(log)
    }


def _evidence(best: Candidate, log: Log, end: End) -> tuple[str, ...]:
    lines = _shown([log.lines[number] for number in best.lines])
    return (*dict.fromkeys(lines[:_EVIDENCE_LINES]), *end.facts())


def _shown(lines: Sequence[str]) -> list[str]:
    """Lines as they may stand in a record: short, and without passwords, tokens and keys."""
    from milepost.evidence.redact import without_credentials

    stripped: list[str] = without_credentials([line.strip() for line in lines])
    return [line[:_EVIDENCE_CHARS] for line in stripped]


def _confidence(candidates: Sequence[Candidate]) -> float:
    """By rank; more when another witness agrees, less when an equally near one does not."""
    best, *others = candidates
    subclass = best.signature.subclass
    base = next(value for rank, value in _CONFIDENCE if best.rank >= rank)
    if any(other.signature.subclass == subclass for other in others):
        base += 0.1 * (1 - base)
    if any(o.signature.subclass != subclass and best.rank - o.rank <= 3 for o in others):
        base *= 0.7
    return round(base, 3)


def _nothing_found(log: Log, end: End) -> tuple[Finding, str]:
    last = _shown(log.lines[-_EVIDENCE_LINES:])
    evidence = (*last, *end.facts())
    if end.is_success:
        why = "nothing speaks of a failure, which proves no success: only the artifacts can"
        return Finding(FailureClass.NONE, "not_a_failure", Action.NONE, evidence, 0.5), why
    if end.is_silent and not log.lines:
        why = "neither a log nor a state nor an exit code: nothing is known"
        return Finding(FailureClass.SCHEDULER, "unknown_state", Action.WAIT, (), 0.2), why
    why = "no signature fits: read the last lines, and add a signature for the next time"
    return Finding(FailureClass.RUNTIME, "unknown", Action.FIX_NO_RETRY, evidence, 0.1), why


def _last_attempt(lines: list[str], end: End) -> list[str]:
    """A log that is appended to holds earlier attempts: drop those, if this one went on."""
    if end.state is None or end.states & {"PREEMPTED", "NODE_FAIL", "REQUEUED"}:
        return lines
    ends = [n for n, line in enumerate(lines) if _ATTEMPT_END.search(line)]
    if ends and len(lines) - ends[-1] > _ATTEMPT_LINES:
        return lines[ends[-1] + 1 :]
    return lines


def _end(state: str | None, exit_code: str | int | None) -> End:
    state = state.strip() if state and state.strip() else None
    code = None if exit_code is None or str(exit_code).strip() == "" else str(exit_code).strip()
    return End(state, code, _states(state), _exits(code))


def _states(state: str | None) -> frozenset[str]:
    if state is None:
        return frozenset()
    known = set(_SHORT.values()) | {"FAILED", "SPECIAL_EXIT", "STOPPED", "SIGNALING"}
    words = {state.upper()}
    if re.match(r"CANCELLED BY 0*[1-9A-Z]", state.upper()):
        words.add("CANCELLED BY USER")
    for word in re.split(r"[\s,|\[\]\"']+", state.upper()):
        cut = word.removesuffix("+")
        words |= {name for name in known if cut != word and cut and name.startswith(cut)}
        words.add(_SHORT.get(cut, cut))
    return frozenset(words - {""})


def _exits(code: str | None) -> frozenset[str]:
    if code is None:
        return frozenset()
    status, _, signal = code.partition(":")
    words = {code, status} if not signal else {code}
    if re.fullmatch(r"-?\d+", status):
        number = int(status)
        if number < 0:
            words.add(f"signal {-number}")
        elif number > 128:
            words.add(f"signal {number - 128}")
    if signal.isdecimal() and signal != "0":
        words.add(f"signal {signal}")
    return frozenset(words)
