"""Two projects that real Snakemake has driven once; each test works on a copy of its own."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from helpers.project import REPOSITORY, Project, ok, said

NUMBERS = [1, 2, 3, 4, 5, 6]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    folder = Path(__file__).parent
    for item in items:
        if item.path.is_relative_to(folder):
            item.add_marker(pytest.mark.workflow)


@pytest.fixture(scope="session")
def finished_once(
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[Project, subprocess.CompletedProcess[str]]:
    """A run of six tasks in three shards, done and closed, and what Snakemake said."""
    project = Project(tmp_path_factory.mktemp("finished"))
    project.batch("sq", NUMBERS)
    return project, ok(project.snakemake())


@pytest.fixture(scope="session")
def troubled_once(
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[Project, subprocess.CompletedProcess[str]]:
    """The same run; task 3 fails and task 5 exits 0 but leaves a truncated artifact.

    Driven with the local profile.
    """
    project = Project(tmp_path_factory.mktemp("troubled"))
    project.batch("sq", NUMBERS)
    project.flag("broken/3")
    project.flag("truncated/5")
    done = project.snakemake("--profile", str(REPOSITORY / "profiles" / "local"), cores=0)
    assert done.returncode != 0, said(done)
    return project, done


@pytest.fixture
def finished(finished_once: tuple[Project, object], tmp_path: Path) -> Project:
    return finished_once[0].copy_to(tmp_path)


@pytest.fixture
def troubled(troubled_once: tuple[Project, object], tmp_path: Path) -> Project:
    return troubled_once[0].copy_to(tmp_path)


@pytest.fixture
def mended(troubled: Project) -> Project:
    """The troubled run after its remedy: what was not done would succeed now."""
    shutil.rmtree(troubled.root / "broken")
    shutil.rmtree(troubled.root / "truncated")
    return troubled
