"""One shard from lease to marker: stopped, killed, waited for, and resumed by the command line."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers.project import PYTHON, Project, ok, said, wait_for_reader
from milepost.config.tasks import task_key
from milepost.journal import read_journal
from milepost.runner.shard import ShardOptions, run_shard

LIMIT_S = 60


def key(number: int) -> str:
    return task_key({"n": str(number)})


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


class Runner:
    """A `milepost shard` that was started and left running; what it says is read line by line."""

    def __init__(self, project: Project, run: str, *words: str) -> None:
        self.process = project.start(
            "shard", run, "0001", *words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        assert self.process.stderr is not None
        self._lines = self.process.stderr

    def wait_until_it_says(self, text: str) -> str:
        for line in self._lines:
            if text in line:
                return line
        raise AssertionError(f"it ended without saying {text!r}")

    def end(self) -> tuple[int, str]:
        """Exit code and the rest of what it said."""
        rest = self._lines.read()
        return self.process.wait(LIMIT_S), rest

    def kill(self) -> None:
        """End the runner alone, as a crash would; what it started lives on."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(LIMIT_S)
        self._lines.close()


@pytest.fixture
def held(project: Project) -> Iterator[tuple[Runner, int, Path]]:
    """A run of three tasks whose runner is in the middle of the second."""
    project.batch("sq", [1, 2, 3])
    project.launch("sq")
    fifo = project.hold(2)
    runner = Runner(project, "sq")
    descriptor = wait_for_reader(fifo)
    yield runner, descriptor, fifo
    if runner.process.poll() is None:
        runner.process.kill()
        runner.process.wait(LIMIT_S)


def test_told_to_stop_it_exits_75_and_goes_on_later(
    project: Project, held: tuple[Runner, int, Path]
) -> None:
    runner, descriptor, fifo = held
    runner.process.send_signal(signal.SIGTERM)
    code, told = runner.end()
    assert code == 75, told
    assert "1/3 tasks done; stopped by signal TERM, can be resumed" in told
    with pytest.raises(BrokenPipeError):  # nobody is left who could read
        os.write(descriptor, b"x")
    os.close(descriptor)
    state = read_journal(project.paths("sq").shard("0001").journal)
    assert set(state.done) == {key(1)} and not state.failed
    record = project.json("work/sq/shards/0001/attempts/1.json")
    assert (record["stop"], record["exit_code"]) == ("signal TERM", 75)
    assert record["lost_s"] > 0, "the second task was in flight"
    fifo.unlink()
    ok(project.milepost("shard", "sq", "0001"))
    assert project.executions("sq") == {key(1): 1, key(2): 2, key(3): 1}


def test_what_a_dead_attempt_left_running_is_ended(
    project: Project, held: tuple[Runner, int, Path]
) -> None:
    runner, descriptor, fifo = held
    runner.kill()
    os.write(descriptor, b"x")  # the task still reads
    fifo.unlink()
    told = said(ok(project.milepost("shard", "sq", "0001")))
    assert "attempt 1 ended without a word; attempt 2 goes on" in told
    assert "1 of its processes still ran and were ended" in told
    with pytest.raises(BrokenPipeError):
        os.write(descriptor, b"x")
    os.close(descriptor)
    assert project.executions("sq") == {key(1): 1, key(2): 2, key(3): 1}


def test_what_a_finished_task_left_running_is_ended_before_the_marker(project: Project) -> None:
    project.write(
        "leave.py",
        "import pathlib, subprocess, sys\n"
        "left = subprocess.Popen(['sleep', '600'], start_new_session=True)\n"
        "pathlib.Path('left-pid').write_text(str(left.pid))\n"
        "pathlib.Path(sys.argv[1], 'score.json').write_text('{}')\n",
    )
    project.batch("sq", [1], artifacts=[{"path": "score.json", "check": "json"}])
    work = {"kind": "batch", "tasks": "config/sq.csv", "command": f"{PYTHON} leave.py {{out}}"}
    project.run("sq", work=work)
    project.launch("sq")
    told = said(ok(project.milepost("shard", "sq", "0001")))
    assert "ended what the work had left running (processes: 1)" in told
    assert not Path("/proc", (project.root / "left-pid").read_text()).exists()


