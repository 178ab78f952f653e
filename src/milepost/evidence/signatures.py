"""Failure signatures: parsed and compiled once from workflow/policies/failures.yaml.

A signature first looks for plain words in the whole text; only lines that hold one meet its
regular expression. Words whose first four letters are nowhere in the text are not looked for,
so that a log that fits nothing costs one pass.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import accumulate
from typing import Any

from milepost.config.schema import neighbour
from milepost.errors import ConfigError
from milepost.literals import literals_of
from milepost.model import Action, FailureClass
from milepost.resources import load_yaml

_LINES_PER_WORD = 50
_USER_RANK = 90
_SURE_RANK = 40
"""Below it are cascades and guesses, which nobody believes of a job that ended well."""
_GROUP = 4
_NUMBERED = ("errno", "signal")
_KEYS = frozenset(
    [
        "name",
        "class",
        "subclass",
        "action",
        "rank",
        "why",
        "words",
        "lines",
        "pattern",
        "errno",
        "signal",
        "needs",
        "unless",
        "not_line",
        "states",
        "exits",
        "only_failed",
    ]
)


_PYTHON_FRAME = re.compile(r'(.*?)\s*File "[^"]+(?<!\.c)", line \d+')
_HEADLINE = re.compile(r"error|fatal|exception|abort|fail|caused by|错误")
_NO_HEADLINE = re.compile(r"command error:|error in (?:rule|group|checkpoint) |warning")
_HEADLINE_CHARS = 200
_FORTRAN_FRAME = re.compile(r"\S+\s+[0-9A-F]{12,16}\s+\S+\s+\S+\s+\S+\s*$")


def _frames(lines: Sequence[str]) -> Iterator[int]:
    """Numbers of the frames in tracebacks of Python, with their line of code, and of Fortran.

    HDF5 prints its own in the same form, but there the next line is the message.
    """
    for number, line in enumerate(lines):
        if 'File "' in line and (found := _PYTHON_FRAME.match(line)):
            yield number
            code = lines[number + 1] if number + 1 < len(lines) else ""
            if code.startswith(found[1] + "    "):
                yield number + 1
        elif line.endswith("Unknown") and _FORTRAN_FRAME.match(line):
            yield number


def _headlines(lowered: Sequence[str]) -> dict[int, str]:
    """The headline of each line that stands below one: `Fatal error:`, and the next says which."""
    return {
        number + 1: line
        for number, line in enumerate(lowered[:-1])
        if line.endswith(":")
        and len(line) <= _HEADLINE_CHARS
        and _HEADLINE.search(line)
        and not _NO_HEADLINE.search(line)
    }


@dataclass(frozen=True, slots=True)
class Log:
    """The lines of a log, its text in lower case (line by line the same), and its letter groups."""

    lines: tuple[str, ...]
    lower: str
    groups: frozenset[str]
    begins: tuple[int, ...]
    """Where each line begins in `lower`."""
    frames: frozenset[int]
    """Lines of a traceback that show the way and not the failure."""
    headlines: Mapping[int, str]
    """By the number of the line below it."""

    @classmethod
    def of(cls, lines: Sequence[str]) -> Log:
        lowered = [line.lower() for line in lines]
        lower = "\n".join(lowered)
        groups = {lower[n : n + _GROUP] for n in range(len(lower) - _GROUP + 1)}
        begins = (0, *accumulate(len(line) + 1 for line in lowered[:-1]))
        return cls(
            tuple(lines),
            lower,
            frozenset(groups),
            begins,
            frozenset(_frames(lines)),
            _headlines(lowered),
        )

    def holds(self, word: str) -> bool:
        """Is `word` (lower case) somewhere in the text?"""
        return (len(word) < _GROUP or word[:_GROUP] in self.groups) and word in self.lower

    def holding(self, word: str) -> Iterator[tuple[int, str]]:
        """Line numbers (from 0) and lower-case lines that hold `word`: the first and last fifty."""
        end = 0
        for _ in range(_LINES_PER_WORD):
            start = self.lower.find(word, end)
            if start < 0:
                return
            begin, end = self._line_around(start)
            yield self._number(begin), self.lower[begin:end]
        seen, begin = end, len(self.lower)
        for _ in range(_LINES_PER_WORD):
            start = self.lower.rfind(word, seen, begin)
            if start < 0:
                return
            begin, end = self._line_around(start)
            yield self._number(begin), self.lower[begin:end]

    def _line_around(self, place: int) -> tuple[int, int]:
        end = self.lower.find("\n", place)
        return self.lower.rfind("\n", 0, place) + 1, len(self.lower) if end < 0 else end

    def _number(self, begin: int) -> int:
        return bisect_right(self.begins, begin) - 1

    def without(self, numbers: set[int]) -> Log:
        if not numbers:
            return self
        return Log.of([line for n, line in enumerate(self.lines) if n not in numbers])


@dataclass(frozen=True, slots=True)
class Pattern:
    """Which lines of which logs a signature is for; the keys of failures.yaml."""

    words: tuple[str, ...] = ()
    regexes: tuple[tuple[str, str], ...] = ()
    """Patterns of lines, each behind a plain text without which it cannot fit."""
    regex: re.Pattern[str] | None = None
    numbers: re.Pattern[str] | None = None
    needs: tuple[str, ...] = ()
    unless: tuple[str, ...] = ()
    not_line: tuple[str, ...] = ()
    keyed: tuple[tuple[str, str], ...] = ()
    """The words with their first letters; no letters for a short word."""

    @property
    def is_empty(self) -> bool:
        return not self.words and not self.regexes and self.numbers is None

    def lines_in(self, log: Log) -> list[int]:
        """Numbers of the lines that fit, ascending."""
        groups, text = log.groups, log.lower
        present = [
            word for group, word in self.keyed if (not group or group in groups) and word in text
        ]
        possible = [
            (word, line_pattern)
            for word, line_pattern in self.regexes
            if word[:_GROUP] in groups and word in text
        ]
        numbers = self.numbers is not None and any(log.holds(word) for word in _NUMBERED)
        if not present and not possible and not numbers:
            return []
        if self.needs and not any(log.holds(word) for word in self.needs):
            return []
        if self.unless and any(log.holds(word) for word in self.unless):
            return []
        found = {
            n
            for word in present
            for n, line in log.holding(word)
            if self._fits(line, log.headlines.get(n))
        }
        for word, line_pattern in possible:
            regex = _compiled(line_pattern)
            found |= {
                n
                for n, line in log.holding(word)
                if regex.search(line) and not any(other in line for other in self.not_line)
            }
        if numbers and self.numbers is not None:
            found |= self._numbered(log, self.numbers)
        return sorted(found - log.frames)

    def _fits(self, line: str, headline: str | None) -> bool:
        if self.not_line and any(word in line for word in self.not_line):
            return False
        if self.regex is None or self.regex.search(line) is not None:
            return True
        return headline is not None and self.regex.search(f"{headline} {line}") is not None

    def _numbered(self, log: Log, regex: re.Pattern[str]) -> set[int]:
        return {
            n
            for word in _NUMBERED
            for n, line in log.holding(word)
            if regex.search(line) and not any(other in line for other in self.not_line)
        }


@dataclass(frozen=True, slots=True)
class Signature:
    """A kind of failure: how it is recognised and what follows. `rank`: nearness to the cause."""

    name: str
    failure_class: FailureClass
    subclass: str
    action: Action
    rank: int
    why: str
    pattern: Pattern = field(default_factory=Pattern)
    states: frozenset[str] = frozenset()
    exits: frozenset[str] = frozenset()
    only_failed: bool = False
    """Not believed of a job that ended well."""

    def is_for(self, states: frozenset[str], exits: frozenset[str]) -> bool:
        """Do state and exit code, where the signature names some, fit?"""
        return (not self.states or bool(self.states & states)) and (
            not self.exits or bool(self.exits & exits)
        )


@dataclass(frozen=True, slots=True)
class Harmless:
    """Lines that look like failures; `after_success`: only where the job ended well."""

    pattern: Pattern
    why: str
    after_success: bool


@dataclass(frozen=True, slots=True)
class Signatures:
    """Everything that failures.yaml knows."""

    logs: tuple[Signature, ...]
    ends: tuple[Signature, ...]
    harmless: tuple[Harmless, ...]


def load_signatures(extra: Sequence[Mapping[str, Any]] = ()) -> Signatures:
    """The signatures that come with milepost, with a user's own before them.

    A user's signature has the keys of workflow/policies/failures.yaml (rank 90 by default); one
    that makes no sense is a ConfigError that names it.
    """
    known = _builtin()
    if not extra:
        return known
    own = tuple(_signature(row, f"signatures[{n}]") for n, row in enumerate(extra))
    for signature in own:
        _compile_all(signature)
        if signature.pattern.is_empty:
            raise ConfigError(
                "a signature needs `words`, `lines`, `errno` or `signal`",
                where=signature.name,
                fix="name words (lower case) that its line holds",
            )
    return Signatures(own + known.logs, known.ends, known.harmless)


def _compile_all(signature: Signature) -> None:
    for _, line in signature.pattern.regexes:
        try:
            _compiled(line)
        except re.error as error:
            raise ConfigError(
                f"not a regular expression: {error}", where=signature.name, fix=f"mend {line!r}"
            ) from error


@cache
def _builtin() -> Signatures:
    rows = load_yaml("policies", "failures.yaml")
    return Signatures(
        tuple(_signature(row, "signatures") for row in rows["signatures"]),
        tuple(_signature(row, "ends") for row in [*rows["exits"], *rows["states"]]),
        tuple(
            Harmless(_pattern(row, "harmless"), row["why"], "states" in row)
            for row in rows["harmless"]
        ),
    )


def _signature(row: Mapping[str, Any], where: str) -> Signature:
    name = str(row.get("name", where))
    if odd := sorted(set(row) - _KEYS):
        raise ConfigError(
            f"a signature has no key {odd[0]!r}; {neighbour(odd[0], sorted(_KEYS))}",
            where=name,
            fix=f"keys: {', '.join(sorted(_KEYS))}",
        )
    try:
        return Signature(
            name,
            FailureClass(row["class"]),
            str(row["subclass"]),
            Action(row["action"]),
            int(row.get("rank", _USER_RANK)),
            str(row.get("why", "")),
            _pattern(row, name),
            frozenset(str(state).upper() for state in row.get("states", ())),
            frozenset(str(code) for code in row.get("exits", ())),
            bool(row.get("only_failed", int(row.get("rank", _USER_RANK)) < _SURE_RANK)),
        )
    except KeyError as error:
        raise ConfigError(f"a signature needs {error.args[0]!r}", where=name) from error
    except ValueError as error:
        raise ConfigError(
            f"{error}", where=name, fix="the words are explained in workflow/policies/failures.yaml"
        ) from error


def _pattern(row: Mapping[str, Any], where: str) -> Pattern:
    try:
        regex = re.compile(row["pattern"], re.IGNORECASE) if "pattern" in row else None
        lines = [str(line) for line in row.get("lines", ())]
        regexes = tuple((text, line) for line in lines for text in literals_of(line))
    except (re.error, ValueError) as error:
        raise ConfigError(f"not a regular expression: {error}", where=where) from error
    words = _words(row, "words")
    return Pattern(
        words,
        regexes,
        regex,
        _numbers(row),
        _words(row, "needs"),
        _words(row, "unless"),
        _words(row, "not_line"),
        tuple((word[:_GROUP] if len(word) >= _GROUP else "", word) for word in words),
    )


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    """Compiled when a log holds its plain text: most of a thousand are never needed."""
    return re.compile(pattern, re.IGNORECASE)


def _words(row: Mapping[str, Any], key: str) -> tuple[str, ...]:
    return tuple(str(word).lower() for word in row.get(key, ()))


def _numbers(row: Mapping[str, Any]) -> re.Pattern[str] | None:
    if "errno" in row:
        return re.compile(rf"errno\W{{0,6}}{int(row['errno'])}\b")
    if "signal" in row:
        return re.compile(rf"signal\W{{0,3}}(?:[\w -]{{0,30}}\W{{1,3}})?{int(row['signal'])}\b")
    return None
