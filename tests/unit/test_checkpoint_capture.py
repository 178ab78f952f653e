"""Files of an application come into a generation by link, by shared blocks, or by copy."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from helpers.disks import SmallDisks, call, disks  # noqa: F401 - a fixture
from helpers.loop_disk import btrfs
from milepost.checkpoint.capture import AUTO, COPY, LINK, REFLINK, take
from milepost.checkpoint.files import commit_files, restore_files
from milepost.checkpoint.legal import wanted_now
from milepost.checkpoint.store import CheckpointStore
from milepost.checkpoint.upload import Remote
from milepost.checkpoint.verify import verify_generation
from milepost.cli.ckpt import command
from milepost.durable import digest_file
from milepost.errors import ConfigError, DataError
from milepost.tiers.local import LocalTier

SIZE = 3 << 20


@pytest.fixture
def state(tmp_path: Path) -> Path:
    path = tmp_path / "state.cpt"
    path.write_bytes(os.urandom(SIZE))
    return path


@pytest.fixture(scope="module")
def sharing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with btrfs(tmp_path_factory.mktemp("btrfs")) as folder:
        yield folder


@pytest.mark.parametrize(
    ("way", "came"), [(LINK, LINK), (REFLINK, COPY), (AUTO, COPY), (COPY, COPY)]
)
def test_each_way_proves_what_is_there(tmp_path: Path, state: Path, way: str, came: str) -> None:
    """On a file system that shares no blocks."""
    here = call("stat", "-f", "-c", "%T", str(tmp_path)).stdout.strip()
    target = tmp_path / "taken"
    proof, how = take(state, target, "a/state", way)
    assert (proof.path, proof.size_bytes, proof.digest) == ("a/state", SIZE, digest_file(state))
    assert how in (came, REFLINK) if here in ("xfs", "btrfs") else how == came
    assert target.samefile(state) is (how == LINK)
    assert target.read_bytes() == state.read_bytes()


@pytest.mark.parametrize("way", [REFLINK, AUTO])
def test_blocks_are_shared_until_one_is_written_to(sharing: Path, way: str) -> None:
    state = sharing / f"state-{way}"
    state.write_bytes(os.urandom(SIZE))
    os.sync()
    store = CheckpointStore(sharing / f"ckpt-{way}")
    manifest = commit_files(store, 1, {"state": state}, capture=way)
    taken = store.path(manifest.name) / "state"
    assert not taken.samefile(state)
    extents = call("filefrag", "-v", str(taken)).stdout
    assert extents.count("shared") >= 1, extents
    before = taken.read_bytes()
    with state.open("r+b") as stream:
        stream.write(b"the application goes on")
    assert taken.read_bytes() == before
    assert not verify_generation(store, manifest.name)


def test_a_link_across_file_systems_becomes_a_copy(
    disks: SmallDisks,  # noqa: F811
    tmp_path: Path,
    state: Path,
) -> None:
    other = disks.mount(tmp_path / "other", 8 << 10)
    store = CheckpointStore(other / "ckpt")
    manifest = commit_files(store, 1, {"state": state}, capture=LINK)
    assert (store.path(manifest.name) / "state").read_bytes() == state.read_bytes()


def test_a_linked_file_that_is_replaced_stays_and_one_that_is_written_to_is_found_out(
    tmp_path: Path, state: Path
) -> None:
    store = CheckpointStore(tmp_path / "ckpt")
    first = commit_files(store, 1, {"state": state}, capture=LINK)
    (tmp_path / "next").write_bytes(os.urandom(SIZE))
    (tmp_path / "next").replace(state)
    second = commit_files(store, 2, {"state": state}, capture=LINK)
    assert not verify_generation(store, first.name), "the application writes anew and renames"
    with state.open("r+b") as stream:
        stream.write(b"no: it writes into the same file")
    (damage,) = verify_generation(store, second.name)
    assert "digest differs" in damage.what
    found = restore_files(store, tmp_path / "back", wanted_now())
    assert found is not None
    assert (found.manifest.step, found.lost.steps) == (1, 1)
    assert not (tmp_path / "back" / "state").samefile(store.path(first.name) / "state"), (
        "what is given back is a file of its own"
    )


def test_what_is_no_checkpoint_is_refused_and_leaves_nothing(tmp_path: Path, state: Path) -> None:
    store = CheckpointStore(tmp_path / "ckpt")
    (tmp_path / "empty").touch()
    (tmp_path / "link").symlink_to(state)
    for name, why in (("empty", "is empty"), ("link", "is a link")):
        with pytest.raises(DataError, match=why):
            commit_files(store, 1, {"ok": state, "x": tmp_path / name}, capture=LINK)
    with pytest.raises(ConfigError, match="capture is 'clone'"):
        commit_files(store, 1, {"ok": state}, capture="clone")
    assert store.names() == []
    assert not list((tmp_path / "ckpt").glob(".draft*"))


def run(*words: object) -> Result:
    return CliRunner().invoke(command, [str(word) for word in words])


def run_json(*words: object) -> Any:
    done = run(*words, "--json")
    assert done.exit_code == 0, (done.output, done.exception)
    return json.loads(done.stdout)


def test_by_hand_from_the_application_to_another_tier_and_back(tmp_path: Path, state: Path) -> None:
    folder, warm = tmp_path / "ckpt", tmp_path / "warm"
    (tmp_path / "md").mkdir()
    log = tmp_path / "md" / "log"
    for step in range(3):
        log.write_text(f"step {step}\n")
        words = ("--step", step, "--base", tmp_path, "--rotation", 2, "--warm", warm)
        made = run_json("add", folder, state, log, "--capture", "link", *words)
    assert made["generation"] == "000003-a0"
    assert made["deleted"] == ["000001-a0"]
    assert {item["path"] for item in made["sent"]} >= {
        "000003-a0/state.cpt",
        "000003-a0/md/log",
    }
    assert (folder / "000003-a0" / "state.cpt").samefile(state)
    assert Remote("warm", LocalTier(warm)).generations() == [
        "000003-a0",
        "000002-a0",
        "000001-a0",
    ]
    shutil.rmtree(folder)
    folder.mkdir()
    found = run_json("restore", folder, tmp_path / "out", "--warm", warm)
    assert (found["step"], found["tier"]) == (2, "warm")
    assert (tmp_path / "out" / "md" / "log").read_text() == "step 2\n"
    assert (tmp_path / "out" / "state.cpt").read_bytes() == state.read_bytes()
    outside = run("add", folder, "/etc/hostname", "--step", 1, "--base", tmp_path)
    assert isinstance(outside.exception, ConfigError)
