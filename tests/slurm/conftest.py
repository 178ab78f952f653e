"""A real Slurm for the tests in this folder; in CI a Slurm test that cannot run is a failure."""

import json
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from helpers.slurm_cluster import Cluster, in_ci, testbed
from helpers.slurm_project import RUN, Scene, SlurmProject, Stage

UNAVAILABLE = 3  # exit code of scripts/slurm-testbed: this machine cannot or must not carry it


@pytest.fixture(scope="session")
def running_cluster() -> Iterator[None]:
    """Bring the testbed up, and down again if it was not up before."""
    found = json.loads(testbed("status", "--json").stdout)
    was_up = any(daemon["pid"] for daemon in found["daemons"])  # also with one of them away
    if not found["up"]:
        attempt = testbed("up", timeout_s=900.0)
        if attempt.returncode == UNAVAILABLE:
            pytest.skip(attempt.stderr.strip().splitlines()[-1])
        assert attempt.returncode == 0, attempt.stderr
    yield
    if not was_up:
        ended = testbed("down")
        assert ended.returncode == 0, ended.stderr


@pytest.fixture
def cluster(running_cluster: None) -> Iterator[Cluster]:
    """The cluster for one test; jobs that it leaves behind are cancelled."""
    handle = Cluster()
    yield handle
    handle.cancel_submitted()


@pytest.fixture(scope="session")
def prepared(
    running_cluster: None, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, SlurmProject]:
    """One project of each kind, past the gate, to be copied."""
    projects = {}
    for kind in ("resumable", "tasks"):
        project = projects[kind] = SlurmProject(tmp_path_factory.mktemp(f"prepared-{kind}"))
        getattr(project, kind)()
        project.prepare(RUN)
        shutil.rmtree(project.root / "rehearsals")
    return projects


AT_ONCE = 7
"""Scenes at the same time: most of a scene is waiting for Slurm, and the cluster has 16 CPUs."""


@pytest.fixture(scope="session")
def together(
    request: pytest.FixtureRequest,
    prepared: dict[str, SlurmProject],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Callable[[Scene], None]]:
    """Plays the scenes of all modules that are to be run at the same time; waits for one of them.

    A scene of a module with ALONE begins when it is asked for: it disturbs the whole cluster. Those
    of a module with IS_LONG begin first, so that nobody waits for them in the end.
    """

    def run(scene: Scene) -> None:
        with Stage(prepared, tmp_path_factory.mktemp(scene.__name__)) as stage:
            scene(stage)

    scenes = [
        item.function.scene
        for item in request.session.items
        if isinstance(item, pytest.Function) and hasattr(item.function, "scene")
    ]
    scenes.sort(key=lambda scene: not scene.__globals__.get("IS_LONG"))
    with ThreadPoolExecutor(AT_ONCE) as pool:
        futures: dict[Scene, Future[None]] = {
            scene: pool.submit(run, scene) for scene in scenes if not is_alone(scene)
        }

        def play(scene: Scene) -> None:
            if scene in futures:
                futures[scene].result(timeout=900)
            else:
                run(scene)

        yield play
        for future in futures.values():
            future.cancel()


def is_alone(scene: Scene) -> bool:
    return bool(scene.__globals__.get("ALONE"))


@pytest.fixture
def play(together: Callable[[Scene], None]) -> Callable[[Scene], None]:
    """Play one scene and fail as it fails."""
    return together


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Any:
    """In CI turn a skipped Slurm test into a failure: there the testbed has to work."""
    report = yield
    is_skip = report.skipped and not hasattr(report, "wasxfail")
    if is_skip and in_ci() and item.get_closest_marker("slurm"):
        report.outcome = "failed"
        report.longrepr = f"CI=true, and this Slurm test did not run: {skip_reason(report)}"
    return report


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say which Slurm tests did not run, and why."""
    by_reason: dict[str, list[str]] = {}
    for report in terminalreporter.stats.get("skipped", []):
        if "slurm" in report.keywords:
            by_reason.setdefault(skip_reason(report), []).append(report.nodeid)
    for reason, names in by_reason.items():
        terminalreporter.write_line(f"{len(names)} Slurm tests did not run: {reason}")
        for name in names:
            terminalreporter.write_line(f"  {name}")


def skip_reason(report: pytest.TestReport) -> str:
    longrepr = report.longrepr
    text = longrepr[2] if isinstance(longrepr, tuple) else str(longrepr)
    return text.removeprefix("Skipped: ")
