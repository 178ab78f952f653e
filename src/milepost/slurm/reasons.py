"""Why a job waits: the Reason field of squeue, scontrol and sacct, in plain words.

The table stands in workflow/policies/pending_reasons.yaml. Only the reason that the last pass of
the scheduler met is printed; it may be another one a minute later.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache, lru_cache
from typing import Any

from milepost.resources import load_yaml


class Category(StrEnum):
    """What kind of reason it is; decides whether waiting helps."""

    WAIT = "wait"
    WAIT_OR_FIX = "wait_or_fix"
    FIX = "fix"
    NEVER = "never"
    HELD = "held"
    AFTER_END = "after_end"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Reason:
    """A reason and its remedy.

    `helps_waiting` is None when it depends on what Slurm does not print. `remedy` is a command
    and `advice` the sentence above it; both and `meaning` may hold fields such as `{job}`, which
    `filled` replaces. `says` is whether waiting helps, as a sentence. `detail` is what stood
    behind the name, such as the nodes that are away, and `text` the whole field. `since` and
    `until` are versions of Slurm.
    """

    name: str
    category: Category
    helps_waiting: bool | None
    meaning: str
    advice: str
    remedy: str
    says: str
    since: str | None = None
    until: str | None = None
    detail: str | None = None
    is_known: bool = True
    text: str = ""

    @property
    def word(self) -> str | None:
        """Slurm's name of the reason; None when it gave none."""
        return None if self.name == NONE else self.name

    @property
    def is_held(self) -> bool:
        """Does the job wait for a `scontrol release`?"""
        return self.category is Category.HELD

    def filled(self, values: Mapping[str, str | None]) -> Reason:
        """The same with its fields filled in; what is not known becomes a word in capitals."""
        return replace(
            self,
            meaning=_capitals(_expand(self.meaning, values)),
            advice=_capitals(_expand(self.advice, values)),
            remedy=_capitals(_expand(self.remedy, values)),
        )

    def as_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "category": str(self.category),
            "helps_waiting": self.helps_waiting,
            "meaning": self.meaning,
            "advice": self.advice,
            "command": self.remedy,
            "detail": self.detail,
            "is_known": self.is_known,
        }


NONE = "None"
"""What Slurm prints when it has not looked at a job yet."""


@lru_cache(maxsize=4096)
def parse_reason(text: str | None) -> Reason:
    """Explain a Reason field, as squeue (%r and %R), scontrol or sacct print it.

    Free text of Slurm, underscores of scontrol, parentheses of %R and what follows the name are
    understood. A name of a later Slurm is explained by its family; any other is said to be
    unknown. The nodes that %R prints for a running job are no reason: do not pass them.
    """
    bare = _bare(text)
    found = _free_text(bare) or find_reason(bare)
    if found is None:
        name, detail = _split(bare)
        found = find_reason(name)
        found = _unknown(bare) if found is None else _with_detail(found, detail)
    return replace(found, text="" if bare == NONE else bare)


def find_reason(name: str) -> Reason | None:
    """The entry of a bare name, by its family if it is not listed; None for an unknown one."""
    listed = all_reasons().get(name)
    if listed is not None:
        return listed
    for family in _table()["families"]:
        match = re.fullmatch(family["pattern"], name)
        if match is not None:
            return _member(family, name, match, is_known=False)
    return None


def nodes_of(reason: Reason) -> str | None:
    """The node list that ReqNodeNotAvail names, such as `n[1-4]`."""
    match = re.search(r"UnavailableNodes:\s*(\S+)", reason.detail or "")
    return match[1] if match else None


@cache
def all_reasons() -> Mapping[str, Reason]:
    """Every listed reason by name."""
    return {reason.name: reason for reason in _listed()}


def _listed() -> Iterator[Reason]:
    table = _table()
    for entry in table["reasons"]:
        yield _reason(entry["name"], entry)
    for family in table["families"]:
        for name in family["names"]:
            match = re.fullmatch(family["pattern"], name)
            assert match is not None, f"{name} does not fit the pattern of its family"
            yield _member(family, name, match, is_known=True)


