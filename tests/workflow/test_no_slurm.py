"""A machine with Slurm's commands and no Slurm that answers: local work goes on as elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers.project import Project, ok, said

COMMANDS = ("squeue", "sacct", "scontrol", "sbatch", "sinfo", "sacctmgr")
DEAD = "#!/bin/sh\necho 'error: Unable to contact slurm controller' >&2\nexit 1\n"


def test_local_work_does_not_need_slurm_to_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in COMMANDS:
        (programs / name).write_text(DEAD)
        (programs / name).chmod(0o755)
    project = Project(tmp_path / "project")
    project.batch("sq", [1, 2])
    project.configure()
    path = f"{programs}:{project.environment()['PATH']}"
    before = project.environment()
    monkeypatch.setattr(Project, "environment", lambda self: before | {"PATH": path})
    done = ok(project.snakemake())
    assert "run sq: CLOSED" in said(done)
    assert "Slurm" not in said(done)
    assert project.executions("sq") == project.squares("sq", [1, 2])
