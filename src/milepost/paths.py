"""Every file name of a run, in one place.

`results/<run>` holds finished outputs, `work/<run>` live state on the shared file system. Both
lie below the folder in which the workflow runs.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class ShardPaths:
    """The live state and the marker of one shard."""

    live: Path
    marker: Path

    @property
    def journal(self) -> Path:
        return self.live / "journal.csv"

    @property
    def lease(self) -> Path:
        return self.live / "lease.json"

    @property
    def attempts(self) -> Path:
        return self.live / "attempts"

    def attempt(self, number: int) -> Path:
        return self.attempts / f"{number}.json"

    def log(self, number: int) -> Path:
        return self.attempts / f"{number}.log"

    def out(self, number: int) -> Path:
        """Private output folder of an attempt; what verifies leaves it by a rename."""
        return self.live / "out" / str(number)

    @property
    def upload(self) -> Path:
        return self.marker.parent / "upload.json"


@dataclass(frozen=True, slots=True)
class RunPaths:
    """The folders of one run, below `root` (the folder of the workflow; `.` by default)."""

    run: str
    root: Path = Path(".")

    @property
    def results(self) -> Path:
        return self.root / "results" / self.run

    @property
    def work(self) -> Path:
        return self.root / "work" / self.run

    @property
    def contract(self) -> Path:
        """The published contract; the frozen one is `frozen_contract`."""
        return self.results / "contract.json"

    @property
    def frozen_contract(self) -> Path:
        return self.work / "contract.json"

    @property
    def amendments(self) -> Path:
        """One JSON line for each accepted change after launch."""
        return self.work / "amendments.jsonl"

    @property
    def smoke(self) -> Path:
        return self.results / "smoke" / "smoke.json"

    @property
    def smoke_work(self) -> Path:
        return self.work / "smoke"

    def smoke_place(self, digest: str) -> Path:
        """Where the smoke test of this contract leaves its slices."""
        return self.smoke_work / digest.partition(":")[2][:16]

    @property
    def plan(self) -> Path:
        return self.results / "plan" / "plan.json"

    @property
    def plan_report(self) -> Path:
        return self.results / "plan" / "report.html"

    @property
    def submission(self) -> Path:
        return self.results / "submission.json"

    @property
    def frozen_submission(self) -> Path:
        return self.work / "submission.json"

    @property
    def shards(self) -> Path:
        """The published shard table; the frozen one is `frozen_shards`."""
        return self.results / "shards.csv"

    @property
    def frozen_shards(self) -> Path:
        return self.work / "shards.csv"

    def shard(self, name: str) -> ShardPaths:
        return ShardPaths(
            self.work / "shards" / name, self.results / "shards" / name / "journal.csv"
        )

    def metrics(self, shard: str) -> Path:
        """What the saves and uploads of a shard tell, in the text format of Prometheus."""
        return self.work / "metrics" / f"{shard}.prom"

    @property
    def artifacts(self) -> Path:
        return self.results / "artifacts"

    def artifact(self, name: str) -> Path:
        """Published folder of a task (by key), or of a shard of another kind (by name)."""
        return self.artifacts / name

    @property
    def reconcile(self) -> Path:
        return self.results / "reconcile.csv"

    @property
    def table(self) -> Path:
        """The merged results of all tasks."""
        return self.results / "results.csv"

    @property
    def closeout(self) -> Path:
        return self.results / "closeout"
