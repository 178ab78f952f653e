"""Batch shards: what runs, what is retried, what is recorded, and that it is bounded."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from helpers.project import PYTHON, Project
from milepost.config.tasks import task_key
from milepost.errors import ConfigError
from milepost.journal import read_journal, read_rows
from milepost.paths import RunPaths
from milepost.runner.batch import Batch
from milepost.runner.shard import ShardOptions, run_shard

AWKWARD = [
    "plain",
    "two words",
    " spaces around ",
    "it's",
    'say "hi"',
    "$HOME `id` $(id)",
    "a;b|c&d>e<f",
    "*?[a-z]~",
    "back\\slash",
    "line\nbreak",
    "-rf",
    "",
    "ünï → 漢",
    "{out}{n}%s",
]

ECHO = """\
import json, pathlib, sys
out, *words = sys.argv[1:]
(pathlib.Path(out) / "score.json").write_text(json.dumps({"words": words}))
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    for name in ("SLURM_JOB_ID", "CUDA_VISIBLE_DEVICES"):
        monkeypatch.delenv(name, raising=False)
    return Project(tmp_path)


class Says(list[str]):
    """What the runner said."""

    def __call__(self, text: str) -> None:
        self.append(text)

    @property
    def text(self) -> str:
        return "\n".join(self)


def run(paths: RunPaths, say: Callable[[str], None] | None = None, **options: object) -> int:
    options_ = ShardOptions(**options)  # type: ignore[arg-type]
    return run_shard(paths, "0001", options_, Says() if say is None else say)


def key(number: int) -> str:
    return task_key({"n": str(number)})


def command(text: str, run: str = "sq", **more: object) -> dict[str, object]:
    return {"kind": "batch", "tasks": f"config/{run}.csv", "command": text, **more}


def cpus(count: int) -> dict[str, int]:
    return {"cpus": count, "mem_mb": 100, "gpus": 0, "runtime_s": 600}


@pytest.mark.parametrize("shell", [False, True])
def test_values_arrive_as_they_are_written(project: Project, shell: bool) -> None:
    project.write("echo.py", ECHO)
    project.batch("awkward", [1])
    project.table("awkward", [{"n": n, "value": text} for n, text in enumerate(AWKWARD)])
    text = f"{PYTHON} echo.py {{out}} {{value}} x={{value}}" + (" && true" if shell else "")
    project.run("awkward", work=command(text, "awkward"))
    paths = project.launch("awkward")
    assert run(paths) == 0
    for n, value in enumerate(AWKWARD):
        name = task_key({"n": str(n), "value": value})
        found = project.json(f"results/awkward/artifacts/{name}/score.json")
        assert found == {"words": [value, f"x={value}"]}


def test_as_many_tasks_run_at_a_time_as_there_are_cpus(project: Project) -> None:
    # each pair meets at a fifo, so two run at once; a third would find no seat to sit on
    for n in (1, 3, 5):
        os.mkfifo(f"meet-{n}")
    project.write(
        "meet.py",
        "import os, signal, sys\nsignal.alarm(60)\nn = int(sys.argv[1])\n"
        "for seat in ('seat-1', 'seat-2'):\n"
        "    try:\n        os.close(os.open(seat, os.O_CREAT | os.O_EXCL)); break\n"
        "    except FileExistsError:\n        pass\n"
        "else:\n    sys.exit('a third task runs')\n"
        "if n % 2:\n    open(f'meet-{n}', 'w').close()\n"
        "else:\n    open(f'meet-{n - 1}').close()\n"
        "os.unlink(seat)\n",
    )
    project.batch("meet", [1, 2, 3, 4, 5, 6], resources=cpus(2), artifacts=[])
    project.run("meet", work=command(f"{PYTHON} meet.py {{n}}", "meet"))
    assert run(project.launch("meet")) == 0


