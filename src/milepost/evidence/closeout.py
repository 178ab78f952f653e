"""Is the run closed? What a closeout is made of; `items` asks the questions.

The files of the inputs and the clock are looked at by the caller.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from milepost.evidence.account import Account
from milepost.evidence.control import Control
from milepost.evidence.leftovers import Leftovers
from milepost.evidence.reconcile import ShardVerdict
from milepost.evidence.superseded import Superseded
from milepost.evidence.types import RunEvidence

STILL = "nothing_running"
"""The item that no reason and no successor can talk away."""


@dataclass(frozen=True, slots=True)
class Item:
    """One question of the closeout. `holds` is None when it does not apply or was not measured."""

    key: str
    title: str
    holds: bool | None
    evidence: str
    next_action: str = ""

    def as_json(self) -> dict[str, Any]:
        return {
            "key": self.key,
            "title": self.title,
            "holds": self.holds,
            "evidence": self.evidence,
            "next_action": self.next_action,
        }


@dataclass(frozen=True, slots=True)
class Acceptance:
    """A reason for which false items were accepted; it holds while their evidence is the same."""

    reason: str
    time: str
    items: Mapping[str, str]

    def covers(self, item: Item) -> bool:
        return self.items.get(item.key) == item.evidence


@dataclass(frozen=True, slots=True)
class Closeout:
    """The run's verdict. `superseded` closes it for ever, whatever is false, once it is quiet."""

    items: tuple[Item, ...]
    accepted: tuple[Acceptance, ...] = field(default=())
    superseded: Superseded | None = None

    @property
    def false_items(self) -> tuple[Item, ...]:
        return tuple(i for i in self.items if i.holds is False)

    @property
    def open_items(self) -> tuple[Item, ...]:
        """False items that nobody accepted."""
        return tuple(i for i in self.false_items if not self._is_settled(i))

    def _is_settled(self, item: Item) -> bool:
        is_given_up = self.superseded is not None and item.key != STILL
        return is_given_up or any(a.covers(item) for a in self.accepted)

    @property
    def is_closed(self) -> bool:
        return not self.open_items

    @property
    def verdict(self) -> str:
        if not self.is_closed:
            return "NOT CLOSED"
        if self.superseded is not None:
            return "CLOSED AS SUPERSEDED"
        return "CLOSED WITH ACCEPTED FAILURES" if self.false_items else "CLOSED"


@dataclass(frozen=True, slots=True)
class Facts:
    """What the items are judged by.

    `changed_inputs` are frozen inputs that differ now, `amendments` changes since the launch that
    the contract allows, `unwritable` what stands in the way of the records.
    """

    run: RunEvidence
    verdicts: Sequence[ShardVerdict]
    account: Account
    controls: Sequence[Control]
    changed_inputs: Sequence[str]
    amendments: Sequence[Mapping[str, Any]] = ()
    left: Leftovers | None = None
    unwritable: Sequence[str] = ()
