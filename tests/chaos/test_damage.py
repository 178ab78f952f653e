"""What a bad disk does to a shard: a clear error or a clean fall-back, and nothing is lost.

Everything goes through `milepost shard`, as a job would run it.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from helpers.disks import SmallDisks, disks  # noqa: F401 - a fixture
from helpers.project import PYTHON, Project, ok, said
from milepost.config.tasks import task_key
from milepost.journal import read_journal

pytestmark = pytest.mark.chaos

WALK = """\
import json, os, pathlib, signal, sys
import numpy as np
from milepost import Checkpointer

out, steps = pathlib.Path(sys.argv[1]), int(sys.argv[2])
with Checkpointer.from_env() as ck:
    saved = ck.restore()
    x, first = np.zeros(100_000), 0
    if saved is not None:
        x, first = saved.arrays["x"].copy(), saved.step + 1
    for step in range(first, steps):
        x += np.random.default_rng(step).random(x.size)  # does not compress
        ck.save(step, {"x": x}, {})
        ck.wait()
        if step == 3 and os.path.exists("node-failure"):
            os.kill(os.getppid(), signal.SIGKILL)
            os.kill(os.getpid(), signal.SIGKILL)
    (out / "walk.json").write_text(json.dumps({"x": x.sum()}))
    ck.finish()
"""
STEPS = 6
STATE_KIB = 800


def walk(root: Path, **tiers: str | None) -> Project:
    """A long process of six steps, each of them checkpointed; three generations are kept."""
    project = Project(root)
    project.write("walk.py", WALK)
    project.table("walk", [{"steps": STEPS}])
    project.tiers = {"warm": None, **tiers}
    project.run(
        "walk",
        work={
            "kind": "resumable",
            "members": "config/walk.csv",
            "command": "python walk.py {out} {steps}",
        },
        artifacts=[{"path": "walk.json", "check": "json"}],
        checkpoint={"uploader": {"enable": tiers.get("warm") is not None}, "delta": False},
        retry={"limit": 0},
    )
    project.launch("walk")
    return project


def result(project: Project) -> float:
    found: float = project.json("results/walk/artifacts/0001/walk.json")["x"]
    return found


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> float:
    project = walk(tmp_path_factory.mktemp("undisturbed"))
    ok(project.milepost("shard", "walk", "0001"))
    return result(project)


@pytest.fixture(scope="module")
def failed_node(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A run whose node failed after step 3: runner and process are dead, steps 1 to 3 are kept."""
    project = walk(tmp_path_factory.mktemp("failed-node"))
    project.flag("node-failure")
    died = project.milepost("shard", "walk", "0001")
    assert died.returncode == -9
    (project.root / "node-failure").unlink()
    return project


def generations(project: Project) -> list[Path]:
    """Newest first."""
    folder = project.root / "work/scratch/walk/0001/ckpt"
    return sorted((p for p in folder.iterdir() if p.is_dir()), reverse=True)


