"""Split a command into words as a shell would, as long as it needs no shell."""

from __future__ import annotations

import re
from collections.abc import Sequence

from milepost.config.template import Field, Piece
from milepost.errors import ConfigError

_SYNTAX = frozenset("|&;<>()$`*?[\n")
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

    def add(self, piece: Piece, quoted: bool) -> None:
        if isinstance(piece, str) and self.pieces and isinstance(self.pieces[-1], str):
            self.pieces[-1] += piece
        else:
            self.pieces.append(piece)
        self.bare += "\0" if quoted or isinstance(piece, Field) else piece

    def needs_shell(self, is_first: bool) -> bool:
        text = "".join(p for p in self.pieces if isinstance(p, str))
        if is_first and (text in SHELL_WORDS or _ASSIGNMENT.match(self.bare)):
            return True
        return self.bare[:1] in ("~", "#") or bool(_BRACES.search(self.bare))


def split_words(pieces: Sequence[Piece], where: object = None) -> list[tuple[Piece, ...]] | None:
    """The words of a command, quotes removed; None when it uses shell syntax.

    ConfigError when a quote is not closed.
    """
    words: list[_Word] = []
    word: _Word | None = None
    at, quote = 0, ""
    while at < len(pieces):
        piece = pieces[at]
        at += 1
        if not quote and isinstance(piece, str):
            if piece in _SYNTAX:
                return None
            if piece in _SPACE:
                word = None
                continue
        if quote == '"' and piece in ("$", "`"):
            return None
        following = pieces[at] if at < len(pieces) else ""
        if piece == "\\" and quote != "'":
            if isinstance(following, Field) or not following:
                return None
            if not quote or following in _ESCAPED_IN_DOUBLE or following == "\n":
                at += 1
                if following == "\n":
                    continue
                piece = following
            word = _open(words, word)
            word.add(piece, quoted=True)
            continue
        word = _open(words, word)
        if piece == quote or (not quote and piece in ("'", '"')):
            quote = "" if quote else str(piece)
            word.add("", quoted=True)
            continue
        word.add(piece, quoted=bool(quote))
    if quote:
        raise ConfigError(f"a quote {quote} is not closed", where=where, fix="close it")
    if any(word.needs_shell(at == 0) for at, word in enumerate(words)):
        return None
    return [tuple(p for p in word.pieces if p != "") for word in words]


def _open(words: list[_Word], word: _Word | None) -> _Word:
    if word is None:
        word = _Word()
        words.append(word)
    return word
