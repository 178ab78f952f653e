"""The doctor's questions: every cause has a case that leads to it, and none without a sign."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from helpers.run_folder import RunFolder, at, finished_simulation, finished_sweep
from milepost.checkpoint.environment import Environment
from milepost.checkpoint.manifest import Manifest
from milepost.cli.doctor import command
from milepost.errors import Suspect
from milepost.evidence.doctor import Diagnosis, diagnose_run, policy
from milepost.evidence.doctor_facts import (
    CaseFile,
    Checkpoints,
    Disk,
    Generation,
    Patient,
    examine,
)
from milepost.evidence.doctor_questions import QUESTIONS

ROOM = (Disk("scratch", "scratch", 10, 100),)


def healthy(folder: RunFolder) -> CaseFile:
    """The case of a folder, on a machine whose disks have room."""
    return replace(examine(folder.paths), disks=ROOM)


def causes(case: CaseFile) -> list[tuple[str, str, str | None]]:
    return [(d.ailment, d.cause, d.shard) for d in diagnose_run(case).diagnoses]


def one(case: CaseFile) -> Diagnosis:
    (found,) = diagnose_run(case).diagnoses
    return found


def with_patient(case: CaseFile, **changes: Any) -> CaseFile:
    return replace(case, patients=(replace(case.patients[0], **changes),))


def unfinished(case: CaseFile, **changes: Any) -> CaseFile:
    """The shard is not done, and its last attempt failed."""
    shard = case.patients[0].shard
    attempts = (*shard.attempts[:-1], replace(shard.attempts[-1], stop="failed", exit_code=1))
    return with_patient(case, shard=replace(shard, done=0, attempts=attempts), **changes)


def generation(name: str, ranks: int = 1, **more: Any) -> Generation:
    files = {rank: f"rank_{rank}.bin" for rank in range(ranks)}
    manifest = Manifest(
        name, 100, "2026-03-01T08:00:00.000Z", (), Environment(), ranks=files, rng={"in": "x"}
    )
    return replace(Generation(name, manifest, ()), **more)


def place(*generations: Generation, **more: Any) -> tuple[Checkpoints, ...]:
    return (Checkpoints("scratch", "scratch/ising/beta-1/ckpt", generations, **more),)


@pytest.mark.parametrize("make", [finished_sweep, finished_simulation])
def test_a_finished_run_has_nothing(tmp_path: Path, make: Any) -> None:
    report = diagnose_run(healthy(make(tmp_path)))
    assert report.diagnoses == ()
    assert [a.ailment for a in report.answers] == list(policy())
    assert all(a.looked_at for a in report.answers)


def test_a_run_with_a_contract_alone_has_nothing(tmp_path: Path) -> None:
    assert causes(healthy(RunFolder(tmp_path).contract())) == []


def test_every_ailment_has_a_question_and_every_cause_a_remedy() -> None:
    assert len(QUESTIONS) == len(policy())
    for ailment, words in policy().items():
        for cause in words["causes"]:
            found = Diagnosis(ailment, cause, "0001", ("x",))
            assert found.why and found.remedy and found.symptom
            assert all("{" not in text for text in found.commands("md"))


def test_damage_names_what_is_left(tmp_path: Path) -> None:
    case = healthy(finished_simulation(tmp_path))
    bad = generation("000002-a1", damages=("000002-a1: rank_0.bin: block 3",))
    found = one(with_patient(case, places=place(bad, generation("000001-a1"))))
    assert found.cause == "damaged"
    assert found.evidence == (
        "scratch: 000002-a1: rank_0.bin: block 3",
        "newest intact one: 000001-a1 in scratch, step 100",
    )
    warm = replace(place(generation("000001-a1"))[0], tier="warm")
    found = one(with_patient(case, places=(*place(bad), warm)))
    assert found.cause == "damaged" and "000001-a1 in warm" in found.evidence[-1]
    found = one(with_patient(case, places=place(bad)))
    assert found.cause == "no_intact_one" and "no intact generation" in found.evidence[-1]
    found = one(with_patient(case, places=place(generation("000001-a1"), audit=("line 2",))))
    assert (found.cause, found.evidence) == ("log_broken", ("line 2",))


def slow(case: CaseFile, durable_s: float, then: float | None, interval_s: float) -> CaseFile:
    shard = case.patients[0].shard
    made = tuple(replace(c, durable_s=durable_s) for c in shard.checkpoints)
    smoke = {**(case.run.smoke or {}), "measured": {"durable_s": then, "ckpt_bytes": 1 << 20}}
    run = replace(case.run, smoke=smoke, plan={"interval_s": interval_s})
    return replace(with_patient(case, shard=replace(shard, checkpoints=made)), run=run)


def test_a_disk_slower_than_in_the_smoke_test(tmp_path: Path) -> None:
    case = healthy(finished_simulation(tmp_path))
    assert causes(slow(case, 12.0, 2.0, 60.0)) == [("slow_write", "slow_scratch", "beta-1")]
    assert causes(slow(case, 7.0, 2.0, 60.0)) == [], "disks vary"
    assert causes(slow(case, 0.9, 0.01, 60.0)) == [], "nobody minds less than a second"
    assert causes(slow(case, 12.0, None, 60.0)) == [], "nothing to compare with"
    shard = slow(case, 12.0, 2.0, 60.0).patients[0].shard
    larger = tuple(replace(c, size_bytes=4 << 20) for c in shard.checkpoints)
    grown = with_patient(slow(case, 12.0, 2.0, 60.0), shard=replace(shard, checkpoints=larger))
    assert causes(grown) == [], "four times as much takes four times as long"


def test_saves_due_faster_than_durable(tmp_path: Path) -> None:
    case = healthy(finished_simulation(tmp_path))
    found = one(slow(case, 12.0, 12.0, 10.0))
    assert found.cause == "too_often" and "the next is due after 10 s" in found.evidence[0]
    put_off = {
        "milepost_checkpoint_saves_skipped_total": 9.0,
        "milepost_checkpoint_commits_total": 4.0,
    }
    assert one(with_patient(case, metrics=put_off)).evidence == ("9 saves put off, 4 made",)


def test_a_tier_that_waits_or_fails(tmp_path: Path) -> None:
    case = healthy(finished_simulation(tmp_path))
    metrics = {"milepost_upload_queue_generations": 1.0, "milepost_upload_queue_age_seconds": 90.0}
    found = one(with_patient(case, metrics=metrics))
    assert found.cause == "slow_tier" and "had waited for 90 s" in found.evidence[1]
    failed = one(with_patient(case, metrics={"milepost_upload_failures_total": 2.0}))
    assert failed.evidence == ("2 uploads failed after their retries",)


def lost(case: CaseFile, seconds: float, restored: str | None = "000001") -> CaseFile:
    shard = case.patients[0].shard
    first, second = shard.attempts
    note = {"generation": restored, "lost_s": seconds}
    attempts = (first, replace(second, restored=note))
    names = ("000001-a1", "000002-a2")
    made = tuple(replace(c, generation=n) for c, n in zip(shard.checkpoints, names, strict=True))
    return with_patient(case, shard=replace(shard, attempts=attempts, checkpoints=made))


def test_a_loss_is_high_beyond_two_intervals(tmp_path: Path) -> None:
    case = healthy(finished_simulation(tmp_path))  # its interval is 10 s
    assert causes(lost(case, 20.0, "000001-a1")) == []
    found = one(lost(case, 40.0, "000001-a1"))
    assert (found.ailment, found.cause) == ("high_loss", "too_seldom")
    assert one(lost(case, 40.0, "000000-a1")).cause == "older_one_taken"
    none = lost(case, 40.0)
    shard = none.patients[0].shard
    none = with_patient(none, shard=replace(shard, checkpoints=shard.checkpoints[1:]))
    assert one(none).cause == "none_was_made"


def test_more_interruptions_than_planned(tmp_path: Path) -> None:
    case = healthy(finished_simulation(tmp_path))
    shard = case.patients[0].shard
    attempts = tuple(replace(a, useful_s=300.0) for a in shard.attempts)
    busy = lost(with_patient(case, shard=replace(shard, attempts=attempts)), 100.0, "000001-a1")
    plan = {"interval_s": 60.0, "overhead": {"fraction": 0.02}}
    assert causes(replace(busy, run=replace(busy.run, plan=plan))) == [
        ("high_loss", "more_failures", None)
    ]


def test_ranks_that_were_cut_otherwise_or_never_left(tmp_path: Path) -> None:
    case = unfinished(healthy(finished_simulation(tmp_path)))
    cut = place(generation("000002-a2", 2), generation("000001-a1", 4))
    found = one(with_patient(case, places=cut))
    assert (found.cause, found.evidence[1]) == ("other_cut", "000001-a1: 4 ranks, version 1")
    met = place(generation("000001-a1"), meetings=(".meet-x",))
    assert one(with_patient(case, places=met)).cause == "unfinished_meeting"
    over = replace(case.patients[0].shard, done=1)
    assert causes(with_patient(case, places=cut, shard=over)) == [], "it is done"


def test_only_what_the_last_attempt_said_counts(tmp_path: Path) -> None:
    case = unfinished(healthy(finished_simulation(tmp_path)))
    line = "StorageError: rank 3 could not save: No space left on device"
    assert causes(with_patient(case, logs={1: line})) == []
    found = {d.ailment for d in diagnose_run(with_patient(case, logs={2: line})).diagnoses}
    assert found == {"ranks_apart", "scratch_full"}


def test_nothing_that_can_be_restored(tmp_path: Path) -> None:
    case = unfinished(healthy(finished_simulation(tmp_path)))
    held = place(generation("000001-a1", restores=2))
    said = {2: "milepost: no generation can be restored:\n  000001-a1: in quarantine, …"}
    found = one(with_patient(case, places=held, logs=said))
    assert found.cause == "nothing_usable"
    assert found.commands("ising")[1].endswith("ckpt 000001-a1")


def test_a_disk_that_is_full(tmp_path: Path) -> None:
    case = healthy(finished_simulation(tmp_path))
    found = one(replace(case, disks=(Disk("scratch", "/fast", 86, 100),)))
    assert (found.cause, found.evidence) == ("full_now", ("scratch /fast: 86% used",))
    away = replace(case, disks=(*ROOM, Disk("warm", "s3://b/c", problem="cannot be looked at")))
    answer = next(a for a in diagnose_run(away).answers if a.ailment == "scratch_full")
    assert answer.found == () and "warm cannot be looked at" in answer.looked_at


def test_another_result_with_its_generator_saved(tmp_path: Path) -> None:
    case = healthy(finished_simulation(tmp_path))
    control = {"metric": "energy", "undisturbed": 1.0, "resumed": 2.0, "equal": False}
    smoke = {**(case.run.smoke or {}), "control": control}
    known = generation("000001-a1").manifest
    assert known is not None
    found = one(replace(case, run=replace(case.run, smoke=smoke), rehearsed=(known,)))
    assert found.cause == "state_not_saved"
    without = replace(
        case, run=replace(case.run, smoke=smoke), rehearsed=(replace(known, rng=None),)
    )
    assert one(without).cause == "generator_not_saved"


def test_a_result_far_from_its_reference(tmp_path: Path) -> None:
    found = one(healthy(finished_simulation(tmp_path, energy=-1.2)))
    assert (found.cause, found.shard) == ("off_reference", "beta-1")
    assert found.evidence == ("-1.2, reference -1.41, 21.0 sigma away",)


class TestCommand:
    def test_a_full_page(self, tmp_path: Path) -> None:
        folder = finished_simulation(tmp_path, energy=-1.2)
        result = CliRunner().invoke(command, ["ising", "--root", str(tmp_path)])
        assert isinstance(result.exception, Suspect)
        page = result.stdout
        assert "shard ising/beta-1: resumed work comes to another result\n  cause " in page
        assert "  do         use no result of the named shards" in page
        assert "             $ milepost reconcile ising --deep\n" in page
        assert "nothing found of" in page and "7 ailments looked for" in page
        assert folder.paths.run in page

    def test_json_holds_no_credential(self, tmp_path: Path) -> None:
        folder = finished_simulation(tmp_path)
        folder.attempt("beta-1", 3, started=at(60), ended=at(61), stop="failed", exit_code=1)
        (folder.paths.artifact("beta-1") / "energy.json").unlink()
        log = folder.paths.shard("beta-1").log(3)
        log.write_text("rank 2 could not save: password=hunter2hunter2\n", encoding="utf-8")
        words = ["ising", "--root", str(tmp_path), "--json"]
        report = json.loads(CliRunner().invoke(command, words).stdout)
        found = [d for d in report["diagnoses"] if d["ailment"] == "ranks_apart"]
        assert "password=[secret]" in found[0]["evidence"][0]
        assert "hunter2" not in json.dumps(report)


def test_patients_name_their_folder(tmp_path: Path) -> None:
    patient = healthy(finished_simulation(tmp_path)).patients[0]
    assert isinstance(patient, Patient) and patient.folder == "FOLDER"
