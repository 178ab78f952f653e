"""Split a command into words as a shell would, as long as it needs no shell."""

from __future__ import annotations

import re
from collections.abc import Sequence

from milepost.config.template import Field, Piece
from milepost.errors import ConfigError

_SYNTAX_BY_QUOTE = {"": frozenset("|&;<>()$`*?[\n"), '"': frozenset("$`"), "'": frozenset()}
_QUOTES = frozenset("'\"")
_SPACE = frozenset(" \t")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*\+?=", re.ASCII)
_BRACES = re.compile(r"\{.*(,|\.\.).*\}", re.DOTALL)
_ESCAPED_IN_DOUBLE = frozenset('"\\$`')
_SHELL_WORDS = """
{ } ! [[ ]] if then else elif fi for while until do done case esac select function time coproc
. : alias bg bind break builtin caller cd command compgen complete compopt continue declare
dirs disown enable eval exec exit export fc fg getopts hash help history jobs let local
logout mapfile module popd pushd read readarray readonly return set shift shopt source
suspend times trap type typeset ulimit umask unalias unset wait conda
"""
SHELL_WORDS = frozenset(_SHELL_WORDS.split())
"""First words that only a shell understands: reserved words, builtins, common functions."""


class _Word:
    """A word while it is read; `bare` is its unquoted text, with a NUL for what was quoted."""

    def __init__(self) -> None:
        self.pieces: list[Piece] = []
        self.bare = ""

    def add(self, piece: Piece, is_quoted: bool) -> None:
        if isinstance(piece, str) and self.pieces and isinstance(self.pieces[-1], str):
            self.pieces[-1] += piece
        else:
            self.pieces.append(piece)
        self.bare += "\0" if is_quoted or isinstance(piece, Field) else piece

    def needs_shell(self, is_first: bool) -> bool:
        text = "".join(p for p in self.pieces if isinstance(p, str))
        if is_first and (text in SHELL_WORDS or _ASSIGNMENT.match(self.bare)):
            return True
        return self.bare[:1] in ("~", "#") or bool(_BRACES.search(self.bare))


def split_words(pieces: Sequence[Piece], where: object = None) -> list[tuple[Piece, ...]] | None:
    """The words of a command, quotes removed; None when it uses shell syntax.

    ConfigError when a quote is not closed.
    """
    splitter = _Splitter(pieces)
    if not splitter.split():
        return None
    if splitter.quote:
        raise ConfigError(f"a quote {splitter.quote} is not closed", where=where, fix="close it")
    if any(word.needs_shell(at == 0) for at, word in enumerate(splitter.words)):
        return None
    return [tuple(p for p in word.pieces if p != "") for word in splitter.words]


class _Splitter:
    """Goes through a command piece by piece, as long as no shell is needed."""

    def __init__(self, pieces: Sequence[Piece]) -> None:
        self.pieces = pieces
        self.at = 0
        self.quote = ""
        self.words: list[_Word] = []
        self.is_inside = False  # a word has begun and not ended

    def split(self) -> bool:
        """Fill `words`; False as soon as shell syntax is met."""
        while self.at < len(self.pieces):
            piece = self.pieces[self.at]
            self.at += 1
            if not self.take(piece):
                return False
        return True

    def take(self, piece: Piece) -> bool:
        if piece in _SYNTAX_BY_QUOTE[self.quote]:
            return False
        if piece == "\\" and self.quote != "'":
            return self.escape()
        if piece in _SPACE and not self.quote:
            self.is_inside = False
        elif piece == self.quote or (piece in _QUOTES and not self.quote):
            self.quote = "" if self.quote else str(piece)
            self.add("", is_quoted=True)
        else:
            self.add(piece, is_quoted=bool(self.quote))
        return True

    def escape(self) -> bool:
        """Take what a backslash protects; in double quotes it protects little."""
        following = self.pieces[self.at] if self.at < len(self.pieces) else ""
        if isinstance(following, Field) or not following:
            return False
        if following == "\n":
            self.at += 1
        elif not self.quote or following in _ESCAPED_IN_DOUBLE:
            self.at += 1
            self.add(following, is_quoted=True)
        else:
            self.add("\\", is_quoted=True)
        return True

    def add(self, piece: Piece, is_quoted: bool) -> None:
        if not self.is_inside:
            self.words.append(_Word())
            self.is_inside = True
        self.words[-1].add(piece, is_quoted)