def _member(
    family: Mapping[str, Any], name: str, match: re.Match[str], *, is_known: bool
) -> Reason:
    words = _table()["words"]
    groups = match.groupdict()
    values = dict(words["owner"][groups.get("owner") or "QOS"])
    what = groups.get("what")
    if what is not None:
        values |= words["what"].get(what.lower(), {"what": what, "less": "numcpus=N"})
    parts = {key: _expand(family[key], values) for key in ("meaning", "advice", "command")}
    return _reason(name, {**family, **parts}, is_known=is_known)


def _reason(name: str, entry: Mapping[str, Any], *, is_known: bool = True) -> Reason:
    table = _table()
    category = Category(entry["category"])
    kind = table["categories"][category]
    is_printed = is_known and name not in table["never_printed"]
    return Reason(
        name=name,
        category=category,
        helps_waiting=None if kind["waiting"] == "depends" else kind["waiting"],
        meaning=entry["meaning"],
        advice=entry["advice"],
        remedy=entry["command"],
        says=kind["says"],
        since=entry.get("since", table["since"]) if is_printed else None,
        until=entry.get("until", table["until"]) if is_printed else None,
        is_known=is_known,
    )


def _unknown(text: str) -> Reason:
    kind = _table()["categories"][Category.UNKNOWN]
    return Reason(
        name=text,
        category=Category.UNKNOWN,
        helps_waiting=None,
        meaning="this reason is not in milepost's table; it may be of a later Slurm or of this site",
        advice="see the whole job, and ask the site what the word means",
        remedy="scontrol show job {job}",
        says=kind["says"],
        is_known=False,
    )


def _bare(text: str | None) -> str:
    """Without blanks and the parentheses of %R; an empty field says None."""
    bare = (text or "").strip()
    if bare.startswith("(") and bare.endswith(")"):
        bare = bare[1:-1].strip()
    return bare if bare and bare.lower() not in ("null", "n/a") else NONE


def _free_text(bare: str) -> Reason | None:
    words = bare.replace("_", " ").lower()
    for entry in _table()["texts"]:
        # The name of a burst-buffer plugin holds an underscore of its own.
        if re.fullmatch(entry["pattern"], words) or re.fullmatch(entry["pattern"], bare.lower()):
            beneath = all_reasons()[entry["name"]]
            merged = {
                "category": beneath.category,
                "meaning": entry.get("meaning", beneath.meaning),
                "advice": entry.get("advice", beneath.advice),
                "command": entry.get("command", beneath.remedy),
            }
            return _with_detail(_reason(entry["name"], merged), bare)
    return None


def _split(bare: str) -> tuple[str, str | None]:
    """Name and what follows: `ReqNodeNotAvail, UnavailableNodes:n[1-4]`, `RaisedSignal:9(Killed)`."""
    match = re.match(r"(\w+?)(?:[,:(\s]|_(?=\())[\s_,]*(.*)", bare, re.DOTALL)
    if match is None:
        return bare, None
    return match[1], match[2].strip("_ ") or None


def _with_detail(reason: Reason, detail: str | None) -> Reason:
    if detail is not None and " " not in detail:
        detail = detail.replace("_", " ")  # scontrol writes underscores for blanks
    return replace(reason, detail=detail)


def _expand(template: str, values: Mapping[str, str | None]) -> str:
    """Replace the fields that `values` knows and leave the others."""
    return re.sub(r"\{(\w+)\}", lambda m: values.get(m[1]) or m[0], template)


def _capitals(text: str) -> str:
    return re.sub(r"\{(\w+)\}", lambda m: m[1].upper(), text)


@cache
def _table() -> dict[str, Any]:
    table: dict[str, Any] = load_yaml("policies", "pending_reasons.yaml")
    return table
