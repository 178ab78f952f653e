"""The plain text of a pattern: in every match, or there is none."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.literals import literals_of


@pytest.mark.parametrize(
    ("pattern", "texts"),
    [
        ("disk full", ("disk full",)),
        (r"no space left on \w+", ("no space left on ",)),
        (r"\bquota\b.{0,9} exceeded", (" exceeded",)),
        ("(?:cannot|could not) allocate", (" allocate",)),
        ("(?:error|fault)", ("error", "fault")),
        ("oom-kill|out of memory", ("oom-kill", "out of memory")),
        ("colou?red", ("colo",)),
        ("colou{0,1}red", ("colo",)),
        ("(?:very )?bad file", ("bad file",)),
        (r"\[e::bgzf", ("[e::bgzf",)),
        ("[Ff]ailed HARD", ("ailed hard",)),
        ("stale(?! lock) handle", (" handle",)),
        ("a+bcd", ("bcd",)),
        ("abcd+e", ("abcd",)),
        ("abc+", ("abc",)),
        ("磁盘已满", ("磁盘已满",)),
    ],
)
def test_what_every_match_holds(pattern: str, texts: tuple[str, ...]) -> None:
    assert literals_of(pattern) == texts


@pytest.mark.parametrize("pattern", ["", r"\d+", "ab", ".*", "(?:abcd)?", "(?:long text|x)", "a|b"])
def test_a_pattern_without_plain_text_is_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match="no plain text"):
        literals_of(pattern)


words = st.text("abcd ", min_size=3, max_size=8)
pieces = st.one_of(
    words,
    words.map(lambda w: f"(?:{w})?"),
    st.lists(words, min_size=2, max_size=3).map(lambda ws: f"(?:{'|'.join(ws)})"),
    words.map(lambda w: f"{w}*"),
    words.map(lambda w: f"{w}+"),
    words.map(lambda w: f"[{w}]"),
    st.sampled_from([r"\w+", ".{0,5}", r"\d?", "x{2}"]),
)


@given(st.lists(pieces, min_size=1, max_size=5).map("".join), st.data())
def test_no_match_is_without_one_of_the_texts(pattern: str, data: st.DataObject) -> None:
    try:
        texts = literals_of(pattern)
    except ValueError:
        return
    match = data.draw(st.from_regex(re.compile(pattern, re.ASCII), fullmatch=True))
    assert any(text in match.lower() for text in texts)
