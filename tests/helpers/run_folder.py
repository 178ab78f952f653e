"""Build the folder of a run as its runner would have left it, for tests of the evidence."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from milepost.config.freeze import freeze
from milepost.config.load import parse_config
from milepost.journal import Row, encode_row, write_marker
from milepost.lease import boot_id
from milepost.paths import RunPaths

T0 = "2026-03-01T08:%02d:%02d.000Z"
FINDING = {
    "class": "runtime",
    "subclass": "python_exception",
    "action": "fix_no_retry",
    "evidence": ["ValueError: gamma must be positive"],
    "confidence": 0.9,
}


def at(seconds: float) -> str:
    """A time of day, `seconds` after the run began."""
    return T0 % divmod(int(seconds), 60)


def sha(data: bytes) -> str:
    return "sha256:" + hashlib.sha256(data).hexdigest()


class RunFolder:
    """Writes only what a test asks for; every method may be left out."""

    def __init__(self, root: Path, run: str = "sweep", kind: str = "batch") -> None:
        self.paths = RunPaths(run, root)
        self.run, self.kind = run, kind
        self.rows: dict[str, list[Row]] = {}
        self.digest = "sha256:" + "c" * 64

    def contract(self, **changes: Any) -> RunFolder:
        """Freeze a contract over real input files; `changes` replace keys of the run's block."""
        root = self.paths.root
        self._bytes(root / "config" / "tasks.csv", b"C\n1\n2\n")
        self._bytes(root / "fit.py", b"print('fits')\n")
        batch = self.kind == "batch"
        work: dict[str, Any] = {
            "kind": self.kind,
            ("tasks" if batch else "members"): "config/tasks.csv",
        }
        work["command"] = "python fit.py --C {C} --out {out}"
        work["result"] = {"file": "score.json", "best": {"metric": "accuracy", "mode": "max"}}
        raw: dict[str, Any] = {
            "purpose": "Which setting separates the digits best?",
            "software": ["scikit-learn"],
            "workload": "evaluation",
            "resource_class": "cpu",
            "resources": {"cpus": 2, "mem_mb": 1000, "gpus": 0, "runtime_s": 3600},
            "work": work,
            "artifacts": [{"path": "score.json", "check": "json"}],
        }
        config = parse_config({"runs": {self.run: raw | changes}}, root=root)
        frozen = freeze(config.runs[self.run], self.paths, datetime(2026, 3, 1, 8, tzinfo=UTC))
        self.digest = frozen.digest
        return self

    def amend(self, **changes: Any) -> RunFolder:
        """Change keys of the contract that decide no results, as an accepted change does."""
        for path in (self.paths.frozen_contract, self.paths.contract):
            if path.exists():
                contract = json.loads(path.read_text(encoding="utf-8"))
                for key, value in changes.items():
                    contract["accepted"][key] = contract["accepted"].get(key, {}) | value
                self._json(path, contract)
        return self

    def without_submission(self) -> RunFolder:
        """As before the launch: the contract may be frozen anew."""
        self.paths.frozen_submission.unlink()
        return self

    def smoke(self, passed: bool = True, digest: str | None = None) -> RunFolder:
        measured = {"task_s": {"median": 2.0, "p95": 2.5, "n": 4}, "startup_s": 0.5}
        measured |= {"t_ckpt_s": None, "durable_s": None, "ckpt_bytes": None}
        value = {
            "schema": 1,
            "run": self.run,
            "contract_digest": digest or self.digest,
            "passed": passed,
            "reason": "resumed as if nothing had happened",
            "slice": {"tasks": 4, "set": {}},
            "measured": measured,
            "created": at(1),
        }
        self._json(self.paths.smoke, value)
        return self

    def plan(self, **changes: Any) -> RunFolder:
        value = {
            "schema": 1,
            "run": self.run,
            "contract_digest": self.digest,
            "interval_s": 120.0,
            "tasks_per_shard": 2,
            "shard_count": 2,
            "shard_s": 10.0,
            "walltime_s": 600,
            "mode": "on-demand",
            "profile": None,
            "overhead": {"fraction": 0.02, "seconds": 1.0},
            "cost": None,
            "assumptions": [],
            "notes": [],
        }
        self._json(self.paths.plan, value | changes)
        return self

    def table(self, shards: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> RunFolder:
        """`shards`: shard -> task key -> parameters."""
        lines, line = ["shard,task,line,params"], 2
        for name, tasks in shards.items():
            for key, params in tasks.items():
                text = json.dumps({k: str(v) for k, v in params.items()}, separators=(",", ":"))
                quoted = text.replace('"', '""')
                lines.append(f'{name},{key},{line},"{quoted}"')
                line += 1
        for path in (self.paths.frozen_shards, self.paths.shards):
            self._bytes(path, ("\n".join(lines) + "\n").encode())
        return self.submission(len(shards), line - 2)

    def submission(self, shards: int, tasks: int) -> RunFolder:
        value = {
            "schema": 1,
            "run": self.run,
            "contract_digest": self.digest,
            "smoke": None,
            "shards": shards,
            "tasks": tasks,
            "submitted": at(2),
        }
        self._json(self.paths.frozen_submission, value)
        return self

    def done(
        self,
        shard: str,
        key: str,
        result: Mapping[str, Any],
        *,
        attempt: int = 1,
        file: str = "score.json",
        seconds: float = 2.0,
        time: float = 10.0,
        in_journal: bool = True,
    ) -> Path:
        """A finished task: a row of the journal and its published artifact; returns its path."""
        path = self.paths.artifact(key if self.kind == "batch" else shard) / file
        self._bytes(path, json.dumps(result).encode())
        data: dict[str, Any] = {"artifacts": [self._proof(path, file)], "cpu_s": seconds}
        if in_journal:
            data["result"] = result
        self._row(shard, Row(at(time), attempt, "task", key, "done", seconds, json.dumps(data)))
        return path

    def failed(
        self,
        shard: str,
        key: str,
        *,
        attempt: int = 1,
        code: int = 1,
        finding: Mapping[str, Any] | None = FINDING,
    ) -> None:
        data = json.dumps({"finding": finding, "exit": code, "log": ["Traceback", "ValueError"]})
        self._row(shard, Row(at(12), attempt, "task", key, "failed", 1.0, data))

    def checkpoint(self, shard: str, generation: str, *, attempt: int = 1, time: float) -> None:
        data = {"step": int(time), "bytes": 1 << 20, "blocked_s": 0.01, "durable_s": 0.2}
        data["path"] = f"work/scratch/{shard}/{generation}"
        self._row(
            shard,
            Row(at(time), attempt, "checkpoint", generation, "committed", None, json.dumps(data)),
        )

    def attempt(self, shard: str, number: int, **fields: Any) -> None:
        """An attempt's record; `ended=None` is one that was killed."""
        value: dict[str, Any] = {
            "attempt": number,
            "host": "node17.secret.example",
            "pid": 999_999_999,
            "process_start": 1.0,
            "boot_id": boot_id(),
            "token": "t" * 32,
            "slurm_job_id": None,
            "started": at(5),
            "ended": at(20),
            "exit_code": 0,
            "stop": "done",
            "finding": None,
            "useful_s": 12.0,
            "checkpoint_s": 0.5,
            "lost_s": 0.0,
            "cpu_s": 20.0,
            "max_rss_bytes": 100 << 20,
            "restored": None,
        }
        self._json(self.paths.shard(shard).attempt(number), value | fields)

    def marker(self, shard: str) -> None:
        write_marker(self.paths.shard(shard).marker, self.rows[shard])

    def upload(self, shard: str, *, verified: bool = True, generation: str | None = None) -> None:
        value = {
            "schema": 1,
            "run": self.run,
            "shard": shard,
            "tier": "warm",
            "generation": generation,
            "files": [],
            "verified": verified,
            "created": at(30),
        }
        self._json(self.paths.shard(shard).upload, value)

    def _row(self, shard: str, row: Row) -> None:
        self.rows.setdefault(shard, []).append(row)
        path = self.paths.shard(shard).journal
        if not path.exists():
            write_marker(path, [])
        with path.open("ab") as stream:
            stream.write(encode_row(row))

    def _proof(self, path: Path, name: str) -> dict[str, Any]:
        data = path.read_bytes()
        return {"path": name, "bytes": len(data), "digest": sha(data)}

    def _json(self, path: Path, value: Any) -> None:
        self._bytes(path, json.dumps(value, indent=2).encode())

    def _bytes(self, path: Path, data: bytes) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def finished_sweep(root: Path) -> RunFolder:
    """Two shards of two tasks, all done, with everything a closeout asks for."""
    folder = RunFolder(root).contract().smoke().plan()
    tasks = {
        "0001": {"a1": {"C": 1, "kernel": "rbf"}, "a2": {"C": 2, "kernel": "rbf"}},
        "0002": {"b1": {"C": 1, "kernel": "poly"}, "b2": {"C": 2, "kernel": "poly"}},
    }
    folder.table(tasks)
    for shard, keys in tasks.items():
        for n, key in enumerate(keys):
            folder.done(shard, key, {"accuracy": 0.9 + 0.01 * n + (shard == "0002") / 100})
        folder.attempt(shard, 1)
        folder.marker(shard)
        folder.upload(shard)
    return folder


def finished_simulation(root: Path, energy: float = -1.40) -> RunFolder:
    """One long shard that was killed once, lost 4 s, and was resumed to its end."""
    folder = RunFolder(root, "ising", "resumable").contract(
        work={
            "kind": "resumable",
            "members": "config/tasks.csv",
            "command": "python fit.py --C {C} --out {out}",
        },
        workload="simulation",
        artifacts=[{"path": "energy.json", "check": "json"}],
        control={"file": "energy.json", "metric": "energy", "reference": "exact", "error": "error"},
        resume="resume-from-checkpoint",
    )
    shard = "beta-1"
    folder.smoke().plan(interval_s=10.0).table({shard: {"m1": {"C": 1}}})
    folder.checkpoint(shard, "000001", time=15)
    folder.attempt(shard, 1, started=at(5), ended=None, exit_code=None, stop=None, lost_s=None)
    folder.checkpoint(shard, "000002", attempt=2, time=40)
    result = {"energy": energy, "exact": -1.41, "error": 0.01}
    folder.done(shard, "m1", result, attempt=2, file="energy.json", seconds=45.0, time=55)
    restored = {"generation": "000001", "step": 15, "tier": "scratch", "lost_s": 4.0}
    times = {"started": at(20), "ended": at(56), "useful_s": 30.0, "checkpoint_s": 1.0}
    folder.attempt(shard, 2, restored=restored, lost_s=0.0, **times)
    folder.marker(shard)
    folder.upload(shard, generation="000002")
    return folder
