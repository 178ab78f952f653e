"""What must not leave the site: find it in a text, or take it out.

Two nets. Credentials (`leak_secrets`) are taken out of every record and report; who and where
(`leak_private`) besides them out of what is published. The rules of the second rather take too
much than too little: they are held below the allow-list of the public record.
"""

from __future__ import annotations

import bisect
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from milepost.evidence import leak_private, leak_secrets
from milepost.evidence.leak_rule import Rule, rule
from milepost.evidence.leak_secrets import SECRET
from milepost.evidence.private_names import Names, known_names, names_in

_SHOWN_CHARS = 2
_SHORT_SECRET = 12
"""Of a shorter one nothing is shown."""
_EXCERPT_CHARS = 64


@dataclass(frozen=True, slots=True)
class Leak:
    """A stretch of text that must not be published; `line` and `column` count from 1.

    `excerpt` is what stands around it, every leak of that line masked.
    """

    kind: str
    text: str
    start: int
    end: int
    line: int
    column: int
    excerpt: str = ""

    @property
    def hint(self) -> str:
        """Enough to find it and too little to use it."""
        count = len(self.text)
        shown = self.text[:_SHOWN_CHARS] if count >= _SHORT_SECRET else ""
        return f"{shown}… ({count} characters)"


def find_secrets(text: str, names: Names | None = None) -> list[Leak]:
    """What would leak from `text`, in its order, without overlaps.

    `names` are users, hosts and the like to look for besides those that the text gives away
    itself; by default those of this process and machine.
    """
    names = (known_names() if names is None else names) | names_in(text)
    return _leaks(text, [*leak_secrets.RULES, *leak_private.RULES, *_name_rules(names)])


def find_credentials(text: str) -> list[Leak]:
    """Passwords, tokens and keys in `text`: what no record may hold, private or not."""
    return _leaks(text, leak_secrets.RULES)


def redact(text: str, names: Names | None = None) -> str:
    """`text` with `[kind]` in the place of everything that would leak. Idempotent."""
    return _masked(text, find_secrets(text, names))


def without_credentials(value: Any) -> Any:
    """A JSON value with `[secret]` in the place of each credential in its texts.

    All texts are looked through as one, so that a key is found also where a list holds its
    lines, and a value without any costs one pass.
    """
    texts = list(dict.fromkeys(_texts(value)))
    whole = "\n".join(texts)
    spans = _spans(whole, leak_secrets.RULES)
    return _without(value, dict(_masked_texts(texts, spans))) if spans else value


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _texts(item)
            if isinstance(key, str) and isinstance(item, str):
                yield f"{key}={item}"  # the key may be what tells: DB_PASSWORD
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _texts(item)


def _masked_texts(
    texts: Sequence[str], spans: Sequence[tuple[int, int, str]]
) -> Iterator[tuple[str, str]]:
    """Each text that a span of the joined texts touches, and what is left of it."""
    starts, ends = [span[0] for span in spans], [span[1] for span in spans]
    offset = 0
    for text in texts:
        end = offset + len(text)
        near = spans[bisect.bisect_right(ends, offset) : bisect.bisect_left(starts, end)]
        if near:
            pieces, position = [], offset
            for start, stop, kind in near:
                pieces += [text[position - offset : max(start, offset) - offset], f"[{kind}]"]
                position = min(stop, end)
            yield text, "".join([*pieces, text[position - offset :]])
        offset = end + 1


def _without(value: Any, masked: Mapping[str, str]) -> Any:
    if isinstance(value, str):
        return type(value)(masked[value]) if value in masked else value
    if isinstance(value, dict):
        return {key: _without_labelled(key, item, masked) for key, item in value.items()}
    if isinstance(value, list):
        return [_without(item, masked) for item in value]
    if isinstance(value, tuple):
        made = [_without(item, masked) for item in value]
        return value._make(made) if hasattr(value, "_make") else tuple(made)
    return value


def _without_labelled(key: Any, value: Any, masked: Mapping[str, str]) -> Any:
    if isinstance(value, str) and f"{key}={value}" in masked:
        left = masked[f"{key}={value}"]
        return left.removeprefix(f"{key}=") if left.startswith(f"{key}=") else f"[{SECRET}]"
    return _without(value, masked)


def _leaks(text: str, rules: Sequence[Rule]) -> list[Leak]:
    spans = _spans(text, rules)
    starts = [0, *(found.end() for found in re.finditer("\n", text))]
    found = [_leak(text, span, starts) for span in spans]
    return [_with_excerpt(leak, text, found) for leak in found]


def _spans(text: str, rules: Sequence[Rule]) -> list[tuple[int, int, str]]:
    lower = text.lower()
    return _merged(span for one in rules for span in one.spans(text, lower))


def _leak(text: str, span: tuple[int, int, str], starts: list[int]) -> Leak:
    start, end, kind = span
    line = bisect.bisect_right(starts, start)
    return Leak(kind, text[start:end], start, end, line, start - starts[line - 1] + 1)


def _with_excerpt(leak: Leak, text: str, all_: list[Leak]) -> Leak:
    """The leak with some text around it; whatever else leaks nearby is masked as well."""
    begin = text.rfind("\n", 0, leak.start) + 1
    first = max(begin, leak.start - _EXCERPT_CHARS // 2)
    blank = text.find(" ", first, leak.start)
    if first > begin and blank >= 0:  # not in the middle of a word
        first = blank + 1
    end = text.find("\n", leak.end)
    last = min(len(text) if end < 0 else end, leak.end + _EXCERPT_CHARS // 2)
    at = bisect.bisect_left(all_, leak.start, key=lambda other: other.start)
    near = [o for o in all_[max(0, at - 8) : at + 9] if o.end > first and o.start < last]
    first, last = min([first, *(o.start for o in near)]), max([last, *(o.end for o in near)])
    pieces, position = [], first
    for other in near:
        pieces += [text[position : other.start], f"[{other.kind}]"]
        position = other.end
    excerpt = " ".join("".join([*pieces, text[position:last]]).split())
    return Leak(leak.kind, leak.text, leak.start, leak.end, leak.line, leak.column, excerpt)


def _masked(text: str, leaks: Iterable[Leak]) -> str:
    pieces, position = [], 0
    for leak in leaks:
        pieces += [text[position : leak.start], f"[{leak.kind}]"]
        position = leak.end
    return "".join([*pieces, text[position:]])


def _merged(spans: Iterable[tuple[int, int, str]]) -> list[tuple[int, int, str]]:
    """One span for all that overlap, of the kind of the one that begins first and is longest; a
    credential among them makes it one."""
    merged: list[tuple[int, int, str]] = []
    for start, end, kind in sorted(spans, key=lambda span: (span[0], -span[1])):
        if merged and start < merged[-1][1]:
            first, last, name = merged[-1]
            merged[-1] = (first, max(last, end), SECRET if SECRET in (kind, name) else name)
        else:
            merged.append((start, end, kind))
    return merged


def _name_rules(names: Names) -> Iterator[Rule]:
    for kind, words in names.by_kind().items():
        options = "|".join(re.escape(word) for word in sorted(words, key=len, reverse=True))
        pattern = rf"(?<![\w\[.-])(?:{options})(?![\w\]-])"
        yield rule(kind, pattern)
    families = "|".join(sorted(re.escape(f) for f in names.host_families()))
    if families:
        pattern = rf"(?<![\w\[.-])(?:{families})-?(?:\d+|\[[\d,-]+\])(?:\.[\w-]+)*(?![\w-])"
        yield rule("host", pattern)