def test_a_task_that_fails_does_not_stop_the_others(project: Project) -> None:
    project.batch("sq", [1, 2, 3, 4])
    project.flag("broken/2")
    paths, says = project.launch("sq"), Says()
    assert run(paths, says) == 11
    state = read_journal(paths.shard("0001").journal)
    assert set(state.done) == {key(1), key(3), key(4)}
    data = state.failed[key(2)].data
    assert data["exit"] == 1
    assert "n=2 is out of its domain" in data["log"][-1]
    assert data["finding"]["class"] == "runtime"
    assert "3/4 tasks done, 1 failed" in says.text
    assert not paths.shard("0001").marker.exists()


def test_the_last_line_of_stdout_is_a_result_too(project: Project) -> None:
    project.batch("out", [2, 3], artifacts=[])
    project.write("square.sh", 'echo noise\necho "{\\"square\\": $(($1 * $1))}"\n')
    project.run("out", work=command("sh square.sh {n}", "out", result={"stdout": "json"}))
    paths = project.launch("out")
    assert run(paths) == 0
    done = read_journal(paths.shard("0001").journal).done
    assert {k: row.data["result"] for k, row in done.items()} == {
        key(2): {"square": 4},
        key(3): {"square": 9},
    }


@pytest.mark.parametrize(("limit", "times", "code"), [(0, 1, 12), (1, 2, 0), (5, 2, 0)])
def test_what_the_same_again_may_mend_is_retried_within_the_limit(
    project: Project, limit: int, times: int, code: int
) -> None:
    # its artifact is truncated the first time only
    project.write(
        "once.sh",
        'echo x >> tries; if [ $(wc -l < tries) = 1 ]; then echo "{" > $1/score.json; '
        'echo > $1/left-behind; else test ! -e $1/left-behind; echo "{}" > $1/score.json; fi\n',
    )
    project.batch("sq", [1], retry={"limit": limit})
    project.run("sq", work=command("sh -e once.sh {out} {n}"))
    paths = project.launch("sq")
    assert run(paths) == code
    assert len(Path("tries").read_text().splitlines()) == times
    rows = [r.status for r in read_rows(paths.shard("0001").journal) if r.event == "task"]
    assert rows == ["failed"] if code else rows == ["failed", "done"]


def test_the_limit_of_retries_holds_over_all_attempts(project: Project) -> None:
    project.batch("sq", [1], retry={"limit": 2})
    project.flag("truncated/1")
    paths = project.launch("sq")
    assert run(paths) == 12
    assert project.executions("sq") == {key(1): 3}
    assert run(paths, is_automatic=True) == 12
    assert project.executions("sq") == {key(1): 3}
    assert run(paths, is_automatic=False) == 12  # a person asked: one more try
    assert project.executions("sq") == {key(1): 4}


def test_an_automatic_retry_leaves_alone_what_it_cannot_mend(project: Project) -> None:
    project.batch("sq", [1, 2])
    project.flag("broken/2")
    paths = project.launch("sq")
    assert run(paths) == 11
    assert run(paths, is_automatic=True) == 11
    assert project.executions("sq") == project.squares("sq", [1, 2])
    Path("broken/2").unlink()
    assert run(paths) == 0
    assert project.executions("sq") == {key(1): 1, key(2): 2}


def test_a_finished_shard_runs_nothing(project: Project) -> None:
    project.batch("sq", [1, 2])
    paths = project.launch("sq")
    assert run(paths) == 0
    marker = paths.shard("0001").marker.read_bytes()
    assert run(paths) == 0
    assert project.executions("sq") == project.squares("sq", [1, 2])
    assert paths.shard("0001").marker.read_bytes() == marker


def test_a_missing_program_is_one_clear_error(project: Project) -> None:
    project.batch("sq", [1, 2])
    project.run("sq", work=command("no-such-program {out} {n}"))
    paths = project.launch("sq")
    with pytest.raises(ConfigError, match="no-such-program"):
        run(paths)
    assert project.json("work/sq/shards/0001/attempts/1.json")["stop"] == "error"


