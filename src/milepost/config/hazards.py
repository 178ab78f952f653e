"""Places in a command where a value would be run, or calculated with, instead of passed on."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import PurePath

ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)\+?=", re.ASCII)
_SUBSCRIPT = re.compile(r"\w*\[[^\]]*", re.ASCII)
_CODE_OPTION = re.compile(r"-[A-Za-z]*c")
_SHELLS = frozenset(["sh", "bash", "dash", "ash", "zsh", "ksh", "csh", "tcsh", "fish", "su"])
_RUN_THEIR_WORDS = frozenset(["eval", "ssh", "watch", "parallel", "trap", "alias"])
_TAKE_NAMES = frozenset(
    ["let", "declare", "typeset", "local", "unset", "read", "mapfile", "readarray", "getopts"]
)
_SET_NAMES = frozenset(["export", "readonly"])
_LOAD_CODE = frozenset(["enable", "bind", "complete", "compgen"])
_NAME_OPTIONS = frozenset(["-v", "-R"])


def hazard(words: Sequence[str], word: str) -> str | None:
    """Why a value in `word` could become code, or None; `words` stand before it.

    Bash calculates with names: a value such as `a[$(rm x)]` runs where a name is expected.
    """
    words = _without_prefixes(words)
    if not words:
        return None
    first, last = words[0], words[-1]
    if _CODE_OPTION.fullmatch(last) and any(PurePath(w).name in _SHELLS for w in words[:-1]):
        return "as code for another shell"
    if first in _RUN_THEIR_WORDS:
        return f"after {first}, which runs it"
    if first in _TAKE_NAMES | _LOAD_CODE:
        return f"after {first}"
    if first in _SET_NAMES and (_has_option(words) or not assigned(word)):
        return f"as a name after {first}"
    if first in ("test", "[") and last in _NAME_OPTIONS:
        return f"as a name after {first} {last}"
    if first == "printf" and "-v" in words:
        return "after printf -v"
    return None


def _has_option(words: Sequence[str]) -> bool:
    return any(word.startswith("-") for word in words[1:])


def in_subscript(word: str) -> bool:
    """Does a value at the end of `word` stand inside brackets, where bash calculates?"""
    return bool(_SUBSCRIPT.fullmatch(word.rpartition("=")[2]))


def assigned(word: str) -> str | None:
    """The variable that `word` sets, as in `name=value`."""
    match = ASSIGNMENT.match(word)
    return match[1] if match else None


def _without_prefixes(words: Sequence[str]) -> Sequence[str]:
    at = 0
    while at < len(words) and (words[at] in ("command", "builtin") or assigned(words[at])):
        at += 1
    return words[at:]