def test_a_second_runner_says_who_holds_the_lease_and_waits_for_it(
    project: Project, held: tuple[Runner, int, Path]
) -> None:
    runner, descriptor, _ = held
    second = Runner(project, "sq")
    line = second.wait_until_it_says("the lease is held by attempt 1")
    assert f"process {runner.process.pid} on {os.uname().nodename}" in line

    refused = project.milepost("shard", "sq", "0001", "--no-wait")
    assert refused.returncode == 20
    assert f"process {runner.process.pid}" in said(refused)

    os.close(descriptor)
    assert runner.end()[0] == 0
    assert second.end()[0] == 0
    assert project.executions("sq") == project.squares("sq", [1, 2, 3])


def test_who_waits_for_a_lease_can_be_told_to_stop(
    project: Project, held: tuple[Runner, int, Path]
) -> None:
    runner, descriptor, _ = held
    second = Runner(project, "sq")
    second.wait_until_it_says("waiting")
    second.process.send_signal(signal.SIGINT)
    assert second.end()[0] == 75
    os.close(descriptor)
    assert runner.end()[0] == 0


def test_a_callable_at_work_is_ended_by_a_stop_and_runs_again(project: Project) -> None:
    project.write(
        "own_jobs.py",
        "import os\n"
        "def square(n):\n"
        "    with open(f'ran-{n}', 'a') as stream:\n        stream.write('x')\n"
        "    if n == '2' and os.path.exists('hold'):\n        open('hold').read()\n"
        "    return {'square': int(n) ** 2}\n",
    )
    project.batch("sq", [1, 2, 3], artifacts=[])
    work = {"kind": "batch", "tasks": "config/sq.csv", "function": "own_jobs:square"}
    project.run("sq", work=work)
    project.launch("sq")
    fifo = project.root / "hold"
    os.mkfifo(fifo)
    runner = Runner(project, "sq")
    descriptor = wait_for_reader(fifo)
    runner.process.send_signal(signal.SIGTERM)
    code, told = runner.end()
    assert code == 75, told
    with pytest.raises(BrokenPipeError):  # the worker is gone, too
        os.write(descriptor, b"x")
    os.close(descriptor)
    fifo.unlink()
    ok(project.milepost("shard", "sq", "0001"))
    assert ran(project) == {"1": 1, "2": 2, "3": 1}


# stages and long processes

STAGE = """\
import os, pathlib, sys
out, name = pathlib.Path(sys.argv[1]), sys.argv[2]
with open(f"ran-{name}", "a") as stream:
    stream.write("x")
if os.path.exists(f"hold-{name}"):
    open(f"hold-{name}").read()
before = sorted(path.name for path in out.iterdir())
(out / f"{name}.txt").write_text(" ".join(before))
"""


def pipeline(project: Project) -> None:
    project.write("stage.py", STAGE)
    project.table("pipe", [{"sample": "s1"}])
    stages = [
        {"name": n, "command": f"{PYTHON} stage.py {{out}} {n}", "outputs": [f"{n}.txt"]}
        for n in ("align", "sort", "count")
    ]
    project.run(
        "pipe",
        work={"kind": "stages", "members": "config/pipe.csv", "stages": stages},
        artifacts=[{"path": "count.txt", "check": "nonempty"}],
    )
    project.launch("pipe")


def ran(project: Project) -> dict[str, int]:
    return {p.name[4:]: len(p.read_text()) for p in sorted(project.root.glob("ran-*"))}


