"""milepost ckpt, as a person types it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

from milepost.checkpoint.checkpointer import Checkpointer
from milepost.checkpoint.files import commit_files
from milepost.checkpoint.store import CheckpointStore
from milepost.cli.ckpt import command
from milepost.errors import ConfigError, DataError, Refused


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with Checkpointer(tmp_path / "ckpt", rotation=9, delta=False) as ck:
        for step in range(4):
            ck.save(step * 10, {"x": np.arange(5) + step, "g/y": np.array(1.5)}, {"t": (1, 2)})
            ck.wait()
    return tmp_path / "ckpt"


def run(*args: object) -> Result:
    return CliRunner().invoke(command, [str(arg) for arg in args])


def run_json(*args: object) -> Any:
    result = run(*args, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_ls_and_show(folder: Path) -> None:
    rows = run_json("ls", folder)
    assert [row["step"] for row in rows] == [30, 20, 10, 0]
    assert all(row["ok"] for row in rows)
    assert "step         30" in run("ls", folder).output
    assert run_json("show", folder)["step"] == 30
    assert run_json("show", folder, "000002-a0")["step"] == 10


def test_verify_names_the_damage(folder: Path) -> None:
    assert all(row["ok"] for row in run_json("verify", folder))
    path = folder / "000003-a0" / "rank_0.bin"
    data = bytearray(path.read_bytes())
    data[4100] ^= 1
    path.write_bytes(data)
    result = run("verify", folder)
    assert isinstance(result.exception, DataError)
    assert "000003-a0  DAMAGED" in result.output
    assert "block 0" in result.output


def test_restore_writes_plain_files(folder: Path, tmp_path: Path) -> None:
    found = run_json("restore", folder, tmp_path / "out")
    assert (found["step"], found["tier"]) == (30, "scratch")
    assert np.load(tmp_path / "out" / "x.npy").tolist() == [3, 4, 5, 6, 7]
    assert np.load(tmp_path / "out" / "g" / "y.npy") == 1.5
    assert json.loads((tmp_path / "out" / "meta.json").read_text())["t"]["items"] == [1, 2]
    older = run_json("restore", folder, tmp_path / "older", "--generation", "000001-a0")
    assert older["step"] == 0
    again = run("restore", folder, tmp_path / "out")
    assert isinstance(again.exception, DataError)


def test_restore_refuses_another_container(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MILEPOST_CONTAINER", "sha256:other")
    monkeypatch.setenv("MILEPOST_CODE", "c0de")
    refused = run("restore", folder, tmp_path / "out").exception
    assert isinstance(refused, Refused)
    way = str(refused.fix).partition("accept it with ")[2].split()
    assert way == ["--allow", "code", "--allow", "container"], "words of this command line"
    assert not (tmp_path / "out").exists()
    assert run("restore", folder, tmp_path / "out", *way).exit_code == 0


def test_an_array_name_that_leaves_the_folder(tmp_path: Path) -> None:
    with Checkpointer(tmp_path / "ckpt") as ck:
        ck.save(0, {"../../evil": np.arange(3)}, None)
    assert isinstance(run("restore", tmp_path / "ckpt", tmp_path / "out").exception, DataError)
    assert not (tmp_path / "evil.npy").exists()


def test_prune_and_gold(folder: Path) -> None:
    assert run_json("gold", folder, "000001-a0") == {"gold": ["000001-a0"]}
    dry = run_json("prune", folder, "--rotation", 1, "--dry-run")
    assert dry["deleted"] == ["000002-a0", "000003-a0"]
    assert len(CheckpointStore(folder).generations()) == 4
    run_json("prune", folder, "--rotation", 1)
    assert CheckpointStore(folder).generations() == ["000004-a0", "000001-a0"]
    run_json("gold", folder, "000001-a0", "--off")
    assert "deleted 000001-a0" in run("prune", folder, "--rotation", 1).output


def test_prune_does_not_trust_a_damaged_newest(folder: Path) -> None:
    path = folder / "000004-a0" / "rank_0.bin"
    data = bytearray(path.read_bytes())
    data[4100] ^= 1
    path.write_bytes(data)
    run_json("prune", folder, "--rotation", 1)
    assert "000003-a0" in CheckpointStore(folder).generations()


def test_release_ends_a_quarantine(folder: Path) -> None:
    store = CheckpointStore(folder)
    for _ in range(2):
        store.note_restore("000004-a0")
    assert run_json("restore", folder, folder.parent / "a")["generation"] == "000003-a0"
    run_json("release", folder, "000004-a0")
    assert run_json("restore", folder, folder.parent / "b")["generation"] == "000004-a0"


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    result = run("ls", tmp_path / "nothing")
    assert isinstance(result.exception, DataError)


def test_application_files_come_out_as_they_were(tmp_path: Path) -> None:
    (tmp_path / "state.cpt").write_bytes(b"binary")
    (tmp_path / "log").write_text("text")
    store = CheckpointStore(tmp_path / "ckpt")
    commit_files(store, 7, {"state.cpt": tmp_path / "state.cpt", "md/log": tmp_path / "log"})
    run_json("restore", tmp_path / "ckpt", tmp_path / "out")
    assert (tmp_path / "out" / "state.cpt").read_bytes() == b"binary"
    assert (tmp_path / "out" / "md" / "log").read_text() == "text"


def test_audit_proves_the_log_and_names_a_generation_that_was_exchanged(folder: Path) -> None:
    said = run_json("audit", folder)
    assert [record["what"] for record in said["records"]] == ["created"] * 4
    assert said["problems"] == []
    assert "created   000004-a0" in run("audit", folder).output
    other = folder / "000004-a0"
    other.rename(folder / "000009-a0")
    (folder / "000003-a0" / "OK").write_text("blake3:" + "0" * 64)
    result = run("audit", folder)
    assert isinstance(result.exception, DataError)
    assert "000009-a0 is there, and nobody recorded it" in str(result.exception)
    assert "000003-a0 is not what was recorded" in str(result.exception)


def test_diff_in_words_and_in_json(folder: Path) -> None:
    text = run("diff", folder, "000001-a0", "000002-a0").output
    assert "rank 0  x  changed  0.000 MB  100.0% of blocks, 5 bytes, at most n/a apart" in text
    assert "1 are the same" in text
    assert run_json("diff", folder, "000001-a0", "000002-a0")[1]["how"] == "changed"


def test_rekey_by_hand(tmp_path: Path) -> None:
    keys = [tmp_path / "old", tmp_path / "new"]
    for number, path in enumerate(keys):
        path.write_bytes(bytes([number]) * 32)
        path.chmod(0o600)
    with Checkpointer(tmp_path / "c", encrypt={"key_file": str(keys[0])}) as ck:
        ck.save(0, {"x": np.arange(5)})
    words = ("rekey", tmp_path / "c", "--key-file", keys[0], "--new-key-file", keys[1])
    assert run_json(*words)["files"] == {"000001-a0": 1}
    assert run("verify", tmp_path / "c", "--key-file", keys[1]).exit_code == 0
    with Checkpointer(tmp_path / "c", encrypt={"key_file": str(keys[1])}) as ck:
        assert ck.restore() is not None
    assert isinstance(run("rekey", tmp_path / "c").exception, ConfigError)
