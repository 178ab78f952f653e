"""Folding a journal by columns gives what folding it row by row gives, whatever is in it."""

from __future__ import annotations

import json
import random
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from milepost.evidence import columns, witness
from milepost.evidence.witness import Look, Seen, look
from milepost.journal import HEADER, Row, encode_row

ROWS = st.tuples(
    st.sampled_from(["task", "task", "task", "stage", "attempt", "checkpoint"]),
    st.sampled_from(["a", "b", "c", "d", "1", "2"]),
    st.sampled_from(["done", "done", "failed", "lost"]),
    st.sampled_from([None, 0.5, 2.0]),
    st.sampled_from(["none", "one", "two", "odd", "wrong", "quoted"]),
)
ATTEMPTS = st.lists(st.integers(0, 1), max_size=40)


def data(kind: str) -> str:
    """JSON of a row: which artifacts it records, and in which form."""
    files = {"one": ["x"], "two": ["x", "y"], "quoted": ['z"z']}.get(kind, [])
    proofs = [{"path": f, "bytes": 3, "digest": "sha256:0"} for f in files]
    if kind == "odd":
        return json.dumps({"result": {"é": 1}, "artifacts": [{**data_proof(), "bytes": 3}]})
    if kind == "wrong":
        proofs = [data_proof() | {"bytes": 4}]
    return json.dumps({"artifacts": proofs, "result": {"v": 1}}, separators=(",", ":"))


def data_proof() -> dict[str, object]:
    return {"path": "x", "bytes": 3, "digest": "sha256:0"}


def journal(rows: list[tuple[str, str, str, float | None, str]], numbers: list[int]) -> bytes:
    """The rows under attempts that mostly go up, and now and then are those of a late writer."""
    lines, attempt = [HEADER], 1
    for second, (event, name, status, seconds, kind) in enumerate(rows):
        step = numbers[second] if second < len(numbers) else 0
        attempt += step
        shown = max(1, attempt - 1) if kind == "odd" and second % 5 == 4 else attempt
        time = f"2026-03-01T08:00:{second:02d}.000Z"
        if event in ("attempt", "checkpoint"):
            status = {"attempt": "started", "checkpoint": "committed"}[event]
        lines.append(encode_row(Row(time, shown, event, name, status, seconds, data(kind))))
    return b"".join(lines)


def by_rows(order: Look) -> Seen:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(columns, "_by_columns", lambda bodies: None)
        return look(order)


def told(seen: Seen) -> tuple[object, ...]:
    """What was seen, without the order in which it was."""
    return (
        sorted(seen.done),
        sorted((p.key, p.what, p.artifact) for p in seen.damaged),
        sorted((p.key, p.what) for p in seen.failed),
        seen.checkpoints,
        (seen.rows, seen.damaged_rows, seen.superseded, seen.torn, seen.started),
        round(seen.seconds, 6),
        seen.last_signs,
        seen.lost,
    )


@settings(max_examples=150, deadline=None)
@given(st.lists(ROWS, max_size=40), ATTEMPTS, st.integers(0, 1 << 30), st.sampled_from(range(6)))
def test_columns_and_rows_say_the_same(
    rows: list[tuple[str, str, str, float | None, str]], numbers: list[int], seed: int, harm: int
) -> None:
    chance = random.Random(seed)
    content = bytearray(journal(rows, numbers))
    if harm == 1:  # a torn tail
        del content[chance.randrange(len(HEADER), len(content) + 1) :]
    if harm in (2, 3):  # damage anywhere behind the header
        for _ in range(harm - 1):
            place = chance.randrange(len(HEADER), len(content) + 1)
            content[place : place + 1] = bytes([chance.randrange(256)])
    with TemporaryDirectory() as folder:
        root = Path(folder)
        for key in "abd":
            (root / "artifacts" / key).mkdir(parents=True)
            (root / "artifacts" / key / "x").write_text("abc", encoding="ascii")
        paths = (root / "journal.csv", root / "marker.csv")
        paths[0].write_bytes(content)
        paths[1].write_bytes(journal(rows[:7], numbers))
        expected = ((), ("x",), ("x", "y"))[harm % 3]
        journals = paths if harm > 3 else paths[:1]
        order = Look("0001", journals, root / "artifacts", harm != 5, expected, deep=False)
        assert told(look(order)) == told(by_rows(order))


def test_columns_are_used_for_what_a_batch_writes(tmp_path: Path) -> None:
    rows = [Row("2026-03-01T08:00:00.000Z", 1, "attempt", "1", "started", None)]
    rows += [Row("2026-03-01T08:00:01.000Z", 1, "task", k, "done", 1.0) for k in "abc"]
    path = tmp_path / "journal.csv"
    path.write_bytes(HEADER + b"".join(map(encode_row, rows)))
    found = columns.tally(path)
    assert (found.names, found.state.done) == (["a", "b", "c"], {})
    assert list(found.seconds) == [b"1.000000"] * 3
    assert found.last_signs == {1: "2026-03-01T08:00:01.000Z"}
    assert witness.look(Look("0001", (path,), tmp_path, True, (), False)).done == ["a", "b", "c"]
