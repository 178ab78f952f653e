"""Turn a command that needs a shell into a bash script whose values come as arguments.

The script first keeps its arguments in variables, so that `source`, `set --` and functions in
the command neither see nor change them. Each field becomes a reference that is right for its
quotes: `"${v1}"` outside of quotes, `${v1}` inside double quotes, `'"${v1}"'` inside single ones.
A field in a place where its value could become code is refused, and so is one that follows
syntax whose end cannot be told for certain.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from milepost.config.frames import VALUE, Frame
from milepost.config.hazards import hazard, in_subscript
from milepost.config.template import Field, Piece, unique_names
from milepost.errors import ConfigError

_REFERENCE = {"command": '"${{v{}}}"', "double": "${{v{}}}", "single": "'\"${{v{}}}\"'"}
_NO_PLACE = {
    "backtick": "inside backticks",
    "arithmetic": "inside arithmetic, where bash would calculate with it",
    "parameter": "inside ${…}",
    "ansi": "inside $'…'",
}


def make_script(pieces: Sequence[Piece], where: object = None) -> str:
    """The script; its arguments are the values of the fields in the order of first use.

    ConfigError when something is left open or when a value could become code.
    """
    names = unique_names(pieces)
    body = _Scanner(pieces, names, where).scan()
    keep = " ".join(f"v{at}=${{{at}}}" for at in range(1, len(names) + 1))
    return f"{keep}; set --\n{body}" if names else body


class _Scanner:
    """Reads the command once, from left to right, as bash would."""

    def __init__(self, pieces: Sequence[Piece], names: Sequence[str], where: object) -> None:
        self.pieces, self.where = pieces, where
        self.numbers = {name: at for at, name in enumerate(names, start=1)}
        self.at = 0
        self.out: list[str] = []
        self.stack = [Frame("command")]
        self.unclear: str | None = None
        self.set_names: set[str] = set()
        self.calculated = ""

    def scan(self) -> str:
        handlers = {
            "command": self.command,
            "double": self.double,
            "single": self.single,
            "ansi": self.escaped_until_closing,
            "backtick": self.escaped_until_closing,
            "arithmetic": self.arithmetic,
            "parameter": self.parameter,
            "comment": self.comment,
        }
        while self.at < len(self.pieces):
            piece = self.pieces[self.at]
            if isinstance(piece, Field):
                self.field(piece)
            else:
                handlers[self.top.kind](piece)
        self.check_end()
        return "".join(self.out)

    # what the handlers share

    @property
    def top(self) -> Frame:
        return self.stack[-1]

    @property
    def owner(self) -> Frame:
        """The command that the current piece belongs to."""
        return next(frame for frame in reversed(self.stack) if frame.kind == "command")

    def ahead(self, count: int = 1) -> str:
        """The next literal characters after the current one; shorter before a field."""
        text = ""
        for piece in self.pieces[self.at + 1 : self.at + 1 + count]:
            if isinstance(piece, Field):
                break
            text += piece
        return text

    def take(self, count: int = 1) -> str:
        taken = [str(piece) for piece in self.pieces[self.at : self.at + count]]
        self.out += taken
        self.at += len(taken)
        return "".join(taken)

    def push(self, frame: Frame, count: int = 1) -> None:
        self.take(count)
        self.stack.append(frame)

    def escape(self) -> str:
        """Take a backslash with what it protects."""
        if self.at + 1 < len(self.pieces) and not self.ahead():
            self.refuse(self.pieces[self.at + 1], "after a backslash")
        return self.take(2)[1:]

    def refuse(self, piece: Piece, place: str) -> None:
        name = piece.name if isinstance(piece, Field) else piece
        raise ConfigError(
            f"field {{{name}}} stands {place}: its value could become code",
            where=self.where,
            fix="move it to an ordinary argument, or put the lines into a script file that takes it as one",
        )

    # one handler for each kind of frame

    def command(self, char: str) -> None:
        frame = self.top
        if char in "<>" or (char == "&" and self.ahead() == ">"):
            self.redirection(char)
        elif char in "\n;&|":
            self.end_word()
            frame.end_command()
            self.take()
        elif char in " \t":
            self.end_word()
            self.take()
        elif char in "()":
            self.parenthesis(char)
        elif char == "#" and frame.word is None:
            self.push(Frame("comment"))
        elif char == "\\":
            protected = self.escape()
            if protected != "\n":
                frame.add(protected)
        elif char in "'\"`":
            frame.add("")
            kind = {"'": "single", '"': "double", "`": "backtick"}[char]
            self.push(Frame(kind, char))
        elif char == "$":
            self.dollar()
        else:
            frame.add(self.take())

    def end_word(self) -> None:
        frame = self.top
        if frame.in_condition:
            self.calculated += f" {frame.word}"
        if frame.word == "case" and any(f.closing for f in self.stack if f.kind == "command"):
            self.unclear = "case inside $(…)"
        frame.end_word()

    def redirection(self, char: str) -> None:
        frame = self.top
        if frame.word is not None and frame.word.isdigit():
            frame.word = None
        frame.end_word()
        if self.ahead() == "(":
            frame.add("")
            self.push(Frame("command", ")"), 2)
            return
        if char == "<" and self.ahead() == "<" and self.ahead(2) != "<<":
            self.unclear = "<<"
        self.take()
        while self.at < len(self.pieces) and self.pieces[self.at] in ("<", ">", "&", "|"):
            self.take()
        frame.is_target = True

    def parenthesis(self, char: str) -> None:
        frame = self.top
        if char == ")":
            self.end_word()
            frame.end_command()
            self.take()
            if frame.closing:
                self.stack.pop()
        elif self.ahead() == "(" and frame.word is None:
            self.push(Frame("arithmetic", "))"), 2)
        elif frame.word is not None and frame.word.endswith("="):
            self.push(Frame("command", ")", is_array=True))
        elif self.ahead() == ")":
            self.take(2)
            frame.word = None
            frame.end_command()
        else:
            frame.end_command()
            self.push(Frame("command", ")"))

    def dollar(self) -> None:
        following, owner = self.ahead(), self.owner
        if not following and self.at + 1 < len(self.pieces):
            self.refuse(self.pieces[self.at + 1], "after $; write ${{name}} for a variable")
        if self.ahead(2) == "((":
            self.push(Frame("arithmetic", "))"), 3)
        elif following == "(":
            self.push(Frame("command", ")"), 2)
        elif following == "[":
            self.push(Frame("arithmetic", "]"), 2)
        elif following == "{":
            self.push(Frame("parameter", "}"), 2)
        elif following == "'" and self.top.kind == "command":
            self.push(Frame("ansi", "'"), 2)
        else:
            has_name = following.isalnum() or (following and following in "_#$!?@*-")
            owner.add(self.take(2 if has_name else 1))
            return
        owner.add(VALUE)

    def double(self, char: str) -> None:
        if char == '"':
            self.take()
            self.stack.pop()
        elif char == "\\":
            self.owner.add(self.escape())
        elif char == "`":
            self.push(Frame("backtick", "`"))
        elif char == "$":
            self.dollar()
        else:
            self.owner.add_quoted(self.take())

    def single(self, char: str) -> None:
        text = self.take()
        if char == "'":
            self.stack.pop()
        else:
            self.owner.add_quoted(text)

    def escaped_until_closing(self, char: str) -> None:
        if char == "\\":
            self.escape()
        elif self.take() == self.top.closing:
            self.stack.pop()

    def arithmetic(self, char: str) -> None:
        frame = self.top
        self.note_unclear(char, "arithmetic")
        self.calculated += char
        if frame.depth == 0 and char + self.ahead(len(frame.closing) - 1) == frame.closing:
            self.take(len(frame.closing))
            self.stack.pop()
            return
        if char == ")" and frame.depth == 0:
            self.unclear = "unbalanced arithmetic"
        frame.depth += {"(": 1, ")": -1, "[": 1, "]": -1}.get(char, 0)
        self.take()

    def parameter(self, char: str) -> None:
        frame = self.top
        self.note_unclear(char, "${…}")
        if char == "}" and frame.depth == 0:
            self.note_calculated(frame.word or "")
            self.take()
            self.stack.pop()
            return
        frame.depth += {"{": 1, "}": -1}.get(char, 0)
        frame.add(self.take())

    def note_calculated(self, parameter: str) -> None:
        """Remember what bash calculates with: subscripts, offsets, and all inside [[ ]]."""
        if not any(frame.in_condition for frame in self.stack):
            parameter = "".join(re.split(r"[\[:]", parameter, maxsplit=1)[1:])
        self.calculated += f" {parameter}"

    def comment(self, char: str) -> None:
        if char == "\n":
            self.stack.pop()
        else:
            self.take()

    def note_unclear(self, char: str, place: str) -> None:
        if char in "'\"`\\" or (char == "$" and self.ahead() == "("):
            self.unclear = f"{char} inside {place}"

    # fields

    def field(self, piece: Field) -> None:
        kind, owner = self.top.kind, self.owner
        if kind == "comment":
            self.out.append(piece.name)
        else:
            self.check_place(piece)
            self.set_names.update(*(frame.sets() for frame in self.stack))
            owner.add(VALUE)
            self.out.append(_REFERENCE[kind].format(self.numbers[piece.name]))
        self.at += 1

    def check_place(self, piece: Field) -> None:
        if self.unclear:
            self.refuse(piece, f"after {self.unclear}, where quotes cannot be told for certain")
        for frame in self.stack:
            if frame.kind in _NO_PLACE:
                self.refuse(piece, _NO_PLACE[frame.kind])
            if frame.in_condition:
                self.refuse(piece, "inside [[ ]], where bash may calculate with it (use [ ])")
            if reason := hazard(frame.words, frame.word or ""):
                self.refuse(piece, reason)
        if self.owner.names_program():
            self.refuse(piece, "as the name of a program (put env in front)")
        if in_subscript(self.owner.word or ""):
            self.refuse(piece, "inside [ ] of a word, where bash may calculate with it")

    def check_end(self) -> None:
        open_frames = [frame for frame in self.stack[1:] if frame.kind != "comment"]
        if open_frames:
            raise ConfigError(
                f"{open_frames[-1].closing} is missing at the end of the command",
                where=self.where,
                fix="close what is open",
            )
        for name in sorted(self.set_names):
            if re.search(rf"\b{name}\b", self.calculated):
                raise ConfigError(
                    f"variable {name} holds a value and is used in arithmetic or [[ ]]:"
                    " the value could become code",
                    where=self.where,
                    fix="calculate in the program, or in a script file that checks it first",
                )
