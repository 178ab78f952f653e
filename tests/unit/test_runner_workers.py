"""The pool of persistent workers: whatever a callable does, it fails its own task only."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from milepost.model import Task
from milepost.runner.job import Completion, Job
from milepost.runner.signals import SignalLoop
from milepost.runner.workers import WorkerPool

MODULE = """\
import ctypes, json, os, signal, subprocess, sys

def work(n, how="square", out=None):
    n = int(n)
    if how == "square":
        return {"square": n * n, "pid": os.getpid()}
    if how == "raise":
        raise ValueError(f"n={n} is out of its domain")
    if how == "_exit":
        os._exit(7)
    if how == "exit":
        sys.exit(3)
    if how == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "segfault":
        ctypes.string_at(0)
    if how == "noise":
        print(json.dumps({"key": "k", "exit": 1, "seconds": 0}), flush=True)
        os.write(1, b"{not json}\\n")
        subprocess.run(["echo", "from a child"], check=True)
        return {"square": n * n}
    if how == "number":
        return n
    if how == "strange":
        return {"square": {1, 2}}
    if how == "environment":
        return {name: os.environ[name] for name in ("MILEPOST_TASK", "SLOT")}
"""


@pytest.fixture(autouse=True)
def _module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "worker_jobs.py").write_text(MODULE)


@pytest.fixture
def loop() -> Iterator[SignalLoop]:
    with SignalLoop() as loop:
        yield loop


def make_pool(loop: SignalLoop, slots: int = 1, function: str = "worker_jobs:work") -> WorkerPool:
    environments = [{"SLOT": str(n)} for n in range(slots)]
    return WorkerPool(function, environments, lambda n: Path(f"{n}.log"), loop)


def job(key: str, /, n: int = 3, **params: str) -> Job:
    return Job(Task(key, {"n": str(n), **params}, 2), None)


def run_all(pool: WorkerPool, loop: SignalLoop, jobs: Sequence[Job]) -> dict[str, Completion]:
    """Run jobs to their end, those too that a dead worker gave back; each ends once."""
    todo, ended = list(jobs), []
    try:
        while todo or pool.in_flight():
            while todo and pool.free():
                pool.start(todo.pop(0))
            loop.wait(30)
            todo = pool.give_back() + todo
            ended += pool.reap()
    finally:
        pool.close()
    keys = [completion.job.task.key for completion in ended]
    assert len(keys) == len(set(keys))
    return {completion.job.task.key: completion for completion in ended}


def test_many_short_tasks_share_one_import(loop: SignalLoop) -> None:
    done = run_all(make_pool(loop), loop, [job(f"k{n}", n) for n in range(200)])
    assert [done[f"k{n}"].returned["square"] for n in range(200)] == [n * n for n in range(200)]  # type: ignore[index]
    assert len({c.returned["pid"] for c in done.values() if c.returned}) == 1
    assert all(c.exit_code == 0 for c in done.values())


@pytest.mark.parametrize(
    ("how", "code", "says"),
    [
        ("raise", 1, "ValueError: n=3 is out of its domain"),
        ("_exit", 7, ""),
        ("exit", 3, "SystemExit: 3"),
        ("killed", -signal.SIGKILL, ""),
        ("segfault", -signal.SIGSEGV, ""),
        ("strange", 1, "not JSON serializable"),
    ],
)
def test_a_bad_end_fails_its_own_task_only(
    loop: SignalLoop, how: str, code: int, says: str
) -> None:
    # short tasks first, so that several are handed over ahead when the worker ends
    jobs = [job(f"a{n}", n) for n in range(40)]
    jobs += [job("bad", how=how), *(job(f"b{n}", n) for n in range(40))]
    done = run_all(make_pool(loop), loop, jobs)
    bad = done.pop("bad")
    assert bad.exit_code == code
    assert says.encode() in bad.output
    assert len(done) == 80
    assert all(c.exit_code == 0 and c.returned for c in done.values())


def test_a_traceback_is_evidence_and_stands_in_the_log(loop: SignalLoop) -> None:
    done = run_all(make_pool(loop), loop, [job("bad", how="raise")])
    trace = done["bad"].output.decode()
    assert trace.startswith("Traceback") and "worker_jobs.py" in trace
    assert trace in Path("0.log").read_text()


def test_what_a_callable_prints_is_no_answer(loop: SignalLoop) -> None:
    jobs = [job("k", 4, how="noise"), job("l", 5, how="noise")]
    done = run_all(make_pool(loop), loop, jobs)
    assert {key: c.returned for key, c in done.items()} == {
        "k": {"square": 16},
        "l": {"square": 25},
    }
    assert Path("0.log").read_text().count("from a child") == 2


def test_what_is_no_mapping_is_no_result(loop: SignalLoop) -> None:
    done = run_all(make_pool(loop), loop, [job("k", how="number")])
    assert (done["k"].exit_code, done["k"].returned) == (0, None)


def test_each_worker_knows_its_task_and_has_the_variables_of_its_slot(loop: SignalLoop) -> None:
    jobs = [job(f"k{n}", n, how="environment") for n in range(6)]
    done = run_all(make_pool(loop, slots=2), loop, jobs)
    assert all(c.returned["MILEPOST_TASK"] == key for key, c in done.items() if c.returned)
    assert {c.returned["SLOT"] for c in done.values() if c.returned} == {"0", "1"}


@pytest.mark.parametrize("function", ["no_such_module:work", "worker_jobs:no_such_name"])
def test_a_callable_that_is_not_there_fails_with_the_reason(
    loop: SignalLoop, function: str
) -> None:
    done = run_all(make_pool(loop, function=function), loop, [job("a"), job("b")])
    assert {c.exit_code for c in done.values()} == {1}
    assert all(b"no_such" in c.output for c in done.values())


def test_workers_end_with_their_pool(loop: SignalLoop) -> None:
    pool = make_pool(loop)
    pool.start(job("k"))
    while not (ended := pool.reap()):
        loop.wait(30)
    assert ended[0].returned is not None
    pid = ended[0].returned["pid"]
    pool.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
