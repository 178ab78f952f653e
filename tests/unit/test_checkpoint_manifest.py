"""The manifest, the store around it, and files of an application."""

from __future__ import annotations

import ast
import json
import os
import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest

import milepost
from milepost.checkpoint.environment import Environment, current_environment
from milepost.checkpoint.files import commit_files, restore_files
from milepost.checkpoint.legal import wanted_now
from milepost.checkpoint.manifest import (
    Manifest,
    Metrics,
    Output,
    check_file_name,
    commit_order,
    parse_manifest,
)
from milepost.checkpoint.store import CheckpointStore
from milepost.errors import DataError, Refused, StorageError
from milepost.model import FileProof

DIGEST = "blake3:" + "0" * 64


def manifest(**changes: Any) -> dict[str, Any]:
    value = Manifest(
        name="000003-a2",
        step=30,
        created="2026-01-01T00:00:00.000Z",
        files=(FileProof("rank_0.bin", 10, DIGEST),),
        environment=Environment("sha256:1", "a100", "git:1", {"numpy": "2"}),
        bases=("000001-a1",),
        ranks={0: "rank_0.bin"},
        rng={"seed": 1},
        solver={"dt": 0.5},
        outputs=(Output("traj", 5, 5),),
        control={"metric": "energy", "value": 1.5},
        metrics=Metrics(0.1, 0.2, 10, 12),
    ).as_json()
    return {**value, **changes}


def parse(value: Any) -> Manifest:
    return parse_manifest(json.dumps(value).encode(), "here/ckpt.manifest.json")


def test_it_comes_back_the_same() -> None:
    assert parse(manifest()).as_json() == manifest()
    assert json.loads(parse(manifest()).to_bytes()) == manifest()


def test_a_newer_version_is_refused_by_name() -> None:
    with pytest.raises(DataError, match=r"manifest format 2; this milepost reads up to 1"):
        parse(manifest(format=2))


@pytest.mark.parametrize(
    "name", ["/etc/passwd", "../up", "a/../../b", ".", "", "a//b", "a/./b", "OK", "a\0b"]
)
def test_names_that_leave_the_generation_are_refused(name: str) -> None:
    with pytest.raises(DataError, match="not a plain path"):
        parse(manifest(files=[{"path": name, "bytes": 1, "digest": DIGEST}]))
    with pytest.raises(DataError):
        check_file_name(name)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"step": "3"}, "field step is '3', expected int"),
        ({"step": True}, "field step is True"),
        ({"generation": 4}, "does not fit"),
        ({"name": "latest"}, "not the name of a generation"),
        ({"bases": ["../x"]}, "not the name of a generation"),
        ({"files": [{"path": "a", "bytes": -1, "digest": DIGEST}]}, "expected 0 or more"),
        ({"files": [{"path": "a", "bytes": 1, "digest": "md5:0"}]}, "files.digest"),
        ({"decomposition": {"version": 1, "ranks": {"0": "other"}}}, "which is not a file"),
        ({"metrics": {}}, "metrics.blocked_s is missing"),
        ({"environment": {"container": 5}}, "environment"),
        ({"outputs": [{"path": "a", "bytes": 1}]}, "outputs.append_offset is missing"),
    ],
)
def test_a_wrong_field_is_named(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message) as caught:
        parse(manifest(**changes))
    assert caught.value.where == "here/ckpt.manifest.json"


def test_order_is_of_commits() -> None:
    names = ["000009-a1", "000002-a2", "000010-a1", "1000000-a1"]
    assert sorted(names, key=commit_order) == ["000009-a1", "000010-a1", "1000000-a1", "000002-a2"]


def test_the_environment_takes_what_it_is_given() -> None:
    given = {"APPTAINER_CONTAINER": "/x.sif", "MILEPOST_CODE": "git:1", "MILEPOST_GPU_PROFILE": ""}
    found = current_environment(given)
    assert (found.container, found.code, found.gpu_profile) == ("/x.sif", "git:1", None)
    assert current_environment({**given, "MILEPOST_CONTAINER": "sha256:9"}).container == "sha256:9"
    assert "python" in found.libraries


def commit(store: CheckpointStore, tmp_path: Path, step: int = 1) -> Manifest:
    source = tmp_path / "state"
    source.write_text(f"state {step}")
    return commit_files(store, step, {"state": source})


