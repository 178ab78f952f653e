"""The place for a look at a shard: its resources, its environment, and who must be let alone."""

import json
import os
import shlex
import socket
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from click.testing import CliRunner, Result

from helpers.run_folder import RunFolder, at
from milepost.checkpoint.options import options_from_env
from milepost.cli.shell import command
from milepost.clock import utc_now
from milepost.errors import DataError, Refused, SchedulerError
from milepost.slurm.interactive import Allocation, allocation_argv, outside


def folder(root: Path, kind: str = "batch", **changes: object) -> RunFolder:
    found = RunFolder(root, kind=kind).contract(**changes)
    return found.table({"0001": {"a": {"C": "1 2"}}})


def invoke(root: Path, *words: str) -> Result:
    return CliRunner().invoke(command, ["sweep", "0001", "--root", str(root), *words])


def alive(run: RunFolder) -> None:
    me = psutil.Process()
    run.attempt(
        "0001", 1, ended=None, exit_code=None, stop=None, host=socket.gethostname(),
        pid=me.pid, process_start=me.create_time(), started=utc_now(),
    )  # fmt: skip


def test_print_shows_resources_and_environment_without_slurm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = folder(tmp_path)
    monkeypatch.setenv("PATH", "/nowhere")
    result = invoke(tmp_path, "--print")
    assert result.exit_code == 0, result.output
    words = shlex.split(result.stdout.replace("\\\n", ""))
    assert words[0] == "env"
    assert {"MILEPOST_RUN=sweep", "MILEPOST_SHARD=0001", "MILEPOST_TASK=a"} <= set(words)
    assert f"MILEPOST_OUT={run.paths.shard('0001').live / 'out' / 'shell'}" in words
    assert not any(word.startswith(("MILEPOST_TOKEN", "MILEPOST_LEASE")) for word in words)
    assert words[words.index("srun") :] == [
        "srun",
        "--job-name=milepost-sweep-0001",
        "--ntasks=1",
        "--cpus-per-task=2",
        "--mem=1000M",
        "--time=60",
        "--pty",
        "bash",
    ]
    assert not run.paths.shard("0001").live.exists()  # it only shows


def test_options_of_slurm_and_salloc(tmp_path: Path) -> None:
    folder(tmp_path)
    result = invoke(
        tmp_path, "--print", "--salloc", "--program", "zsh", "--", "--time=5", "-p", "gpu"
    )
    words = shlex.split(result.stdout.replace("\\\n", ""))
    assert words[words.index("salloc") :][-6:] == ["--time=5", "-p", "gpu", "srun", "--pty", "zsh"]


def test_where_on_the_cluster_comes_from_the_contract(tmp_path: Path) -> None:
    folder(tmp_path, slurm={"account": "physics", "partition": "gpu", "constraint": "a100|h100"})
    out = invoke(tmp_path, "--print").stdout
    assert "--account=physics" in out and "--partition=gpu" in out
    assert "'--constraint=a100|h100'" in out


def test_gpus_are_asked_for_and_not_named(tmp_path: Path) -> None:
    asked = {"cpus": 4, "mem_mb": 2000, "gpus": 2, "runtime_s": 90}
    folder(tmp_path, resources=asked, resource_class="multi-gpu")
    out = invoke(tmp_path, "--print").stdout
    assert "--gpus=2" in out and "--time=2" in out
    assert "CUDA_VISIBLE_DEVICES" not in out


def test_checkpoints_go_to_a_folder_of_the_shells_own(tmp_path: Path) -> None:
    folder(tmp_path, "resumable", checkpoint={"interval_seconds": 7, "when_busy": "wait"})
    words = shlex.split(invoke(tmp_path, "--print").stdout.replace("\\\n", ""))
    setting = next(word for word in words if word.startswith("MILEPOST_CKPT="))
    options = options_from_env({"MILEPOST_CKPT": setting.partition("=")[2]})
    assert options is not None
    assert (options.interval_s, options.when_busy, options.upload) == (7, "wait", False)
    assert json.loads(setting.partition("=")[2])["folder"].endswith("0001/out/shell/ckpt")
    metrics = next(word for word in words if word.startswith("MILEPOST_METRICS="))
    assert metrics.endswith("0001/out/shell/metrics.prom"), "beside what the shell makes"


def test_refused_while_an_attempt_works_unless_read_only(tmp_path: Path) -> None:
    alive(folder(tmp_path))
    refused = invoke(tmp_path, "--print")
    assert isinstance(refused.exception, Refused)
    assert "attempt 1" in str(refused.exception) and "--read-only" in str(refused.exception)
    allowed = invoke(tmp_path, "--print", "--read-only")
    assert allowed.exit_code == 0
    assert "MILEPOST_RUN=sweep" in allowed.stdout
    assert "MILEPOST_OUT" not in allowed.stdout and "MILEPOST_CKPT" not in allowed.stdout


def test_an_attempt_that_ended_is_no_obstacle(tmp_path: Path) -> None:
    folder(tmp_path).attempt("0001", 3, ended=at(9))
    result = invoke(tmp_path, "--print")
    assert "MILEPOST_ATTEMPT=3" in result.stdout


def test_without_slurm_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    result = invoke(tmp_path)
    assert isinstance(result.exception, SchedulerError)
    assert "no `srun`" in str(result.exception) and "--print" in str(result.exception)


def test_unknown_shard_is_an_error(tmp_path: Path) -> None:
    folder(tmp_path)
    result = CliRunner().invoke(command, ["sweep", "0009", "--root", str(tmp_path), "--print"])
    assert isinstance(result.exception, DataError)


def test_it_becomes_srun_with_the_environment(tmp_path: Path) -> None:
    folder(tmp_path)
    bin_folder = tmp_path / "bin"
    bin_folder.mkdir()
    fake = bin_folder / "srun"
    fake.write_text(
        '#!/bin/bash\nprintf "%s\\n" "$@" "run $MILEPOST_RUN" "job ${SLURM_JOB_ID-none}"\n'
    )
    fake.chmod(0o755)
    env = os.environ | {"PATH": f"{bin_folder}:{os.environ['PATH']}", "SLURM_JOB_ID": "9"}
    result = subprocess.run(
        [sys.executable, "-m", "milepost.cli.main", "shell", "sweep", "0001", "--root", str(tmp_path)],
        env=env, capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    lines = result.stdout.splitlines()
    assert lines[-4:] == ["--pty", "bash", "run sweep", "job none"]
    assert "python fit.py --C '1 2' --out" in result.stderr
    assert "milepost shard sweep 0001" in result.stderr
    assert (tmp_path / "work/sweep/shards/0001/out/shell").is_dir()


def test_words_and_environment_of_an_allocation() -> None:
    ask = Allocation("x", 1, 10, 0, 61.0, qos="high", reservation="r1")
    argv = allocation_argv(ask, "bash")
    assert "--qos=high" in argv and "--reservation=r1" in argv and "--time=2" in argv
    kept = outside({"SLURM_JOB_ID": "1", "SLURM_CONF": "/etc/slurm.conf", "HOME": "/h"})
    assert kept == {"SLURM_CONF": "/etc/slurm.conf", "HOME": "/h"}
