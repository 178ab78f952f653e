"""Levels of nesting in shell syntax, as far as milepost must understand them."""

from __future__ import annotations

from milepost.config.hazards import assigned

VALUE = "\0"
"""Stands for what is not known of a word: a value, or the result of an expansion."""
_KEYWORDS = frozenset(
    ["if", "then", "else", "elif", "while", "until", "do", "!", "time", "coproc", "{", "}"]
)


class Frame:
    """A level of nesting. The words of a command are known as far as they are literal."""

    def __init__(self, kind: str, closing: str = "", is_array: bool = False) -> None:
        self.kind, self.closing, self.is_array = kind, closing, is_array
        self.depth = 0
        self.words: list[str] = []
        self.word: str | None = None
        self.is_target = False  # the word is the file of a redirection
        self.in_condition = False  # between [[ and ]]

    def add(self, text: str) -> None:
        self.word = (self.word or "") + text

    def add_quoted(self, text: str) -> None:
        """Add text from inside quotes, where a bracket opens no subscript."""
        self.add(VALUE if text == "[" else text)

    def sets(self) -> set[str]:
        """Names of variables that get the value of the current word."""
        loops = self.words[1:2] if self.words[:1] in (["for"], ["select"]) else []
        name = assigned(self.word or "")
        return {*loops, *([name] if name else [])}

    def end_word(self) -> None:
        if self.word is None:
            return
        if self.word in ("[[", "]]"):
            self.in_condition = self.word == "[["
        if self.word in ("{", "}") or (not self.words and self.word in _KEYWORDS):
            self.words = []
        elif not self.is_target:
            self.words.append(self.word)
        self.word, self.is_target = None, False

    def end_command(self) -> None:
        self.end_word()
        if not self.in_condition:
            self.words = []

    def names_program(self) -> bool:
        """Does the current word say which program is run?"""
        is_first = not [word for word in self.words if not assigned(word)]
        word = self.word or ""
        return is_first and not (self.is_array or self.is_target or "/" in word or assigned(word))
