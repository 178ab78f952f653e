"""The batch script of docs/sbatch.md on a real Slurm, word for word; only the program is slowed."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import pytest

from helpers.slurm_cluster import Cluster
from milepost.checkpoint.store import CheckpointStore
from milepost.checkpoint.verify import verify_generation

pytestmark = pytest.mark.slurm
ROOT = Path(__file__).resolve().parents[2]
STEPS = 400
SLOWER = {
    "np.zeros(1_000_000)": "np.zeros(1000)",
    "100_000": str(STEPS),
    "        x += 1\n": "        x += 1\n        time.sleep(0.03)\n",
    "import sys\n": "import sys\nimport time\n",
    "interval_s=600": "interval_s=600, rotation=2",
}


def block(language: str) -> str:
    page = (ROOT / "docs" / "sbatch.md").read_text(encoding="utf-8")
    found = re.search(rf"^```{language}\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[1]


class BatchJob:
    """The documented job in a folder of its own."""

    def __init__(self, cluster: Cluster, folder: Path, *options: str) -> None:
        program = block("python")
        for old, new in SLOWER.items():
            assert program.count(old) == 1, f"docs/sbatch.md does not say {old!r} once"
            program = program.replace(old, new)
        (folder / "solver.py").write_text(program)
        self.cluster, self.folder = cluster, folder
        words = ("--mem=100", "--time=10", f"--export=ALL,MILEPOST={ROOT}", *options)
        self.id = cluster.submit(folder, block("bash"), *words)
        self.store = CheckpointStore(folder / "checkpoints")

    def output(self) -> str:
        path = self.folder / f"{self.id}.out"
        return path.read_text() if path.exists() else ""

    def wait_at_work(self, restarts: int) -> None:
        """Wait until the program of this attempt takes steps, which a forced checkpoint shows."""

        def is_running() -> bool:
            fields = self.cluster.fields(self.id)
            return fields.get("JobState") == "RUNNING" and fields.get("Restarts") == str(restarts)

        print(self.output())
        self.cluster.wait(f"attempt {restarts} of {self.id} runs", is_running, 60)
        self.store.folder.mkdir(exist_ok=True)
        force = [str(ROOT / "scripts" / "force_ckpt"), str(self.store.folder), "--timeout", "40"]
        self.cluster.run(*force, timeout_s=60)

    def assert_newest_is_whole(self) -> int:
        newest = self.store.generations()[0]
        assert not verify_generation(self.store, newest)
        return self.store.manifest(newest).step

    def finish(self) -> None:
        assert self.cluster.wait_end(self.id, patience_s=90) == "COMPLETED", self.output()
        found = re.findall(r"^(\d+) to (\d+)$", self.output(), re.MULTILINE)
        assert found[-1][1] == str(STEPS - 1), self.output()
        assert int(found[-1][0]) > 0, "it began where the attempt before had stopped"
        for (_, last), (first, _) in itertools.pairwise(found):
            assert int(first) == int(last) + 1, "no step was lost and none done twice"


def test_the_walltime_is_nearly_over(cluster: Cluster, tmp_path: Path) -> None:
    """USR1 to the script alone, as --signal=B:USR1 sends it; then once more."""
    job = BatchJob(cluster, tmp_path)
    for attempt in range(2):
        job.wait_at_work(attempt)
        cluster.run("scancel", "--batch", "--signal=USR1", job.id)
    job.wait_at_work(2)
    job.finish()
    assert job.output().count("saved its state; the job waits again") == 2
    assert cluster.fields(job.id)["Restarts"] == "2"


def test_preempted(cluster: Cluster, tmp_path: Path) -> None:
    """In a partition where Slurm would cancel it: the script puts it back."""
    job = BatchJob(cluster, tmp_path, "--qos=cancellable", "--partition=cancel", "--mem=3200")
    job.wait_at_work(0)
    node = cluster.fields(job.id)["NodeList"]
    cluster.submit(tmp_path, "true", "--qos=high", "-w", node, "--mem=3000", "--time=5")
    job.wait_at_work(1)
    job.finish()


def test_cancelled_by_somebody(cluster: Cluster, tmp_path: Path) -> None:
    job = BatchJob(cluster, tmp_path)
    job.wait_at_work(0)
    before = job.assert_newest_is_whole()
    cluster.run("scancel", job.id)
    assert cluster.wait_end(job.id, patience_s=60) in ("CANCELLED", "FAILED")
    assert job.assert_newest_is_whole() > before, "what was done up to then is kept"
    assert cluster.fields(job.id)["Restarts"] == "0"


def test_a_program_that_fails_is_not_tried_again(cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "checkpoints").write_text("a file is in the way")
    job = BatchJob(cluster, tmp_path)
    assert cluster.wait_end(job.id, patience_s=60) == "FAILED"
    assert cluster.fields(job.id)["Restarts"] == "0"