def flip_bit(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0x04
    path.write_bytes(data)


def log(project: Project, attempt: int) -> str:
    return (project.root / f"work/walk/shards/0001/attempts/{attempt}.log").read_text()


def assert_fell_back_to_step_2(project: Project, undisturbed: float) -> None:
    ok(project.milepost("shard", "walk", "0001"))
    told = log(project, 2)
    assert "restored step 2" in told
    assert "passed over" in told
    assert "lost 1 steps" in told or "lost n/a steps" in told
    record = project.json("work/walk/shards/0001/attempts/2.json")
    assert record["restored"]["step"] == 2
    assert result(project) == undisturbed


def test_a_node_failure_alone_loses_nothing(
    failed_node: Project, tmp_path: Path, undisturbed: float
) -> None:
    project = failed_node.copy_to(tmp_path)
    assert len(generations(project)) == 3
    ok(project.milepost("shard", "walk", "0001"))
    assert "restored step 3" in log(project, 2)
    assert result(project) == undisturbed


@pytest.mark.parametrize("name", ["rank_0.bin", "ckpt.manifest.json", "OK"])
def test_a_flipped_bit_in_a_checkpoint_falls_back_to_the_older_one(
    failed_node: Project, tmp_path: Path, undisturbed: float, name: str
) -> None:
    project = failed_node.copy_to(tmp_path)
    assert {path.name for path in generations(project)[0].iterdir()} == {
        "rank_0.bin",
        "ckpt.manifest.json",
        "OK",
    }
    flip_bit(generations(project)[0] / name)
    assert_fell_back_to_step_2(project, undisturbed)


def test_a_manifest_without_ok_is_no_checkpoint(
    failed_node: Project, tmp_path: Path, undisturbed: float
) -> None:
    project = failed_node.copy_to(tmp_path)
    (generations(project)[0] / "OK").unlink()
    assert_fell_back_to_step_2(project, undisturbed)


def test_when_no_checkpoint_is_intact_it_says_so_and_keeps_them(
    failed_node: Project, tmp_path: Path, undisturbed: float
) -> None:
    project = failed_node.copy_to(tmp_path)
    for generation in generations(project):
        flip_bit(generation / "rank_0.bin")
    kept = project.snapshot("work/scratch")
    done = project.milepost("shard", "walk", "0001")
    assert done.returncode == 12, said(done)
    assert "no generation can be restored" in log(project, 2)
    damaged = {name: data for name, data in kept.items() if name.endswith(".bin")}
    assert damaged.items() <= project.snapshot("work/scratch").items()
    # the remedy that it names: to start afresh, move the folder away
    folder = project.root / "work/scratch/walk/0001/ckpt"
    folder.rename(tmp_path / "away")
    ok(project.milepost("shard", "walk", "0001"))
    assert result(project) == undisturbed


def test_a_damaged_checkpoint_is_taken_from_the_warm_tier(
    tmp_path: Path, undisturbed: float
) -> None:
    project = walk(tmp_path, warm="warm")
    project.flag("node-failure")
    # the node fails only after the last checkpoint is in the warm tier
    late = "        while not list(pathlib.Path('warm').rglob('000004-*/OK')): time.sleep(0.01)\n"
    at = WALK.index("        if step == 3")
    program = WALK[:at] + late.replace("while", "while step == 3 and") + WALK[at:]
    project.write("walk.py", program.replace("import json", "import time, json"))
    assert project.milepost("shard", "walk", "0001").returncode == -9
    (tmp_path / "node-failure").unlink()
    flip_bit(generations(project)[0] / "rank_0.bin")
    ok(project.milepost("shard", "walk", "0001"))
    record = project.json("work/walk/shards/0001/attempts/2.json")
    assert (record["restored"]["step"], record["restored"]["tier"]) == (3, "warm")
    assert result(project) == undisturbed


# disks


def test_a_full_scratch_disk_ends_with_a_clear_error_and_goes_on_after_it(
    tmp_path: Path,
    disks: SmallDisks,  # noqa: F811
    undisturbed: float,
) -> None:
    scratch = disks.mount(tmp_path / "scratch", STATE_KIB + 400)
    project = walk(tmp_path, scratch=str(scratch))
    done = project.milepost("shard", "walk", "0001")
    assert done.returncode == 13, said(done)
    assert "storage/" in said(done)
    assert "the file system is full; what was written before is intact" in log(project, 1)
    (row,) = read_journal(project.paths("walk").shard("0001").journal).failed.values()
    assert row.data["finding"]["class"] == "storage"
    disks.remount(scratch, "size=64m")
    ok(project.milepost("shard", "walk", "0001"))
    assert "restored step 0" in log(project, 2)
    assert result(project) == undisturbed


BULKY = f"{PYTHON} bulky.py {{out}} {{n}}"


def bulky(project: Project, body: str) -> None:
    """Six tasks that leave an artifact of 40 kB each; `body` runs before it is written."""
    project.batch("sq", [1, 2, 3, 4, 5, 6])
    project.write(
        "bulky.py",
        "import os, pathlib, sys\nout, n = pathlib.Path(sys.argv[1]), sys.argv[2]\n"
        "with open(f'ran-{n}', 'a') as s: s.write('x')\n"
        f"{body}\n(out / 'a.bin').write_bytes(n.encode() * 40_000)\n",
    )
    work = {"kind": "batch", "tasks": "config/sq.csv", "command": BULKY}
    project.run("sq", work=work, artifacts=[{"path": "a.bin", "check": "nonempty"}])


def ran(project: Project) -> dict[int, int]:
    return {int(p.name[4:]): len(p.read_text()) for p in project.root.glob("ran-*")}


def done_numbers(project: Project) -> set[int]:
    done = read_journal(project.paths("sq").shard("0001").journal).done
    return {n for n in range(1, 7) if task_key({"n": str(n)}) in done}


def assert_complete(project: Project, already: set[int]) -> None:
    """All done; what was done before the remedy did not run again; every byte is right."""
    ok(project.milepost("shard", "sq", "0001"))
    assert done_numbers(project) == set(range(1, 7))
    assert {n for n, times in ran(project).items() if times > 1}.isdisjoint(already)
    for n in range(1, 7):
        path = project.paths("sq").artifact(task_key({"n": str(n)})) / "a.bin"
        assert path.read_bytes() == str(n).encode() * 40_000
    ok(project.milepost("reconcile", "sq", "--deep", "--strict"))


def assert_one_clear_error(done: subprocess.CompletedProcess[str], *texts: str) -> None:
    told = said(done)
    assert done.returncode == 13, told
    assert "Traceback" not in told
    for text in texts:
        assert text in told


def test_a_full_results_disk_ends_with_a_clear_error_and_goes_on_after_it(
    tmp_path: Path,
    disks: SmallDisks,  # noqa: F811
) -> None:
    project = Project(tmp_path)
    results = disks.mount(tmp_path / "results", 160)
    bulky(project, "")
    project.launch("sq")
    done = project.milepost("shard", "sq", "0001")
    assert_one_clear_error(done, "results/sq/artifacts", "the file system is full", "next: ")
    already = done_numbers(project)
    assert 0 < len(already) < 6
    published = {path.name for path in project.paths("sq").artifacts.iterdir()}
    assert published == {task_key({"n": str(n)}) for n in already}  # no half of one either
    disks.remount(results, "size=8m")
    assert_complete(project, already)


def test_a_full_work_disk_ends_with_a_clear_error_and_goes_on_after_it(
    tmp_path: Path,
    disks: SmallDisks,  # noqa: F811
) -> None:
    project = Project(tmp_path)
    work = disks.mount(tmp_path / "work", 1000)
    fill = (
        "if n == '3' and os.path.exists('filling'):\n"
        "    fd = os.open('work/filler', os.O_CREAT | os.O_WRONLY)\n"
        "    try:\n        while os.write(fd, bytes(4096)): pass\n"
        "    except OSError: pass\n"
    )
    bulky(project, fill)
    project.flag("filling")
    project.launch("sq")
    done = project.milepost("shard", "sq", "0001")
    assert done.returncode == 13, said(done)
    already = done_numbers(project)
    assert already >= {1, 2}
    (tmp_path / "filling").unlink()
    (work / "filler").unlink()
    assert_complete(project, already)


def test_read_only_results_end_with_a_clear_error_and_go_on_after_it(
    tmp_path: Path,
    disks: SmallDisks,  # noqa: F811
) -> None:
    project = Project(tmp_path)
    results = disks.mount(tmp_path / "results", 8000)
    bulky(project, "")
    project.launch("sq")
    disks.remount(results, "ro")
    done = project.milepost("shard", "sq", "0001")
    assert_one_clear_error(done, "results/sq/artifacts", "is read-only", "next: ")
    assert done_numbers(project) == set()
    disks.remount(results, "rw")
    assert_complete(project, set())


# journals


@pytest.fixture
def half_done(tmp_path: Path) -> tuple[Project, Path]:
    """Tasks 1 to 3 are done, 4 failed for a reason that is gone now; and the journal."""
    project = Project(tmp_path)
    project.batch("sq", [1, 2, 3, 4])
    project.flag("broken/4")
    project.launch("sq")
    assert project.milepost("shard", "sq", "0001").returncode == 11
    (tmp_path / "broken/4").unlink()
    return project, project.paths("sq").shard("0001").journal


def place_of(journal: Path, number: int) -> tuple[int, int]:
    """Where the row of a task begins and where it ends, its newline included."""
    content = journal.read_bytes()
    at = content.index(task_key({"n": str(number)}).encode())
    return content.rindex(b"\n", 0, at) + 1, content.index(b"\n", at) + 1


@pytest.mark.parametrize("torn_by", [1, 30, "zeros"])
def test_a_torn_last_line_is_cut_and_its_task_runs_again(
    half_done: tuple[Project, Path], torn_by: int | str
) -> None:
    project, journal = half_done
    begin, end = place_of(journal, 3)
    content = journal.read_bytes()
    # only the newline torn: the row is whole and counts
    again = {"4": 2} if torn_by == 1 else {"3": 2, "4": 2}
    cut = content[: end - torn_by] if isinstance(torn_by, int) else content[:begin] + bytes(300)
    journal.write_bytes(cut)
    told = said(ok(project.milepost("shard", "sq", "0001")))
    if torn_by != 1:
        assert f"{journal.relative_to(project.root)}: cut a torn last row" in told
    expected = {task_key({"n": n}): again.get(n, 1) for n in "1234"}
    assert project.executions("sq") == expected
    ok(project.milepost("reconcile", "sq", "--deep", "--strict"))


def test_a_flipped_byte_in_the_middle_costs_one_task_and_is_kept_for_a_look(
    half_done: tuple[Project, Path],
) -> None:
    project, journal = half_done
    begin, end = place_of(journal, 2)
    content = bytearray(journal.read_bytes())
    content[(begin + end) // 2] ^= 0x01
    journal.write_bytes(content)
    line = content[:begin].count(b"\n") + 1

    ok(project.milepost("reconcile", "sq"))
    (row,) = project.csv("results/sq/reconcile.csv")
    assert row["verdict"] == "SUSPECT"

    told = said(ok(project.milepost("shard", "sq", "0001")))
    assert f"journal.csv:{line}: the row is damaged (wrong CRC) and does not count" in told
    expected = {task_key({"n": n}): 2 if n in "24" else 1 for n in "1234"}
    assert project.executions("sq") == expected
    assert journal.with_name("journal.csv.damaged-2").read_bytes() == content
    assert not read_journal(journal).damaged
    ok(project.milepost("reconcile", "sq", "--deep", "--strict"))
