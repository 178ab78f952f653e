"""A command with fields: parsed once, filled in for each task, and never able to run a value.

`{field}` stands for a value, `{{` and `}}` for braces. A template without shell syntax is split
into words once and started directly; only then are values put in. A template that does use
shell syntax becomes a bash script to which values are passed as arguments. Either way a value
is never split, expanded or run, whatever it holds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

from milepost.config.hazards import hazard
from milepost.config.script import make_script
from milepost.config.template import Field, Piece, split_fields, unique_names
from milepost.config.words import split_words
from milepost.errors import ConfigError

SHELL = ("bash", "-euo", "pipefail", "-c")
BUILTIN_FIELDS = frozenset({"out"})
"""Fields that the runner fills in; a column of the table must not have such a name."""

_Maker = Callable[[Mapping[str, str]], str]


@dataclass(frozen=True, slots=True)
class CommandTemplate:
    """A parsed template; make one with `parse`. `fields` are in the order of first use."""

    text: str
    fields: tuple[str, ...]
    needs_shell: bool
    _constant: tuple[str, ...] = field(repr=False)
    _makers: tuple[tuple[int, _Maker], ...] = field(repr=False)

    @classmethod
    def parse(cls, text: str, where: object = None) -> CommandTemplate:
        """Parse `text`; ConfigError when a brace is wrong or a value could become code."""
        pieces = split_fields(text.strip(), where)
        names = unique_names(pieces)
        words = split_words(pieces, where)
        needs_shell = words is None
        if words is not None:
            _check_words(words, where)
        else:
            script = (*SHELL, make_script(pieces, where), "milepost")
            words = [*((word,) for word in script), *((Field(name),) for name in names)]
        if not words:
            raise ConfigError("the command is empty", where=where, fix="write a program to run")
        constant = tuple(_literal(word) for word in words)
        makers = [(at, _maker(word)) for at, word in enumerate(words)]
        return cls(text, names, needs_shell, constant, tuple((n, m) for n, m in makers if m))

    def argv(self, values: Mapping[str, str]) -> list[str]:
        """The words to start, without a shell; ConfigError when a field has no value."""
        words = list(self._constant)
        try:
            for at, make in self._makers:
                words[at] = make(values)
        except KeyError as error:
            raise ConfigError(
                f"field {{{error.args[0]}}} of the command has no value",
                where=self.text,
                fix="add a column of that name to the table, or write {{ and }} for braces",
            ) from error
        return words


def _check_words(words: Sequence[tuple[Piece, ...]], where: object) -> None:
    """Refuse a field that another program, such as `bash -c`, would run."""
    literal = [_literal(word) for word in words]
    for at, word in enumerate(words):
        names = [piece.name for piece in word if isinstance(piece, Field)]
        if names and (reason := hazard(literal[:at], literal[at])):
            raise ConfigError(
                f"field {{{names[0]}}} stands {reason}: its value could become code",
                where=where,
                fix="write the command itself: milepost starts a shell where one is needed",
            )


def _literal(word: Sequence[Piece]) -> str:
    return "".join(piece for piece in word if isinstance(piece, str))


def _maker(word: tuple[Piece, ...]) -> _Maker | None:
    """A function from values to the finished word; None when the word holds no field."""
    names = [piece.name for piece in word if isinstance(piece, Field)]
    if not names:
        return None
    get: Callable[[Mapping[str, str]], Any] = itemgetter(*names)
    if len(word) == 1:
        return get
    pattern = "".join("%s" if isinstance(p, Field) else p.replace("%", "%%") for p in word)
    return lambda values: str(pattern % get(values))
