"""Build the folder of a run as its runner would have left it, for tests of the evidence."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

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
        """Freeze a contract over one real input file."""
        table = self.paths.root / "config" / "tasks.csv"
        self._bytes(table, b"C\n1\n2\n")
        raw: dict[str, Any] = {
            "purpose": "Which setting separates the digits best?",
            "software": ["scikit-learn"],
            "workload": "evaluation",
            "resource_class": "cpu",
            "resources": {"cpus": 2, "mem_mb": 1000, "gpus": 0, "runtime_s": 3600},
            "work": {
                "kind": self.kind,
                "tasks": "config/tasks.csv",
                "command": "python fit.py --C {C} --out {out}/score.json",
                "result": {"file": "score.json", "best": "accuracy", "best_is": "max"},
            },
            "artifacts": [{"path": "score.json", "check": "json"}],
            "resume": "rerun-failed-shards",
            "stop": "all-shards-complete",
        }
        value = {
            "schema": 1,
            "run": self.run,
            "digest": self.digest,
            "frozen": raw | changes,
            "accepted": {},
            "inputs": [self._proof(table, "config/tasks.csv")],
            "table": {"path": "config/tasks.csv", "rows": 2, "digest": sha(table.read_bytes())},
            "versions": {"python": "3.11.9", "milepost": "0.1.0"},
            "created": at(0),
        }
        self._json(self.paths.frozen_contract, value)
        self._json(self.paths.contract, value)
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
        value = {
            "schema": 1,
            "run": self.run,
            "contract_digest": self.digest,
            "smoke": None,
            "shards": len(shards),
            "tasks": line - 2,
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
    ) -> Path:
        """A finished task: a row of the journal and its published artifact; returns its path."""
        path = self.paths.artifact(key if self.kind == "batch" else shard) / file
        self._bytes(path, json.dumps(result).encode())
        data = {"result": result, "artifacts": [self._proof(path, file)], "cpu_s": seconds}
        self._row(shard, Row(at(time), attempt, "task", key, "done", seconds, json.dumps(data)))
        return path

    def failed(self, shard: str, key: str, *, attempt: int = 1, code: int = 1) -> None:
        data = json.dumps({"finding": FINDING, "exit": code, "log": ["Traceback", "ValueError"]})
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
