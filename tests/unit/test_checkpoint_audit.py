"""The audit log, the exchange of keys and the difference of two generations."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.packages import have
from milepost.checkpoint import rekey as rekeying
from milepost.checkpoint.audit import HEAD, LOG, note, read_audit
from milepost.checkpoint.checkpointer import Checkpointer
from milepost.checkpoint.crypt import UserKey, WrongKey, load_key
from milepost.checkpoint.diff import diff_generations
from milepost.checkpoint.files import commit_files
from milepost.checkpoint.rekey import rekey
from milepost.checkpoint.store import CheckpointStore
from milepost.checkpoint.verify import verify_generation
from milepost.errors import DataError


def key(path: Path, seed: int) -> tuple[dict[str, str], UserKey]:
    path.write_bytes(np.random.default_rng(seed).bytes(32))
    path.chmod(0o600)
    said = {"key_file": str(path)}
    found = load_key(said)
    assert found is not None
    return said, found


def save(folder: Path, steps: int = 3, **options: Any) -> None:
    x = np.random.default_rng(3).standard_normal(300_000)
    with Checkpointer(folder, **{"rotation": 9, **options}) as ck:
        ck.restore()
        for step in range(steps):
            x[step] = 1e9
            ck.save(step, {"x": x, "n": np.arange(3)}, {"a": 1})
            ck.wait()


def whats(folder: Path) -> list[tuple[str, str]]:
    return [(record["what"], record["generation"]) for record in read_audit(folder).records]


def test_everything_that_happens_is_recorded(tmp_path: Path) -> None:
    save(tmp_path, 2, rotation=1, delta=False)
    save(tmp_path, 1)
    store = CheckpointStore(tmp_path)
    store.set_gold("000003-a0")
    store.set_gold("000003-a0", False)
    assert whats(tmp_path) == [
        ("created", "000001-a0"),
        ("created", "000002-a0"),
        ("pruned", "000001-a0"),
        ("restored", "000002-a0"),
        ("created", "000003-a0"),
        ("gold", "000003-a0"),
        ("ungold", "000003-a0"),
    ]
    audit = read_audit(tmp_path)
    assert audit.problems == ()
    assert {record["uid"] for record in audit.records} == {os.getuid()}
    text = (tmp_path / LOG).read_text()
    assert os.uname().nodename not in text
    assert audit.content == {
        name: (tmp_path / name / "OK").read_text().strip() for name in ("000002-a0", "000003-a0")
    }


@pytest.mark.parametrize("line", range(4))
@pytest.mark.parametrize("how", ["edit", "remove", "swap", "repeat"])
def test_a_changed_log_is_noticed(tmp_path: Path, line: int, how: str) -> None:
    for number in range(5):
        note(tmp_path, "created", f"00000{number}-a0", "blake3:" + "0" * 64)
    lines = (tmp_path / LOG).read_text().splitlines(keepends=True)
    if how == "edit":
        lines[line] = lines[line].replace('"created"', '"gold"')
    elif how == "remove":
        del lines[line]
    elif how == "swap":
        lines[line], lines[line + 1] = lines[line + 1], lines[line]
    else:
        lines.insert(line, lines[line])
    (tmp_path / LOG).write_text("".join(lines))
    assert read_audit(tmp_path).problems
    note(tmp_path, "gold", "000001-a0")
    assert read_audit(tmp_path).problems, "going on does not mend it"


@pytest.mark.parametrize("kept", range(5))
def test_lines_cut_off_at_the_end_are_missed(tmp_path: Path, kept: int) -> None:
    for number in range(5):
        note(tmp_path, "gold", f"00000{number}-a0")
    lines = (tmp_path / LOG).read_text().splitlines(keepends=True)
    (tmp_path / LOG).write_text("".join(lines[:kept]))
    assert read_audit(tmp_path).problems == (f"the last lines are missing: {kept} of 5 are there",)
    note(tmp_path, "gold", "000001-a0")
    assert read_audit(tmp_path).problems


def test_a_line_torn_by_a_crash_is_cut_and_a_head_left_behind_is_fine(tmp_path: Path) -> None:
    note(tmp_path, "gold", "000001-a0")
    head = (tmp_path / HEAD).read_bytes()
    note(tmp_path, "gold", "000002-a0")
    (tmp_path / HEAD).write_bytes(head)
    with (tmp_path / LOG).open("ab") as stream:
        stream.write(b'{"n":3,"ti')
    assert read_audit(tmp_path).problems == ()
    note(tmp_path, "gold", "000003-a0")
    audit = read_audit(tmp_path)
    assert audit.problems == ()
    assert [record["n"] for record in audit.records] == [1, 2, 3]


def test_writers_at_the_same_time_keep_one_chain(tmp_path: Path) -> None:
    def write() -> None:
        for _ in range(10):
            note(tmp_path, "gold", "000001-a0")

    threads = [threading.Thread(target=write) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    audit = read_audit(tmp_path)
    assert (len(audit.records), audit.problems) == (40, ())


def test_a_generation_that_nobody_recorded_is_found_at_the_next_start(tmp_path: Path) -> None:
    save(tmp_path, 1)
    (tmp_path / LOG).unlink()
    (tmp_path / HEAD).unlink()
    save(tmp_path, 1)
    assert whats(tmp_path)[0] == ("found", "000001-a0")
    assert read_audit(tmp_path).problems == ()


def test_rekey_exchanges_the_key_and_nothing_else(tmp_path: Path) -> None:
    folder = tmp_path / "c"
    (old_said, old), (new_said, new) = key(tmp_path / "old", 1), key(tmp_path / "new", 2)
    save(folder, encrypt=old_said)
    store = CheckpointStore(folder)
    data = folder / "000001-a0" / "rank_0.bin"
    before, inode = data.read_bytes(), data.stat().st_ino
    assert [r.files for r in rekey(store, old, new)] == [1, 1, 1]
    after = data.read_bytes()
    assert after[4096:] == before[4096:]
    assert data.stat().st_ino == inode
    assert old.key_id.encode() not in after
    assert all(not verify_generation(store, name, key=new) for name in store.generations())
    with pytest.raises(WrongKey):
        Checkpointer(folder, encrypt=old_said).restore()
    saved = Checkpointer(folder, encrypt=new_said).restore()
    assert saved is not None
    assert saved.step == 2
    assert [r.files for r in rekey(store, old, new)] == [0, 0, 0], "it is done already"
    assert [what for what, _ in whats(folder)].count("rekeyed") == 3
    assert read_audit(folder).problems == ()
    assert not list(folder.rglob(".rekey*"))


def test_rekey_to_age(tmp_path: Path) -> None:
    have("age-keygen", "age")
    import subprocess

    identity = tmp_path / "identity"
    subprocess.run(["age-keygen", "-o", str(identity)], check=True, capture_output=True, timeout=20)
    old_said, old = key(tmp_path / "old", 1)
    save(tmp_path / "c", encrypt=old_said)
    new = load_key({"age_identity": str(identity)})
    assert new is not None
    rekey(CheckpointStore(tmp_path / "c"), old, new)
    saved = Checkpointer(tmp_path / "c", encrypt={"age_identity": str(identity)}).restore()
    assert saved is not None
    assert saved.step == 2


@pytest.mark.parametrize("calls", range(9))
def test_an_interrupted_rekey_is_finished_at_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, calls: int
) -> None:
    """Stopped before each of its writes: a delta and its base are under one key."""
    folder = tmp_path / "c"
    (old_said, old), (new_said, new) = key(tmp_path / "old", 1), key(tmp_path / "new", 2)
    save(folder, 2, encrypt=old_said)
    store, done = CheckpointStore(folder), 0

    def stop(function: Any) -> Any:
        def wrapped(*args: Any, **words: Any) -> Any:
            nonlocal done
            done += 1
            if done > calls:
                raise KeyboardInterrupt
            return function(*args, **words)

        return wrapped

    with monkeypatch.context() as patch:
        for name in ("_write_page", "atomic_file", "fsync_directory"):
            patch.setattr(rekeying, name, stop(getattr(rekeying, name)))
        if calls < 8:
            with pytest.raises(KeyboardInterrupt):
                rekey(store, old, new)
        else:
            rekey(store, old, new)
            assert done == 8, "the record, a page and two flags of each, the folder"
    said = old_said if calls == 0 else new_said
    saved = Checkpointer(folder, encrypt=said).restore()
    assert saved is not None
    assert (saved.step, saved.damages) == (1, ())
    assert not list(folder.rglob(".rekey*"))


def test_rekey_does_not_bless_damage(tmp_path: Path) -> None:
    folder = tmp_path / "ckpt"
    (said, old), (_, new), (_, third) = (key(tmp_path / n, i) for i, n in enumerate("abc"))
    save(folder, 1, encrypt=said)
    store = CheckpointStore(folder)
    with pytest.raises(WrongKey):
        rekey(store, third, new)
    path = folder / "000001-a0" / "rank_0.bin"
    data = bytearray(path.read_bytes())
    data[5000] ^= 1
    path.write_bytes(data)
    with pytest.raises(DataError, match="digest differs"):
        rekey(store, old, new)


def test_diff_tells_what_changed(tmp_path: Path) -> None:
    x, y = np.zeros(100_000), np.arange(10)
    z = np.array([1.0, np.nan])
    with Checkpointer(tmp_path, rotation=9) as ck:
        ck.save(0, {"x": x, "y": y, "gone": y, "shape": y, "z": z}, None)
        x[[5, 50_000]] += [0.25, -0.5]
        ck.save(1, {"x": x, "y": y, "come": y, "shape": y[:3], "z": z}, None)
    store = CheckpointStore(tmp_path)
    changes = {c.name: c for c in diff_generations(store, "000001-a0", "000002-a0")}
    assert {name: c.how for name, c in changes.items()} == {
        "x": "changed",
        "y": "same",
        "gone": "removed",
        "come": "added",
        "shape": "reshaped",
        "z": "same",
    }
    assert (changes["x"].blocks, changes["x"].changed_blocks) == (13, 2)
    assert changes["x"].max_abs == 0.5
    assert changes["x"].changed_bytes == 4
    assert changes["z"].max_abs == 0.0
    assert changes["y"].max_abs is None


def test_diff_of_files(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path / "c")
    for text in ("one", "two"):
        (tmp_path / "f").write_text(text)
        (tmp_path / "g").write_text("same")
        commit_files(store, 1, {"f": tmp_path / "f", "g": tmp_path / "g"})
    changes = diff_generations(store, "000001-a0", "000002-a0")
    assert [(c.name, c.how) for c in changes] == [("f", "changed"), ("g", "same")]
    save(tmp_path / "d", 1)


def test_the_record_is_json_without_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MILEPOST_CONTAINER", "sha256:abc")
    monkeypatch.setenv("MILEPOST_CODE", "c0de")
    note(tmp_path, "gold", "000001-a0")
    record = json.loads((tmp_path / LOG).read_text())
    assert (record["container"], record["code"], record["n"]) == ("sha256:abc", "c0de", 1)
    assert set(record) == {
        *("n", "time", "uid", "what", "generation", "tier", "manifest"),
        *("container", "code", "milepost", "before"),
    }


def test_a_record_costs_the_same_however_long_the_log_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from milepost.checkpoint import audit

    for number in range(30):
        note(tmp_path, "gold", f"{number:06d}-a0")
    read: list[Path] = []
    real = audit._lines
    monkeypatch.setattr(audit, "_lines", lambda folder: (read.append(folder), real(folder))[1])
    note(tmp_path, "gold", "000031-a0")
    assert read == []
    with (tmp_path / LOG).open("ab") as stream:
        stream.write(b'{"torn')
    note(tmp_path, "gold", "000032-a0")
    assert read == [tmp_path]
    assert [record["n"] for record in read_audit(tmp_path).records] == list(range(1, 33))
    assert read_audit(tmp_path).problems == ()
