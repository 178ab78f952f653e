"""Fields in a text: `{name}` stands for a value, `{{` and `}}` for braces."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from milepost.errors import ConfigError

_TOKEN = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]|[^{}]+")
_NAME = re.compile(r"[^\W\d][\w .-]*(?<! )")


@dataclass(frozen=True, slots=True)
class Field:
    """A place for a value."""

    name: str


Piece = str | Field


def split_fields(text: str, where: object = None) -> list[Piece]:
    """Split a template into literal characters and fields; ConfigError for a stray brace.

    Literal text comes as single characters, so that a scanner can go through it.
    """
    pieces: list[Piece] = []
    for match in _TOKEN.finditer(text):
        token, name = match[0], match[1]
        if token in ("{{", "}}"):
            pieces.append(token[0])
        elif name is not None and _NAME.fullmatch(name):
            pieces.append(Field(name))
        elif name is not None or token in "{}":
            raise ConfigError(
                f"{token!r} is not a field (character {match.start() + 1} of {text!r})",
                where=where,
                fix="a field is a column name in braces; write {{ and }} for braces themselves",
            )
        else:
            pieces.extend(token)
    return pieces


def field_names(text: str, where: object = None) -> tuple[str, ...]:
    """The fields of a template in the order of first use."""
    return unique_names(split_fields(text, where))


def unique_names(pieces: Sequence[Piece]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(piece.name for piece in pieces if isinstance(piece, Field)))


def fill(text: str, values: dict[str, str], where: object = None) -> str:
    """Put values into a plain text (a path, a file name); never for a command."""
    try:
        return "".join(
            values[piece.name] if isinstance(piece, Field) else piece
            for piece in split_fields(text, where)
        )
    except KeyError as error:
        raise ConfigError(
            f"field {{{error.args[0]}}} has no value", where=where or text, fix="mend its name"
        ) from error
