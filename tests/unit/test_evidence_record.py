"""Every record has the shape that workflow/schemas/record.schema.yaml promises."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from helpers.run_folder import RunFolder, finished_simulation, finished_sweep
from milepost.evidence.closing import close
from milepost.resources import load_yaml

NOW = "2026-03-02T00:00:00.000Z"


def record_of(folder: RunFolder, **options: Any) -> dict[str, Any]:
    close(folder.paths, now=NOW, partial=options.pop("partial", False), **options)
    text = (folder.paths.closeout / "record.json").read_text(encoding="utf-8")
    record: dict[str, Any] = json.loads(text)
    return record


def mistakes(record: dict[str, Any]) -> list[str]:
    schema = load_yaml("schemas", "record.schema.yaml")
    Draft202012Validator.check_schema(schema)
    return [f"{e.json_path}: {e.message}" for e in Draft202012Validator(schema).iter_errors(record)]


def nothing(root: Path) -> RunFolder:
    folder = RunFolder(root)
    folder.paths.work.mkdir(parents=True)
    return folder


def trouble(root: Path) -> RunFolder:
    """Failed, damaged, missing and unclassified work, one attempt killed and one elsewhere."""
    folder = finished_sweep(root)
    (folder.paths.artifact("b1") / "score.json").unlink()
    folder.table({"0001": {"a1": {}, "a2": {}, "a3": {}}, "0002": {"b1": {}}, "0003": {"c1": {}}})
    folder.failed("0001", "a3")
    folder.failed("0003", "c1", finding=None)
    folder.attempt("0001", 2, ended=None, exit_code=None, stop=None)
    folder.attempt("0003", 1, host="elsewhere", ended=None, slurm_job_id="77")
    return folder


@pytest.mark.parametrize("partial", [False, True])
@pytest.mark.parametrize("make", [nothing, finished_sweep, finished_simulation, trouble])
def test_every_record_fits_its_schema(
    tmp_path: Path, make: Callable[[Path], RunFolder], partial: bool
) -> None:
    assert mistakes(record_of(make(tmp_path), partial=partial)) == []


def test_accepted_and_superseded_records_fit_it_too(tmp_path: Path) -> None:
    folder = finished_sweep(tmp_path)
    folder.contract(purpose="Another purpose")
    (folder.paths.artifact("b1") / "score.json").unlink()
    RunFolder(tmp_path, "better").contract()
    assert mistakes(record_of(folder, accept="an outlier")) == []
    record = record_of(folder, superseded_by="better")
    assert mistakes(record) == []
    assert (record["accepted"][0]["reason"], record["superseded"]["by"]) == ("an outlier", "better")


def test_the_schema_refuses_what_it_does_not_know(tmp_path: Path) -> None:
    record = record_of(finished_sweep(tmp_path))
    assert mistakes(record | {"extra": 1}) != []
    assert mistakes(record | {"schema": 2}) != []
    assert mistakes({k: v for k, v in record.items() if k != "queue"}) != []


def test_what_was_allocated_is_what_its_parts_add_up_to(tmp_path: Path) -> None:
    record = record_of(finished_simulation(tmp_path))
    seen = {row["part"]: row["observed_core_h"] for row in record["hours"]}
    allocated = sum(seen[part] for part in ("useful", "checkpoint", "lost", "overhead"))
    assert allocated * 3600 == pytest.approx(record["account"]["allocated_core_s"])
    assert seen["lost"] * 3600 == pytest.approx(2 * 4.0)
    assert seen["waiting"] * 3600 == pytest.approx(2 * 5.0)  # 15 s last sign, 20 s next start


def test_a_shard_says_what_it_went_through(tmp_path: Path) -> None:
    (shard,) = record_of(finished_simulation(tmp_path))["per_shard"]
    assert shard["verdict"] == "DONE" and shard["lost_s"] == 4.0
    assert [a["how"] for a in shard["attempts"]] == ["killed", "done"]
    assert [a["lost_s"] for a in shard["attempts"]] == [4.0, None]  # nobody asked the last one
    assert shard["checkpoints"]["count"] == 2 and len(shard["checkpoints"]["times"]) == 2
    assert (shard["held_s"], shard["pending_s"], shard["waits"]) == (None, None, [])


def test_of_many_checkpoints_an_even_choice_of_times_is_kept(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path, "ising", "resumable").table({"one": {"m": {}}})
    for second in range(450):
        folder.checkpoint("one", f"{second:06d}", time=second)
    (shard,) = record_of(folder, partial=True)["per_shard"]
    assert shard["checkpoints"]["count"] == 450
    assert len(shard["checkpoints"]["times"]) == 150


def test_attempts_at_shards_of_an_older_cut_took_time_too(tmp_path: Path) -> None:
    folder = finished_sweep(tmp_path)
    before = record_of(folder)
    folder.table({"0001": {"a1": {}, "a2": {}}, "0003": {"b1": {}, "b2": {}}})
    after = record_of(folder)
    assert after["tasks"]["done"] == 4
    assert [s["shard"] for s in after["per_shard"]] == ["0001", "0003"]
    assert [s["shard"] for s in after["shard_accounts"]] == ["0001", "0002"]
    assert after["account"]["allocated_core_s"] == before["account"]["allocated_core_s"]
    assert after["hours"][0]["observed_core_h"] == before["hours"][0]["observed_core_h"]
    assert mistakes(after) == []