def test_a_kill_between_stages_repeats_only_the_stage_that_was_running(project: Project) -> None:
    pipeline(project)
    fifo = project.root / "hold-sort"
    os.mkfifo(fifo)
    runner = Runner(project, "pipe")
    descriptor = wait_for_reader(fifo)
    runner.kill()
    fifo.unlink()
    ok(project.milepost("shard", "pipe", "0001"))
    os.close(descriptor)
    assert ran(project) == {"align": 1, "sort": 2, "count": 1}
    published = project.root / "results/pipe/artifacts/0001/count.txt"
    assert published.read_text() == "align.txt sort.txt"


def test_a_stage_whose_kept_output_is_damaged_runs_again(project: Project) -> None:
    pipeline(project)
    fifo = project.root / "hold-count"
    os.mkfifo(fifo)
    runner = Runner(project, "pipe")
    descriptor = wait_for_reader(fifo)
    runner.process.send_signal(signal.SIGTERM)
    assert runner.end()[0] == 75
    os.close(descriptor)
    fifo.unlink()
    (project.root / "work/pipe/shards/0001/stages/sort/sort.txt").write_text("other bytes")
    told = said(ok(project.milepost("shard", "pipe", "0001")))
    assert "stage sort runs again" in told
    assert ran(project) == {"align": 1, "sort": 2, "count": 2}


WALK = """\
import json, pathlib, sys
import numpy as np
from milepost import Checkpointer

out = pathlib.Path(sys.argv[1])
with Checkpointer.from_env() as ck:
    saved = ck.restore()
    step = 0 if saved is None else saved.step + 1
    while saved is None:  # the first attempt has work without end
        ck.step(step, lambda: ({"x": np.array([step])}, {}))
        if ck.stopping:
            break
        step += 1
    else:
        (out / "walk.json").write_text(json.dumps({"resumed_at": step}))
        ck.finish()
"""


def long_process(project: Project, command: str) -> None:
    project.table("walk", [{"seed": 1}])
    project.run(
        "walk",
        work={"kind": "resumable", "members": "config/walk.csv", "command": command},
        artifacts=[{"path": "walk.json", "check": "json"}],
        checkpoint={"interval_seconds": 0.2},
    )
    project.launch("walk")


def test_a_long_process_is_stopped_at_its_walltime_and_goes_on(project: Project) -> None:
    project.write("walk.py", WALK)
    long_process(project, "python walk.py {out} {seed}")
    done = ok(project.milepost("shard", "walk", "0001", "--walltime", "4"))
    assert "walltime is over; the next attempt goes on from here" in said(done)
    first, second = (project.json(f"work/walk/shards/0001/attempts/{n}.json") for n in (1, 2))
    assert (first["stop"], first["exit_code"]) == ("walltime", 75)
    (result,) = [project.json("results/walk/artifacts/0001/walk.json")]
    assert result["resumed_at"] == second["restored"]["step"] + 1
    assert second["restored"]["tier"] == "scratch"


@pytest.mark.parametrize("kind", ["resumable", "stages"])
def test_what_makes_no_durable_progress_in_a_walltime_fails(
    project: Project, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project.root)
    project.write("wait.sh", "echo x >> tries; cat never\n")
    os.mkfifo(project.root / "never")
    if kind == "resumable":
        long_process(project, "sh wait.sh {seed}")
    else:
        project.table("walk", [{"seed": 1}])
        stage = {"name": "one", "command": "sh wait.sh {seed}", "outputs": ["walk.json"]}
        project.run(
            "walk", work={"kind": "stages", "members": "config/walk.csv", "stages": [stage]}
        )
        project.launch("walk")
    paths = project.paths("walk")
    assert run_shard(paths, "0001", ShardOptions(walltime_s=1.0), lambda text: None) == 11
    assert Path("tries").read_text() == "x\n"
    (row,) = [
        r for r in read_journal(paths.shard("0001").journal).failed.values() if r.event == "task"
    ]
    assert row.data["finding"]["subclass"] == "time_limit"
