"""The pool of processes: one per task, no shell in between, and each says how it ended."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from milepost.config.command import CommandTemplate
from milepost.config.spec import Resources
from milepost.errors import ConfigError
from milepost.model import Task
from milepost.runner.hardware import slot_environments
from milepost.runner.job import Completion, Job
from milepost.runner.processes import TAIL_BYTES, ProcessPool
from milepost.runner.signals import SignalLoop

Done = dict[str, Completion]


@pytest.fixture
def loop() -> Iterator[SignalLoop]:
    with SignalLoop() as loop:
        yield loop


def job(name: str, /, **params: str) -> Job:
    return Job(Task(name, params, 2), None)


def make_pool(
    folder: Path, command: str, slots: Sequence[dict[str, str]] = ({},), stdout: bool = False
) -> ProcessPool:
    template = CommandTemplate.parse(command)
    return ProcessPool(
        lambda job: (template.argv(job.task.params), {"MILEPOST_TASK": job.task.key}),
        slots,
        lambda slot: folder / f"{slot}.log",
        separate_stdout=stdout,
    )


def run_all(pool: ProcessPool, loop: SignalLoop, jobs: Sequence[Job]) -> Done:
    """Run jobs to their end; the wait ends with each child, not with a time."""
    todo, ended = list(jobs), []
    try:
        while todo or pool.in_flight():
            while todo and pool.free():
                pool.start(todo.pop(0))
            loop.wait(30)
            ended += pool.reap()
    finally:
        pool.close()
    return {completion.job.task.key: completion for completion in ended}


def test_a_task_is_a_child_of_the_runner_with_no_shell_between(
    tmp_path: Path, loop: SignalLoop
) -> None:
    pool = make_pool(tmp_path, "python3 -c 'import os; print(os.getppid())'", stdout=True)
    done = run_all(pool, loop, [job("a")])
    assert done["a"].last_line == str(os.getpid())


def test_exit_codes_and_signals_are_told_apart(tmp_path: Path, loop: SignalLoop) -> None:
    pool = make_pool(tmp_path, "sh {how}")
    for name, text in {"ok": "exit 0", "three": "exit 3", "killed": "kill -9 $$"}.items():
        (tmp_path / name).write_text(text)
    jobs = [job(name, how=str(tmp_path / name)) for name in ("ok", "three", "killed")]
    done = run_all(pool, loop, jobs)
    assert {name: c.exit_code for name, c in done.items()} == {"ok": 0, "three": 3, "killed": -9}
    assert all(c.seconds > 0 and c.max_rss_bytes for c in done.values())


def test_the_output_of_a_failed_task_is_its_own_and_no_longer_than_the_tail(
    tmp_path: Path, loop: SignalLoop
) -> None:
    script = tmp_path / "print.py"
    script.write_text(
        "import sys\nname, count, code = sys.argv[1:]\n"
        "sys.stdout.write(name * int(count) + '\\n')\nsys.exit(int(code))\n"
    )
    pool = make_pool(tmp_path, f"python3 -S {script} {{name}} {{count}} {{code}}")
    jobs = [
        job("quiet", name="q", count="5", code="0"),
        job("loud", name="l", count=str(2 * TAIL_BYTES), code="1"),
        job("last", name="z", count="3", code="2"),
    ]
    done = run_all(pool, loop, jobs)
    assert done["quiet"].output == b""
    assert done["last"].output == b"zzz\n"
    assert len(done["loud"].output) == TAIL_BYTES and set(done["loud"].output) == set(b"l\n")
    log = (tmp_path / "0.log").read_text()
    assert "qqqqq\n== task quiet exit 0\n" in log and log.endswith("zzz\n== task last exit 2\n")


def test_the_last_line_of_stdout_is_kept_apart_from_stderr(
    tmp_path: Path, loop: SignalLoop
) -> None:
    text = 'echo first; echo noise >&2; printf "%s\\n" "$1"; echo more >&2'
    (tmp_path / "say.sh").write_text(text)
    pool = make_pool(tmp_path, f"sh {tmp_path}/say.sh {{x}}", stdout=True)
    done = run_all(pool, loop, [job("a", x='{"y": 1}'), job("b", x='{"y": 2}')])
    assert done["a"].last_line == '{"y": 1}'
    assert done["b"].last_line == '{"y": 2}'
    assert "noise" in (tmp_path / "0.log").read_text()


def test_a_missing_program_is_named_and_the_slot_stays_free(
    tmp_path: Path, loop: SignalLoop
) -> None:
    pool = make_pool(tmp_path, "no-such-program {x}")
    with pytest.raises(ConfigError, match="no-such-program") as caught:
        pool.start(job("a", x="1"))
    assert caught.value.fix
    assert pool.in_flight() == 0
    pool.close()


def test_a_task_has_default_signals_and_a_group_of_its_own(
    tmp_path: Path, loop: SignalLoop
) -> None:
    code = "import os, signal; print(os.getpgrp() == os.getpid(), signal.getsignal(15).name)"
    pool = make_pool(tmp_path, f"python3 -c '{code}'", stdout=True)
    assert run_all(pool, loop, [job("a")])["a"].last_line == "True SIG_DFL"


def test_ending_a_task_ends_what_it_started(tmp_path: Path, loop: SignalLoop) -> None:
    os.mkfifo(tmp_path / "alive")
    # the grandchild holds the fifo open for as long as it lives
    (tmp_path / "tree.sh").write_text("sleep 600 > alive &\nwait\n")
    pool = make_pool(tmp_path, f"sh -c 'cd {tmp_path} && sh tree.sh'")
    pool.start(job("a"))
    with (tmp_path / "alive").open("rb") as stream:
        pool.kill(signal.SIGKILL)
        assert stream.read() == b""  # ends when no writer is left
    pool.close()


def test_gpu_slots_see_one_device_each(
    tmp_path: Path, loop: SignalLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,7")
    slots = slot_environments(Resources(cpus=4, gpus=2), {})
    assert [slot["CUDA_VISIBLE_DEVICES"] for slot in slots] == ["5", "7"]
    assert all(slot["OMP_NUM_THREADS"] == "2" for slot in slots)
    # both must be at work at once to get past the fifo: they hold different devices
    os.mkfifo(tmp_path / "meet")
    (tmp_path / "meet.sh").write_text(
        'case $1 in a) echo go > "$2";; b) read word < "$2";; esac\necho $CUDA_VISIBLE_DEVICES\n'
    )
    pool = make_pool(tmp_path, f"sh {tmp_path}/meet.sh {{n}} {tmp_path}/meet", slots, stdout=True)
    done = run_all(pool, loop, [job("a", n="a"), job("b", n="b")])
    assert {done["a"].last_line, done["b"].last_line} == {"5", "7"}


@pytest.mark.parametrize(
    ("given", "devices"),
    [("", ["0", "1", "2"]), ("3", ["3", "0", "1"]), ("GPU-a,GPU-b,GPU-c,GPU-d", None)],
)
def test_devices_are_those_of_the_allocation_or_counted(
    monkeypatch: pytest.MonkeyPatch, given: str, devices: list[str] | None
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", given)
    slots = slot_environments(Resources(cpus=3, gpus=3), {})
    found = [slot["CUDA_VISIBLE_DEVICES"] for slot in slots]
    assert found == (devices or ["GPU-a", "GPU-b", "GPU-c"])


def test_threads_are_the_share_of_a_slot_unless_the_user_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    slots = slot_environments(Resources(cpus=3), {"MKL_NUM_THREADS": "8"})
    assert len(slots) == 3
    assert {(s["OMP_NUM_THREADS"], s["MKL_NUM_THREADS"]) for s in slots} == {("1", "8")}
