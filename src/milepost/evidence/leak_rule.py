"""A kind of leak as a pattern, and the questions that tell a value from a word of prose."""

from __future__ import annotations

import ipaddress
import itertools
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

_SECRET_CHARS = 8
"""A shorter word after `token:` or `key=` is taken for prose."""

VALUE = r"(?P<x>\"[^\"\n]+\"|'[^'\n]+'|[^\s\"'\[\],;|)]+)"
IS = r"\s*(?:=|:(?!:))\s*"

_NOTHING = frozenset(
    ["null", "none", "true", "false", "yes", "no", "auto", "unset", "empty", "n/a"]
)
_QUANTITY = re.compile(
    r"[-+]?[\d.,_]+(?:e[-+]?\d+)?(?:%|[a-zµμ°]{1,4}(?:[/^*][\w^-]{1,6})*)?", re.I
)
_PROSE = re.compile(
    r"an?|all|and|are|as|at|but|by|for|from|in|is|its?|of|on|or|our|see|that|the|their|they|this|to|"
    r"was|we|were|which|with"
)
_SPLIT = frozenset(
    [
        "train",
        "training",
        "test",
        "testing",
        "validation",
        "valid",
        "val",
        "dev",
        "holdout",
        "random",
        "stratified",
        "function",
    ]
)
"""What a partition is of in statistics and in physics."""
_LATEX = frozenset(
    [
        "times",
        "cdot",
        "alpha",
        "beta",
        "gamma",
        "delta",
        "epsilon",
        "lambda",
        "mu",
        "nu",
        "pi",
        "rho",
        "sigma",
        "tau",
        "phi",
        "psi",
        "omega",
        "le",
        "ge",
        "leq",
        "geq",
        "ll",
        "gg",
        "in",
        "to",
        "sum",
        "int",
        "frac",
        "sqrt",
        "left",
        "right",
        "rangle",
        "langle",
        "approx",
        "sim",
        "propto",
        "pm",
        "mathrm",
        "text",
    ]
)


@dataclass(frozen=True, slots=True)
class Rule:
    """A kind of leak. What is taken is the group `x` of the pattern, or all of it.

    `words` (lower case) are there for speed: a text that holds none of them is not looked through.
    """

    kind: str
    pattern: re.Pattern[str]
    is_real: Callable[[str], bool]
    words: tuple[str, ...] = ()

    def spans(self, text: str, lower: str) -> Iterator[tuple[int, int, str]]:
        """What is taken from `text`; `lower` is the same in lower case."""
        if self.words and not any(word in lower for word in self.words):
            return
        group: str | int = "x" if "x" in self.pattern.groupindex else 0
        for found in self.pattern.finditer(text):
            if found.end(group) > found.start(group) and self.is_real(found[group]):
                yield found.start(group), found.end(group), self.kind


def rule(
    kind: str, pattern: str, is_real: Callable[[str], bool] | None = None, *words: str
) -> Rule:
    """A rule that does not look at case."""
    return Rule(kind, re.compile(pattern, re.IGNORECASE), is_real or _always, words)


def exact(
    kind: str, pattern: str, is_real: Callable[[str], bool] | None = None, *words: str
) -> Rule:
    """A rule whose capital letters are capital."""
    return Rule(kind, re.compile(pattern), is_real or _always, words)


def _always(text: str) -> bool:
    return True


def is_ip(text: str) -> bool:
    """An address of another machine than this one."""
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return False
    return not (address.is_loopback or address.is_unspecified)


def is_value(text: str) -> bool:
    """Is it a value, not a quantity, a variable or a word for nothing?"""
    bare = text.strip("'\"").lower()
    is_number = _QUANTITY.fullmatch(bare) is not None and len(bare) < 16
    return not (bare in _NOTHING or is_number or bare.startswith(("$", "<", "***", "%", "{")))


def is_long_value(text: str) -> bool:
    return len(text) >= _SECRET_CHARS and is_value(text)


def is_random(text: str) -> bool:
    """Does it look drawn by lot: letters and digits, mixed again and again?"""
    bare = text.strip("'\"")
    if len(bare) < _SECRET_CHARS or not is_value(bare):
        return False
    kinds = [_letter_kind(c) for c in bare if c.isalnum()]
    turns = sum(a != b for a, b in itertools.pairwise(kinds))
    return "digit" in kinds and len(set(kinds)) > 1 and turns >= 3


def is_very_random(text: str) -> bool:
    """The same of a long text without any label: all kinds of letters, and no name in it."""
    kinds = [_letter_kind(c) for c in text if c.isalnum()]
    turns = sum(a != b for a, b in itertools.pairwise(kinds))
    return {"digit", "upper", "lower"} <= set(kinds) and turns >= len(text) / 3


def _letter_kind(letter: str) -> str:
    return "digit" if letter.isdigit() else "upper" if letter.isupper() else "lower"


def is_name(text: str) -> bool:
    """Is it a name, or does a sentence go on behind the label?"""
    return is_value(text) and _PROSE.fullmatch(text.strip("'\"").lower()) is None


def is_partition(text: str) -> bool:
    bare = text.strip("'\"").lower()
    return is_name(text) and not _SPLIT & set(re.split(r"[/:+,._-]", bare))


def is_machine(text: str) -> bool:
    """After a colon, a host shows itself by a digit, a dot or a dash: hosts have guests in
    chemistry, too."""
    return is_value(text) and re.search(r"[\d.-]", text.rstrip(".")) is not None


def is_account_name(text: str) -> bool:
    """DOMAIN\\user, unless it is a formula."""
    return text.partition("\\")[2].lower() not in _LATEX


def is_registry(text: str) -> bool:
    """A path of a container image that is not one of the world's public images."""
    return not text.lower().startswith(("docker.io/library/", "quay.io/biocontainers/"))
