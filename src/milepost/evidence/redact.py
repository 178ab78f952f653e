"""What must not leave the site: find it in a text, or take it out.

The rules are a second net below the allow-list of the public record, so they rather take too
much than too little: a version number such as 10.0.0.1 is taken for an address.
"""

from __future__ import annotations

import bisect
import ipaddress
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from milepost.evidence.private_names import Names, known_names, names_in

_KEPT_CHARS = 3
_SECRET_CHARS = 8
"""A shorter word after `token:` or `key=` is taken for prose."""


@dataclass(frozen=True, slots=True)
class Leak:
    """A stretch of text that must not be published; `line` and `column` count from 1."""

    kind: str
    text: str
    start: int
    end: int
    line: int
    column: int

    @property
    def hint(self) -> str:
        """Enough to find it and too little to use it."""
        return f"{self.text[:_KEPT_CHARS]}… ({len(self.text)} characters)"


@dataclass(frozen=True, slots=True)
class Rule:
    """A kind of leak. What is taken is the group `x` of the pattern, or all of it."""

    kind: str
    pattern: re.Pattern[str]
    is_real: Callable[[str], bool] = lambda text: True

    def spans(self, text: str) -> Iterator[tuple[int, int, str]]:
        group: str | int = "x" if "x" in self.pattern.groupindex else 0
        for found in self.pattern.finditer(text):
            if found.end(group) > found.start(group) and self.is_real(found[group]):
                yield found.start(group), found.end(group), self.kind


def find_secrets(text: str, names: Names | None = None) -> list[Leak]:
    """What would leak from `text`, in its order, without overlaps.

    `names` are users and hosts to look for besides those that the text gives away itself; by
    default those of this process and machine.
    """
    names = (known_names() if names is None else names) | names_in(text)
    spans = [span for rule in [*_RULES, *_name_rules(names)] for span in rule.spans(text)]
    starts = [0, *(found.end() for found in re.finditer("\n", text))]
    return [_leak(text, span, starts) for span in _merged(spans)]


def redact(text: str, names: Names | None = None) -> str:
    """`text` with `[kind]` in the place of everything that would leak. Idempotent."""
    pieces, position = [], 0
    for leak in find_secrets(text, names):
        pieces += [text[position : leak.start], f"[{leak.kind}]"]
        position = leak.end
    return "".join([*pieces, text[position:]])


def _leak(text: str, span: tuple[int, int, str], starts: list[int]) -> Leak:
    start, end, kind = span
    line = bisect.bisect_right(starts, start)
    return Leak(kind, text[start:end], start, end, line, start - starts[line - 1] + 1)


def _merged(spans: Iterable[tuple[int, int, str]]) -> list[tuple[int, int, str]]:
    """One span for all that overlap, of the kind of the one that begins first and is longest."""
    merged: list[tuple[int, int, str]] = []
    for start, end, kind in sorted(spans, key=lambda span: (span[0], -span[1])):
        if merged and start < merged[-1][1]:
            first, last, name = merged[-1]
            merged[-1] = (first, max(last, end), name)
        else:
            merged.append((start, end, kind))
    return merged


def _name_rules(names: Names) -> Iterator[Rule]:
    for kind, words in (("user", names.users), ("host", names.hosts)):
        if words:
            options = "|".join(re.escape(word) for word in sorted(words, key=len, reverse=True))
            pattern = rf"(?<![\w\[.-])(?:{options})(?![\w\]-])"
            yield Rule(kind, re.compile(pattern, re.IGNORECASE))


def _is_ip(text: str) -> bool:
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return False
    return not (address.is_loopback or address.is_unspecified)


def _is_value(text: str) -> bool:
    """Is it a value, not a number, a variable or a word for nothing?"""
    bare = text.strip("'\"").lower()
    nothing = {"null", "none", "true", "false", "yes", "no", "auto", "unset", "empty", "n/a"}
    is_number = re.fullmatch(r"[\d.,_]+[a-z%]?", bare) is not None and len(bare) < 12
    return not (bare in nothing or is_number or bare.startswith(("$", "<", "***", "%", "{")))


