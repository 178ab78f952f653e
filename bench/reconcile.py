"""Reconcile: a verdict for every shard out of a million rows, beside readers that only count them.

The peers read the same journals and count the tasks that are done; they check no row, look at no
artifact, and judge nothing. Every reader is a process of its own, its start-up included, and counts
only when it found every task. Readers take turns.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import psutil

from bench.measure import Sample, Summary, alternate, ratio, summarise
from bench.part import Bar, Options, bars_table
from milepost.config.freeze import freeze
from milepost.config.load import parse_config
from milepost.journal import HEADER, Row, encode_row
from milepost.paths import RunPaths

TITLE = "Reconcile"
OURS = "milepost reconcile"
RUN = "rows"
PER_SHARD = 1000
MEGA = 1_000_000
LOOK_S = 0.01

_CSV = """
import csv, glob, sys
csv.field_size_limit(1 << 30)
done = set()
for path in glob.glob(sys.argv[1] + "/work/rows/shards/*/journal.csv"):
    with open(path, encoding="utf-8", newline="") as stream:
        for row in csv.DictReader(stream):
            if row["event"] == "task" and row["status"] == "done":
                done.add(row["name"])
print(len(done))
"""
_PANDAS = """
import glob, sys
import pandas
paths = glob.glob(sys.argv[1] + "/work/rows/shards/*/journal.csv")
rows = pandas.concat([pandas.read_csv(path, engine="c") for path in paths])
print(rows[(rows.event == "task") & (rows.status == "done")].name.nunique())
"""
_WORDS = {
    OURS: ("-m", "milepost.cli.main", "reconcile", RUN, "--json", "--root"),
    "csv.DictReader": ("-c", _CSV),
    "pandas.read_csv": ("-c", _PANDAS),
}
_DOES = {
    OURS: "CRC of every row, tables, artifacts, verdicts",
    "csv.DictReader": "counts what is done",
    "pandas.read_csv": "counts what is done",
}


@dataclass(frozen=True, slots=True)
class Case:
    """`group` names the data: so many tasks, with a published artifact each or without."""

    group: str
    tasks: int
    has_artifacts: bool


QUICK = (Case("rows", 50_000, False), Case("rows and artifacts", 5_000, True))
USUAL = (Case("rows", MEGA, False), Case("rows and artifacts", 100_000, True))
FULL = (Case("rows", MEGA, False), Case("rows and artifacts", MEGA, True))


def section(options: Options) -> Iterator[str]:
    """Measure, and tell it."""
    cases = {"quick": QUICK, "full": FULL}.get(options.size, USUAL)
    samples: list[Sample] = []
    most_bytes: dict[tuple[str, str], int] = {}
    for case in cases:
        with tempfile.TemporaryDirectory(prefix="milepost-bench-", dir=options.folder) as root:
            make_run(Path(root), case)
            for name in alternate(list(_WORDS), options.rounds(5)):
                seconds, peak = once(name, Path(root), case.tasks)
                options.say(f"{case.group:>18} {case.tasks:>9,} {name:<20} {seconds:6.2f} s")
                samples.append(Sample(case.group, name, case.tasks, seconds))
                most_bytes[case.group, name] = max(peak, most_bytes.get((case.group, name), 0))
    summaries = summarise(samples)
    yield from bars_table(list(bars(summaries, most_bytes)))
    yield from (" ".join((__doc__ or "").split("\n\n", 1)[1].split()), "")
    yield from table(summaries, most_bytes)


def make_run(root: Path, case: Case) -> None:
    """A run in which every task is done, as its runner leaves it."""
    paths = RunPaths(RUN, root)
    _freeze(paths, case)
    paths.frozen_shards.parent.mkdir(parents=True, exist_ok=True)
    with paths.frozen_shards.open("w", encoding="utf-8") as table:
        table.write("shard,task,line,params\n")
        for first in range(0, case.tasks, PER_SHARD):
            name = f"{first // PER_SHARD + 1:04d}"
            keys = [_key(n) for n in range(first, min(first + PER_SHARD, case.tasks))]
            table.writelines(
                f'{name},{key},{first + n + 2},"{{""C"": ""{n}"", ""kernel"": ""rbf""}}"\n'
                for n, key in enumerate(keys)
            )
            _shard(paths, name, keys, case.has_artifacts)


def _freeze(paths: RunPaths, case: Case) -> None:
    (paths.root / "tasks.csv").write_text("C\n1\n", encoding="utf-8")
    block = {
        "workload": "evaluation",
        "resource_class": "cpu",
        "work": {"kind": "batch", "tasks": "tasks.csv", "command": "true {C}"},
        "artifacts": [{"path": "score.json", "check": "exists"}] if case.has_artifacts else [],
    }
    config = parse_config({"runs": {RUN: block}}, root=paths.root)
    freeze(config.runs[RUN], paths, datetime.now(UTC))


def _shard(paths: RunPaths, name: str, keys: Sequence[str], has_artifacts: bool) -> None:
    journal = paths.shard(name).journal
    journal.parent.mkdir(parents=True)
    start, end = "2026-03-01T08:00:00.000Z", "2026-03-01T08:10:00.000Z"
    proofs = [{"path": "score.json", "bytes": 20, "digest": "blake3:" + "a" * 64}]
    data = {
        "artifacts": proofs if has_artifacts else [],
        "result": {"accuracy": 0.931},
        "cpu_s": 0.1,
        "max_rss_bytes": 1_000_000,
    }
    text = json.dumps(data, separators=(",", ":"))
    rows = [Row(start, 1, "attempt", "1", "started", None)]
    rows += [Row(end, 1, "task", key, "done", 0.5, text) for key in keys]
    rows.append(Row(end, 1, "attempt", "1", "ended", None))
    journal.write_bytes(HEADER + b"".join(map(encode_row, rows)))
    record = {"attempt": 1, "started": start, "ended": end, "exit_code": 0, "stop": "done"}
    paths.shard(name).attempts.mkdir()
    paths.shard(name).attempt(1).write_text(json.dumps(record), encoding="utf-8")
    for key in keys if has_artifacts else ():
        paths.artifact(key).mkdir(parents=True)
        (paths.artifact(key) / "score.json").write_bytes(b"x" * 20)


def _key(number: int) -> str:
    return hashlib.sha256(str(number).encode()).hexdigest()[:16]


def once(name: str, root: Path, tasks: int) -> tuple[float, int]:
    """Wall seconds, and the most memory that all processes together had (shared pages counted for
    each)."""
    begin = time.perf_counter()
    child = subprocess.Popen(
        [sys.executable, *_WORDS[name], str(root)], stdout=subprocess.PIPE, text=True
    )
    memory = _Memory(child.pid)
    out, _ = child.communicate()
    seconds = time.perf_counter() - begin
    if child.returncode != 0 or _found(name, out) != tasks:
        raise SystemExit(f"bench: {name} did not find {tasks} tasks: {out[:200]}")
    return seconds, memory.most()


def _found(name: str, out: str) -> int:
    if name != OURS:
        return int(out)
    shards = json.loads(out)["shards"]
    return sum(int(shard["done"]) for shard in shards if shard["verdict"] == "DONE")


class _Memory:
    """Looks at a process and its children until it ends."""

    def __init__(self, pid: int) -> None:
        self._pid, self._most = pid, 0
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def _look(self) -> None:
        try:
            process = psutil.Process(self._pid)
            while process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
                family = [process, *process.children(recursive=True)]
                self._most = max(self._most, sum(_rss(one) for one in family))
                time.sleep(LOOK_S)
        except psutil.NoSuchProcess:
            return

    def most(self) -> int:
        self._thread.join()
        return self._most


def _rss(process: psutil.Process) -> int:
    try:
        return int(process.memory_info().rss)
    except psutil.NoSuchProcess:
        return 0


def bars(summaries: Sequence[Summary], most_bytes: dict[tuple[str, str], int]) -> Iterator[Bar]:
    """A million rows in five seconds and a gigabyte, and no slower than pandas reads them."""
    for own in summaries:
        if own.name != OURS or own.group != "rows":
            continue
        rows = f"{own.size:,} rows"
        yield Bar(f"{rows}, on {len(os.sched_getaffinity(0))} cores", own.median_s, 5, unit=" s")
        yield Bar(f"{rows}, memory", most_bytes[own.group, OURS] / 1e9, 1, unit=" GB")
        yield Bar(f"{rows}, time against pandas", ratio(summaries, own, "pandas.read_csv"), 1)


def table(summaries: Sequence[Summary], most_bytes: dict[tuple[str, str], int]) -> Iterator[str]:
    """Markdown; a ratio above 1 says that the reader is slower than milepost."""
    yield "| data | tasks | reader | does | s | range | memory MB | against milepost |"
    yield "|---|--:|---|---|--:|--:|--:|--:|"
    for one in sorted(summaries, key=lambda s: (s.group, s.median_s)):
        against = ratio(summaries, one, OURS)
        cells = (
            one.group,
            f"{one.size:,}",
            one.name,
            _DOES[one.name],
            f"{one.median_s:.2f}",
            f"{one.least_s:.2f} - {one.greatest_s:.2f}",
            f"{most_bytes[one.group, one.name] / 1e6:,.0f}",
            "n/a" if against is None else f"{against:.2f}",
        )
        yield f"| {' | '.join(cells)} |"
    yield ""