def test_files_go_in_and_come_out(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path / "c", attempt=1)
    assert restore_files(store, tmp_path / "out", wanted_now()) is None
    commit(store, tmp_path, 1)
    commit(store, tmp_path, 2)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "state").write_text("stale")
    found = restore_files(store, tmp_path / "out", wanted_now())
    assert found is not None
    assert (found.manifest.step, found.manifest.name) == (2, "000002-a1")
    assert (tmp_path / "out" / "state").read_text() == "state 2"
    assert store.restore_counts() == {"000002-a1": 1}
    store.clear_restore("000002-a1")
    assert store.restore_counts() == {}


def test_damaged_files_are_not_given_to_the_application(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path / "c")
    for step in (1, 2):
        commit(store, tmp_path, step)
    (store.path("000002-a0") / "state").write_text("state X")
    found = restore_files(store, tmp_path / "out", wanted_now())
    assert found is not None
    assert found.manifest.step == 1
    assert found.lost.steps == 1
    assert (tmp_path / "out" / "state").read_text() == "state 1"


def test_empty_files_and_links_are_no_checkpoint(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path / "c")
    (tmp_path / "empty").touch()
    (tmp_path / "link").symlink_to(tmp_path / "empty")
    for name in ("empty", "link"):
        with pytest.raises(DataError, match=f"is (a )?{name}"):
            commit_files(store, 1, {"state": tmp_path / name})
    assert store.names() == []
    assert not list((tmp_path / "c").glob(".draft*"))


def test_a_superseded_runner_commits_no_files(tmp_path: Path) -> None:
    calls: list[int] = []

    def fence() -> None:
        calls.append(1)
        if len(calls) == 2:
            raise Refused("superseded")

    (tmp_path / "state").write_text("x")
    store = CheckpointStore(tmp_path / "c")
    with pytest.raises(Refused):
        commit_files(store, 1, {"state": tmp_path / "state"}, fence=fence)
    assert store.names() == []


def test_two_writers_of_one_generation_cannot_both_win(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path / "c")
    draft = store.begin()
    made = commit(store, tmp_path)
    assert made.name == draft.name
    with pytest.raises(StorageError, match="another writer"):
        draft.commit(parse(manifest(name=draft.name, generation=1, attempt=0)))


def test_a_name_is_never_used_twice(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path / "c")
    for step in range(3):
        commit(store, tmp_path, step)
    for name in store.generations():
        store.remove(name)
    assert commit(store, tmp_path).name == "000004-a0"


def test_leftovers_of_the_dead_go_and_those_of_the_living_stay(tmp_path: Path) -> None:
    host = socket.gethostname()
    zombie = subprocess.Popen(["true"])  # dead, but nobody has asked for its exit code yet
    os.waitid(os.P_PID, zombie.pid, os.WEXITED | os.WNOWAIT)
    unburied = f".draft-a2-{host}-{zombie.pid}-x"
    dead = f".draft-a2-{host}-{2**22 + 1}-x"
    alive = f".draft-a2-{host}-{os.getpid()}-x"
    elsewhere, superseded = ".draft-a2-other-1-x", ".draft-a1-other-1-x"
    for name in (dead, unburied, alive, elsewhere, superseded, "000001-a1", "notes"):
        (tmp_path / name).mkdir()
    store = CheckpointStore(tmp_path, attempt=2)
    assert store.clean() == sorted([dead, unburied, superseded])
    zombie.wait()
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        [alive, elsewhere, "000001-a1", "notes"]
    )


def test_a_state_file_of_a_newer_milepost_is_refused(tmp_path: Path) -> None:
    (tmp_path / "store.json").write_text('{"format": 2}')
    with pytest.raises(DataError, match="format 2"):
        CheckpointStore(tmp_path).restore_counts()


def test_nothing_that_runs_code_when_it_is_read() -> None:
    """No pickle, in any disguise, anywhere in the library."""
    source = Path(milepost.__file__).parent
    refused = {"pickle", "cPickle", "dill", "cloudpickle", "shelve", "marshal", "joblib"}
    for path in sorted(source.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                names = {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                names = {str(node.module).partition(".")[0]}
            elif isinstance(node, ast.keyword) and node.arg == "allow_pickle":
                assert isinstance(node.value, ast.Constant) and node.value.value is False, path
                continue
            else:
                continue
            assert not names & refused, path
