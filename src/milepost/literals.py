"""The plain text that every match of a regular expression holds: what makes many of them quick.

A search for plain text is far quicker than one for a pattern, and most patterns have a word that
a log without that failure does not hold.
"""

from __future__ import annotations

from collections.abc import Iterator

MIN_CHARS = 3
MIN_WIDE_CHARS = 2
"""Of a script in which one character is a word."""

_OPENINGS = ("(?:", "(?P<", "(")
_LOOKING = ("(?!", "(?=", "(?<!", "(?<=")


def literals_of(pattern: str) -> tuple[str, ...]:
    """Texts in lower case, one of which each match holds; the longest that can be told.

    Raises ValueError when there are none of three characters: such a pattern would have to be
    tried on every line.
    """
    found = _needed(pattern)
    if not found or any(_is_short(text) for text in found):
        raise ValueError(f"no plain text of {MIN_CHARS} characters that every match would hold")
    return tuple(dict.fromkeys(text.lower() for text in found))


def _is_short(text: str) -> bool:
    return len(text.strip()) < (MIN_CHARS if text.isascii() else MIN_WIDE_CHARS)


def _needed(pattern: str) -> tuple[str, ...]:
    """One of these texts is in every match; empty when nothing is known."""
    ways = list(_alternatives(pattern))
    if len(ways) == 1:
        return max(_candidates(pattern), key=_worth, default=())
    each = [_needed(way) for way in ways]
    return tuple(text for texts in each for text in texts) if all(each) else ()


def _worth(texts: tuple[str, ...]) -> tuple[int, int]:
    """The shortest decides; fewer are better."""
    return min((len(text) for text in texts), default=0), -len(texts)


def _candidates(pattern: str) -> Iterator[tuple[str, ...]]:
    """The plain runs of a pattern without alternatives, and what its groups need."""
    run = ""
    for text, kind, count in _pieces(pattern):
        is_needed = count in ("", "+")
        if kind == "plain" and is_needed:
            run += text
        if kind != "plain" or count:  # what follows may stand farther away
            yield (run,)
            run = ""
        if kind == "group" and is_needed:
            yield _needed(text)
    yield (run,)


def _alternatives(pattern: str) -> Iterator[str]:
    begin, at = 0, 0
    while at < len(pattern):
        if pattern[at] == "|":
            yield pattern[begin:at]
            begin = at + 1
        at = _end_of_piece(pattern, at)
    yield pattern[begin:]


def _pieces(pattern: str) -> Iterator[tuple[str, str, str]]:
    """Characters and groups: text, whether `plain`, `group` or `other`, and `*`, `+`, `?`, `{`."""
    at = 0
    while at < len(pattern):
        end = _end_of_piece(pattern, at)
        count = pattern[end] if pattern[end : end + 1] in tuple("*+?{") else ""
        yield _inside(pattern[at:end]), _kind(pattern[at:end]), count
        at = end
        while at < len(pattern) and pattern[at] in "*+?{":
            at = pattern.index("}", at) + 1 if pattern[at] == "{" else at + 1


def _kind(piece: str) -> str:
    if piece[0] == "(":
        return "other" if piece.startswith(_LOOKING) else "group"
    if piece[0] == "\\":
        return "other" if piece[1:].isalnum() else "plain"
    return "other" if piece[0] in ".^$[|" else "plain"


def _inside(piece: str) -> str:
    if piece[0] == "\\":
        return piece[1:]
    opening = next((text for text in _OPENINGS if piece.startswith(text)), "")
    return piece[len(opening) : -1] if opening else piece


def _end_of_piece(pattern: str, at: int) -> int:
    """Behind the character, escape, class or group that begins at `at`."""
    char = pattern[at]
    if char == "\\":
        return at + 2
    if char == "[":
        return pattern.index("]", at + 2) + 1
    if char != "(":
        return at + 1
    at += 1
    while pattern[at] != ")":
        at = _end_of_piece(pattern, at)
    return at + 1
