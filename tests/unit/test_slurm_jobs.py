"""The jobs of a folder, and whether there may be any."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from milepost.launch.attend import Attendant
from milepost.slurm.jobs import may_have_jobs


def record(folder: Path, job_id: str | None) -> None:
    path = folder / "work" / "dock" / "shards" / "0001" / "attempts" / "1.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"attempt": 1, "slurm_job_id": job_id}, indent=2))


def test_a_folder_that_never_used_slurm_has_no_jobs(tmp_path: Path) -> None:
    assert not may_have_jobs(tmp_path)
    record(tmp_path, None)
    assert not may_have_jobs(tmp_path)


@pytest.mark.parametrize("sign", ["logs of the executor", "an attempt inside a job"])
def test_either_sign_is_enough(tmp_path: Path, sign: str) -> None:
    if sign == "logs of the executor":
        (tmp_path / ".snakemake" / "slurm_logs").mkdir(parents=True)
    else:
        record(tmp_path, "17")
    assert may_have_jobs(tmp_path)


def test_a_head_without_jobs_starts_though_slurm_does_not_answer(tmp_path: Path) -> None:
    said: list[str] = []
    Attendant(tmp_path, said.append).wait_for_jobs()
    assert said == []


def test_a_head_with_jobs_goes_on_asking_a_slurm_that_does_not_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".snakemake" / "slurm_logs").mkdir(parents=True)
    looks: list[float] = []

    def stop_after_three(seconds: float) -> None:
        looks.append(seconds)
        if len(looks) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr("milepost.launch.attend.time.sleep", stop_after_three)
    said: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        Attendant(tmp_path, said.append).wait_for_jobs()
    assert len(said) == 1
    assert "Slurm is not heard" in said[0]