def _is_long_value(text: str) -> bool:
    return len(text) >= _SECRET_CHARS and _is_value(text)


_VALUE = r"(?P<x>\"[^\"\n]+\"|'[^'\n]+'|[^\s\"'\[\],;|)]+)"
_IS = r"\s*(?:=|:(?!:))\s*"
_PATH = r"[\w.@+%~{}$=,-]"
_SYSTEM = r"(?:dev|proc|sys|usr|bin|sbin|lib|lib64|etc|boot)"


def _rule(kind: str, pattern: str, is_real: Callable[[str], bool] | None = None) -> Rule:
    compiled = re.compile(pattern, re.IGNORECASE)
    return Rule(kind, compiled) if is_real is None else Rule(kind, compiled, is_real)


_RULES = (
    _rule(
        "secret",
        r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----(?:.|\n)*?"
        r"(?:-----END [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----|\Z)",
    ),
    _rule("secret", r"\b(?:ssh-(?:rsa|dss|ed25519)|ecdsa-sha2-\S+|sk-\S+@openssh\.com)\s+AAAA[\w+/=]+"),
    _rule("secret", r"\b(?:AKIA|ASIA|AROA|AIDA)[A-Z0-9]{12,}\b"),
    _rule("secret", r"\b(?:gh[pousr]_\w{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}|hf_\w{20,}|npm_\w{30,})"),
    _rule("secret", r"\b(?:xox[abprs]-[\w-]{10,}|AIza[\w-]{30,}|sk-[\w-]{20,}|pypi-[\w-]{30,}|dckr_pat_\S{20,})"),
    _rule("secret", r"\beyJ[\w-]{8,}\.[\w-]{8,}(?:\.[\w-]*)?"),
    _rule("secret", r"\b(?:bearer|basic)\s+(?P<x>[\w.~+/=-]{12,})"),
    _rule(
        "secret",
        r"(?<![a-z])(?:\w{1,40}[_-])?(?:password|passwd|passphrase|pwd|pw)(?:[_-]\w+)?[\"']?"
        + _IS
        + _VALUE,
        _is_value,
    ),
    _rule(
        "secret",
        r"(?<![a-z])(?:\w{1,40}[_-])?(?:secret|token|api_?-?key|access_?-?key|private_?-?key|key|"
        r"credentials?|cookie|authorization|license_?-?key)(?:[_-]\w+)?[\"']?" + _IS + _VALUE,
        _is_long_value,
    ),
    _rule(
        "secret",
        r"--?(?:password|passwd|passphrase|token|secret|api-?key|key)(?:\s+|=)" + _VALUE,
        _is_value,
    ),
    _rule("secret", r"\b[a-z][a-z0-9+.-]{0,15}://(?P<x>[^\s/@:\[\]]*:[^\s/@\[\]]+@[^\s/\[\]]+)"),
    _rule("mail", r"[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]+)+"),
    _rule("host", r"(?<=\w@)(?P<x>[a-z][\w.-]*)(?=[:\s]|$)"),
    _rule("storage", r"\b(?:s3|gs|gcs|az|abfss?|adl|hdfs|swift|sftp|scp|rsync|smb|nfs|file|globus)://(?P<x>[^\s\"'<>\[\]]+)"),
    _rule("mac", r"(?<![\w:-])(?:[0-9a-f]{2}([:-]))(?:[0-9a-f]{2}\1){4}[0-9a-f]{2}(?![\w:-])"),
    _rule("address", r"(?<![\w.])(?:\d{1,3}\.){3}\d{1,3}(?![\w]|\.\d)", _is_ip),
    _rule("address", r"(?<![\w:.])[0-9a-f:]{6,39}(?:\.[\d.]{3,12})?(?:%\w+)?(?![\w:])", _is_ip),
    _rule("path", r"(?<![\w:/.<\]])/(?!" + _SYSTEM + r"(?:/|\b))(?:" + _PATH + r"+/)+(?:" + _PATH + r"*[\w}])?"),
    _rule(
        "path",
        r"(?<![\w:/.<\]])/(?:home|users?|scratch|work|projects?|data|lustre|gpfs|beegfs|mnt|media|nfs|"
        r"export|local|tmp|var|opt|srv|root|group|groups|store|archive|fs)\w*(?:/" + _PATH + r"+)*(?!/)",
    ),
    _rule("path", r"(?<![\w/])~[\w.-]+(?:/" + _PATH + r"+)*|(?<![\w/])~(?:/" + _PATH + r"+)+"),
    _rule("path", r"\b[a-z]:\\[^\s\"'<>|]+|\\\\[\w.-]+\\[^\s\"'<>|]+"),
    _rule("job", r"\b(?:slurm|pbs|lsf|sge|cobalt)?_?(?:jobs?|(?:job|step|task|array)(?:[ _-]?array)?[ _-]?(?:id|number|no)s?)[\s=:#\"']{1,3}(?P<x>\d{3,}(?:[_.]\w+)?)\b"),
    _rule("job", r"\bslurm-(?P<x>\d+(?:_\d+)?)"),
    _rule("job", r"\bsubmitted batch job (?P<x>\d+)"),
    _rule("account", r"(?:\baccount|\bproject|\bqos|\breservation|\bwckey|\bbilling)(?:_?name)?[\"']?" + _IS + _VALUE, _is_value),
    _rule("account", r"--(?:account|project|qos|reservation|wckey)(?:\s+|=)" + _VALUE, _is_value),
    _rule("partition", r"(?:\bpartition|\bqueue)s?(?:_?name)?[\"']?" + _IS + _VALUE, _is_value),
    _rule("partition", r"--(?:partition|queue)(?:\s+|=)" + _VALUE, _is_value),
    _rule("account", r"(?:#SBATCH|\bsbatch|\bsrun|\bsalloc)\b[^\n]*?\s-A\s*" + _VALUE, _is_value),
    _rule("partition", r"(?:#SBATCH|\bsbatch|\bsrun|\bsalloc)\b[^\n]*?\s-p\s*" + _VALUE, _is_value),
    _rule("host", r"(?:--(?:nodelist|exclude)(?:\s+|=)|\b(?:node_?list|nodes?_?name|host_?name|host|server|batch_?host|exec_host)[\"']?" + _IS + r")(?P<x>[a-z][\w.,-]*(?:\[[\d,-]+\])?[\w.,-]*)", _is_value),
    _rule("host", r"\bON (?P<x>[a-z][\w.-]*) CANCELLED\b"),
    _rule("host", r"\bslurmstepd-(?P<x>[\w.-]+):"),
    _rule("host", r"(?<![\w.@/-])(?:[a-z0-9][a-z0-9-]*\.)+(?:local|localdomain|internal|intern|lan|cluster|hpc|intra|corp|private|home|ib|ib0|eth)\b(?!/)"),
    _rule("host", r"(?<![\w.@/-])(?:login|node|compute|gpu|cn|nid|cpu|head|mgmt|worker|bigmem|fat)[a-z]*-?\d+(?:-\d+)*(?:\.[a-z0-9-]+)+\b"),
    _rule("host", r"(?<![\w.@/-])(?:login|node|compute|cn|nid|worker|bigmem)-?[a-z]?\d{2,}(?:-\d+)*(?![\w.-])"),
    _rule("user", r"\b(?:user|username|user_?name|login|logname|owner|uid)[\"']?" + r"\s*=\s*" + _VALUE, _is_value),
    _rule("user", r"\bcancelled by (?P<x>\d{3,})\b"),
    _rule("environment", r"\b(?:SLURM|SBATCH|PBS|LSB|SGE|SSH|AWS|AZURE|GOOGLE|KRB5?)_?\w*=" + _VALUE, _is_value),
    _rule("environment", r"\bexport\s+\w+=" + _VALUE, _is_value),
)  # fmt: skip
