"""Whatever happens to one file of a finished run: the look goes on, and nothing bad is DONE."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from helpers.run_folder import RunFolder, finished_simulation, finished_sweep
from milepost.evidence.closing import close
from milepost.evidence.gather import gather
from milepost.evidence.reconcile import reconcile
from milepost.model import Verdict

pytestmark = pytest.mark.chaos


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def zeros(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def noise(path: Path) -> None:
    path.write_bytes(b"\xff\xfe{]" * 20)


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0x20
    path.write_bytes(bytes(data))


def files(root: Path) -> list[Path]:
    found = [p for name in ("work", "results") for p in (root / name).rglob("*") if p.is_file()]
    return sorted(p.relative_to(root) for p in found)


@pytest.mark.parametrize("build", [finished_sweep, finished_simulation])
@pytest.mark.parametrize("harm", [Path.unlink, cut, empty, zeros, noise, flip])
def test_one_harmed_file(
    tmp_path: Path, build: Callable[[Path], RunFolder], harm: Callable[[Path], None]
) -> None:
    whole = tmp_path / "whole"
    build(whole)
    for number, name in enumerate(files(whole)):
        root = tmp_path / str(number)
        shutil.copytree(whole, root)
        folder = RunFolder(root, "sweep" if build is finished_sweep else "ising")
        harm(root / name)
        run = gather(folder.paths, deep=True)
        for verdict in reconcile(run):
            if verdict.verdict is Verdict.DONE and "artifacts" in name.parts:
                keys = {*verdict.shard.tasks, verdict.shard.name}
                assert not keys & set(name.parts), (name, verdict)
        closing = close(folder.paths, now="2026-03-02T00:00:00.000Z", partial=False)
        is_contract = name == Path("work", folder.run, "contract.json")
        if "artifacts" in name.parts or (is_contract and harm is not Path.unlink):
            assert not closing.closeout.is_closed, name
        shutil.rmtree(root)
