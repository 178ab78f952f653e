"""Fold a journal by columns: the state of `journal.fold`, without an object for each row.

Nearly all rows of a large journal say that a task is done, under attempts that follow each other.
They stay columns; the others, and those of tasks that have others, go through `fold` one by one.
A journal in which attempts do not follow each other goes through it as a whole.
tests/property/test_columns.py holds the one way against the other.
"""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path

from milepost.journal import DONE, STAGE, TASK, JournalState, decode_body, fold, read_lines

_DONE = (TASK.encode(), DONE.encode())
_WORK = (TASK.encode(), STAGE.encode())
_FEW = 8
"""So many names are looked for one by one; attempts are seldom more."""


@dataclass(slots=True)
class Tally:
    """The state of a journal, in which `state.done` lacks the tasks of `names`.

    `seconds` and `data` are those columns of their rows, as they stand in the file; `last_signs`
    is when the last of these rows was written, for each attempt.
    """

    state: JournalState
    names: list[str] = field(default_factory=list)
    seconds: Sequence[bytes] = ()
    data: Sequence[bytes] = ()
    last_signs: dict[int, str] = field(default_factory=dict)


def tally(path: Path) -> Tally:
    """Read a journal; a missing file is an empty one.

    Raises DataError for a format that is not known, ValueError for a row that carries its own CRC
    and is no row of a journal all the same.
    """
    lines = read_lines(path)
    found = _by_columns(lines.bodies) or Tally(fold([decode_body(b) for b in lines.bodies]))
    found.state.damaged, found.state.torn = lines.damaged, lines.torn
    return found


def _by_columns(bodies: Sequence[bytes]) -> Tally | None:
    """None when a row of a superseded attempt, or none at all, is among them."""
    if not bodies:
        return None
    columns = zip(*[body.split(b",", 6) for body in bodies], strict=True)
    times, attempts, events, names, statuses, seconds, data = columns
    numbers = list(map(int, attempts))
    if numbers != sorted(numbers):
        return None
    single = _singles(events, names, statuses)
    state = fold([decode_body(bodies[i]) for i in single])
    state.rows, state.last_attempt = len(bodies), numbers[-1]
    kept = _last_of_each(names, single)
    if not kept:
        return Tally(state)
    # the last row of a task holds, at the place of the first: as in `fold`
    chosen = list(kept.values())
    signs = {
        number: max(times[i] for i in group).decode()
        for number, group in groupby(sorted(chosen), numbers.__getitem__)
    }
    return Tally(
        state,
        b",".join(kept).decode().split(","),
        [seconds[i] for i in chosen],
        [data[i] for i in chosen],
        signs,
    )


def _last_of_each(names: Sequence[bytes], single: Sequence[int]) -> dict[bytes, int]:
    """Name -> index of its last row, of the rows that are not in `single`."""
    gone = Counter([names[i] for i in single])
    if len(gone) > _FEW or any(names.count(name) != count for name, count in gone.items()):
        apart = set(single)
        return {name: i for i, name in enumerate(names) if i not in apart}
    kept = dict(zip(names, range(len(names)), strict=True))
    for name in gone:
        del kept[name]
    return kept


def _singles(
    events: Sequence[bytes], names: Sequence[bytes], statuses: Sequence[bytes]
) -> list[int]:
    """Indices of the rows to be folded one by one, in order."""
    pairs = enumerate(zip(events, statuses, strict=True))
    other = [i for i, pair in pairs if pair != _DONE]
    mixed = {names[i] for i in other if events[i] in _WORK}
    if not mixed:
        return other
    more = {i for i, name in enumerate(names) if name in mixed}
    return sorted(more.union(other))


@contextmanager
def no_collector() -> Iterator[None]:
    """Leave the garbage collector off: among millions of new objects without cycles it finds none.

    Its looks would take a third of the time of reading a large run.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