@pytest.mark.parametrize(
    ("first_line", "value", "says"),
    [
        ("", "1", "#!/bin/sh"),
        ("#!/no/such/interpreter", "1", "interpreter"),
        ("#!/bin/sh", "ü" * 100_000, "into a file"),
    ],
)
def test_what_the_kernel_does_not_start_is_one_clear_error(
    project: Project, first_line: str, value: str, says: str
) -> None:
    project.write("work.sh", f"{first_line}\ntrue\n").chmod(0o755)
    project.batch("sq", [1], artifacts=[])
    project.table("sq", [{"n": value}])
    project.run("sq", work=command("./work.sh {n}"))
    with pytest.raises(ConfigError, match="cannot be started") as caught:
        run(project.launch("sq"))
    assert says in str(caught.value.fix)


def test_a_callable_gets_its_fields_and_its_folder_and_returns_its_result(
    project: Project,
) -> None:
    project.write(
        "own_jobs.py",
        "import pathlib\n"
        "def square(n, out):\n"
        "    (pathlib.Path(out) / 'note.txt').write_text(n)\n"
        "    if n == '3':\n        raise ValueError('n=3 is out of its domain')\n"
        "    return {'square': int(n) ** 2}\n",
    )
    project.batch("sq", [1, 2, 3, 4], artifacts=[{"path": "note.txt", "check": "nonempty"}])
    work = {"kind": "batch", "tasks": "config/sq.csv", "function": "own_jobs:square"}
    project.run("sq", work=work)
    paths = project.launch("sq")
    assert run(paths) == 11
    state = read_journal(paths.shard("0001").journal)
    assert {k: row.data["result"] for k, row in state.done.items()} == {
        key(n): {"square": n * n} for n in (1, 2, 4)
    }
    assert (paths.artifact(key(4)) / "note.txt").read_text() == "4"
    assert "ValueError: n=3" in state.failed[key(3)].data["log"][-1]


# the end of the time


def test_after_its_walltime_a_shard_goes_on_in_its_next_attempt(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.batch("sq", [1, 2, 3])
    paths, says = project.launch("sq"), Says()
    # no time at all, and the clock is looked at when a task ends: one task an attempt
    monkeypatch.setattr(Batch, "_patience_s", lambda self: 60.0)
    assert run(paths, says, walltime_s=1e-6) == 0
    assert project.executions("sq") == project.squares("sq", [1, 2, 3])
    assert "walltime is over; the next attempt goes on from here" in says
    first = project.json("work/sq/shards/0001/attempts/1.json")
    assert (first["stop"], first["exit_code"], first["counts"]["done"]) == ("walltime", 75, 1)


def test_the_attempt_after_a_walltime_does_not_repeat_what_failed(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.batch("sq", [1, 2, 3])
    project.flag("broken/1")
    monkeypatch.setattr(Batch, "_patience_s", lambda self: 60.0)
    assert run(project.launch("sq"), walltime_s=1e-6) == 11
    assert project.executions("sq") == project.squares("sq", [1, 2, 3])


def test_a_task_that_never_fits_into_the_walltime_is_not_tried_for_ever(project: Project) -> None:
    os.mkfifo("never")
    project.write("wait.sh", "echo x >> tries; test $1 = 2 && cat never; exit 0\n")
    project.batch("sq", [1, 2], artifacts=[])
    project.run("sq", work=command("sh wait.sh {n}"))
    paths, says = project.launch("sq"), Says()
    # attempt 1 does task 1 and is ended in task 2; attempt 2 gets nowhere
    assert run(paths, says, walltime_s=0.9) == 11
    assert len(Path("tries").read_text().splitlines()) <= 3
    state = read_journal(paths.shard("0001").journal)
    assert set(state.done) == {key(1)}
    finding = state.failed[key(2)].data["finding"]
    assert (finding["subclass"], finding["action"]) == ("time_limit", "longer_walltime")
    assert run(paths, is_automatic=True) == 11  # more of the same is no remedy
    os.unlink("never")
    Path("never").write_text("")
    assert run(paths) == 0
