"""Shards in several places: dealt out, kept where they began, and asked for as the plan says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.slurm_answers import Recorded
from milepost.config.spec import PlannerSpec, Resources, RunSpec, SlurmSpec, WorkSpec
from milepost.durable import write_json
from milepost.errors import ConfigError, Refused
from milepost.journal import JournalWriter
from milepost.launch.cluster import check_cluster
from milepost.launch.placing import place_shards, shard_size, used_records
from milepost.launch.request import placed_spec, request, request_of
from milepost.lease import Lease
from milepost.model import Shard, Task, WorkKind
from milepost.paths import RunPaths
from milepost.placement import plan_of_shard, record_of_shard
from milepost.runner.attempt import Attempt
from milepost.runner.signals import SignalLoop
from milepost.runner.sync import GroupSync
from milepost.shardtable import FIRST_HEADER, read_places, read_shard, read_shards, write_shards
from milepost.slurm.command import replaced_by

A, B = ("a", "on-demand"), ("b, large", "interruptible")
SPEC = RunSpec(
    "sweep",
    WorkSpec(WorkKind.BATCH, "tasks.csv", command="fit {n}"),
    resources=Resources(gpus=1, runtime_s=7200),
    slurm=SlurmSpec(account="physics", partition="batch"),
)


def task(number: int, **params: str) -> Task:
    return Task(f"{number:016x}", {"n": str(number)} | params, number + 1)


def shards(*counts: int) -> list[Shard]:
    """Shards with so many tasks each."""
    numbers = iter(range(1, sum(counts) + 1))
    return [
        Shard(f"{at:04d}", tuple(task(next(numbers)) for _ in range(count)))
        for at, count in enumerate(counts, start=1)
    ]


def record(place: tuple[str, str], *counts: int, **more: Any) -> dict[str, Any]:
    """Of the plan: so many shards of each class are at a place."""
    classes = [{"class": at, "shards": count} for at, count in enumerate(counts) if count]
    return {"profile": place[0], "mode": place[1], "shards": sum(counts), "classes": classes} | more


def plan(*records: dict[str, Any], sizes: tuple[float, ...] = (2.0,)) -> dict[str, Any]:
    classes = [{"size": s, "least": s, "most": s, "shards": 0, "useful_s": s} for s in sizes]
    return {"placement": list(records), "classes": classes, "size_unit": None}


def where(found: list[Shard]) -> list[str | None]:
    return [shard.profile for shard in found]


def test_shards_are_dealt_in_the_plans_numbers_and_evenly() -> None:
    found = place_shards(shards(*[2] * 6), plan(record(A, 4), record(B, 2)), shard_size(SPEC))
    assert Counter(where(found)) == {"a": 4, "b, large": 2}
    assert Counter(where(found)[:3]) == {"a": 2, "b, large": 1}
    assert {shard.mode for shard in found if shard.profile == "a"} == {"on-demand"}


def test_each_class_of_sizes_has_its_own_shares() -> None:
    wanted = plan(record(A, 3, 0), record(B, 1, 2), sizes=(1.0, 2.0))
    found = place_shards(shards(2, 1, 1, 2, 1, 1), wanted, shard_size(SPEC))
    assert [s.profile for s in found if len(s.tasks) == 2] == ["b, large"] * 2
    assert Counter(s.profile for s in found if len(s.tasks) == 1) == {"a": 3, "b, large": 1}


def test_a_shard_that_began_stays_and_others_follow_the_plan() -> None:
    first = place_shards(shards(*[2] * 4), plan(record(A, 4)), shard_size(SPEC))
    changed = plan(record(B, 4))
    again = place_shards(first, changed, shard_size(SPEC), begun={"0002"})
    assert where(again) == ["b, large", "a", "b, large", "b, large"]
    assert place_shards(again, changed, shard_size(SPEC), begun={"0002"}) == again
    more = place_shards([*again, *shards(*[2] * 6)[4:]], changed, shard_size(SPEC), {"0002"})
    assert where(more)[4:] == ["b, large"] * 2  # beyond the plan's numbers


@settings(max_examples=60, deadline=None)
@given(
    counts=st.lists(
        st.tuples(st.integers(0, 9), st.integers(0, 9)).filter(any), min_size=1, max_size=3
    ),
    begun=st.sets(st.integers(1, 54)),
)
def test_every_shard_has_one_place_and_every_place_its_number(
    counts: list[tuple[int, int]], begun: set[int]
) -> None:
    sizes = tuple(float(size) for size in range(1, len(counts) + 1))
    wanted = plan(
        record(A, *(a for a, _ in counts)), record(B, *(b for _, b in counts)), sizes=sizes
    )
    table = shards(*(at for at, pair in enumerate(counts, start=1) for _ in range(sum(pair))))
    found = place_shards(table, wanted, shard_size(SPEC))
    for size, (a, b) in enumerate(counts, start=1):
        here = Counter(shard.profile for shard in found if len(shard.tasks) == size)
        assert (here["a"], here["b, large"]) == (a, b)
    names = {f"{number:04d}" for number in begun}
    again = place_shards(found, wanted, shard_size(SPEC), names)
    assert again == found  # the same plan moves nobody, begun or not


def test_a_plan_without_places_leaves_shards_as_they_are() -> None:
    assert place_shards(shards(2, 2), {}, shard_size(SPEC)) == shards(2, 2)


def test_the_size_of_a_row_is_its_column() -> None:
    spec = replace(SPEC, planner=PlannerSpec(size="atoms"))
    shard = Shard("0001", (task(1, atoms="2.5"), task(2, atoms="4")))
    assert shard_size(spec)(shard) == 6.5
    bad = Shard("0001", (task(1, atoms="many"),))
    with pytest.raises(ConfigError, match="'many' in line 2"):
        shard_size(spec)(bad)


def test_the_submission_keeps_what_a_later_plan_has_forgotten() -> None:
    found = place_shards(shards(2, 2), plan(record(A, 1), record(B, 1)), shard_size(SPEC))
    before = {"placements": [record(B, 1, walltime_s=60)]}
    kept = used_records(found, plan(record(A, 2, walltime_s=30)), before)
    assert [one["walltime_s"] for one in kept] == [30, 60]


class TestTable:
    def test_it_carries_profile_and_mode(self, tmp_path: Path) -> None:
        path = tmp_path / "shards.csv"
        placed = place_shards(shards(2, 2), plan(record(A, 1), record(B, 1)), shard_size(SPEC))
        write_shards(path, placed)
        assert list(read_shards(path).values()) == placed
        assert read_shard(path, "0002") == placed[1]
        assert read_places(path) == {"0001": A, "0002": B}

    def test_one_of_an_earlier_version_is_read(self, tmp_path: Path) -> None:
        path = tmp_path / "shards.csv"
        write_shards(path, shards(1))
        lines = path.read_text().splitlines()
        assert lines[1].endswith(",,")
        path.write_text(",".join(FIRST_HEADER) + "\n" + lines[1].removesuffix(",,") + "\n")
        assert list(read_shards(path).values()) == shards(1)
        assert read_places(path) == {"0001": (None, None)}


class TestRequest:
    RECORD = record(
        B,
        1,
        walltime_s=900,
        slurm={"partition": "spot", "qos": "low", "gpu_model": "l40s"},
    )

    def test_a_place_names_its_partition_and_walltime(self) -> None:
        spec = placed_spec(SPEC, self.RECORD)
        assert (spec.slurm.partition, spec.slurm.qos) == ("spot", "low")
        assert spec.slurm.account == "physics"
        found = request(spec, None, (), record=self.RECORD)
        assert (found.runtime_s, found.gpu_model) == (900, "l40s")

    def test_without_a_profile_the_stated_runtime_is_asked_for(self) -> None:
        here = self.RECORD | {"profile": None, "slurm": {}}
        assert placed_spec(SPEC, here) == SPEC
        assert request(SPEC, None, (), record=here).runtime_s == 7200
        assert request(SPEC, None, ()).runtime_s == 7200

    def test_each_shard_asks_for_its_own_place(self, tmp_path: Path) -> None:
        paths = RunPaths("sweep", tmp_path)
        placed = [
            replace(shard, profile=place[0], mode=place[1])
            for shard, place in zip(shards(1, 1), (A, B), strict=True)
        ]
        write_shards(paths.frozen_shards, placed)
        steady = record(A, 1, walltime_s=3600, slurm={}, interval_s=300.0, mtbf_s=9e4)
        write_json(paths.plan, {"interval_s": 1.0, "placement": [steady]})
        write_json(paths.frozen_submission, {"placements": [self.RECORD]})
        first, second = (request_of(SPEC, paths, name, None) for name in ("0001", "0002"))
        assert (first.runtime_s, second.runtime_s) == (3600, 900)
        assert record_of_shard(paths, "0002") == self.RECORD
        assert record_of_shard(paths, "0009") is None
        assert plan_of_shard(paths, "0001")["interval_s"] == 300.0
        write_json(paths.plan, {"interval_s": 1.0, "placement": [steady | {"walltime_s": 60}]})
        assert request_of(SPEC, paths, "0001", None).runtime_s == 60


class TestCluster:
    ANSWERS: ClassVar[dict[str, str]] = {
        "sbatch --test-only": "sbatch: Job 5 to start at 2026-03-01T10:00:00 using 1 processors",
        "scontrol show partition": "",
        "scontrol show node": "",
        "scontrol show config": "MaxArraySize = 1001\nMaxJobCount = 10000\n",
        "sacctmgr -n -P -r show assoc": "physics|||150||low|\n",
        "sacctmgr -n -P -r show qos": "low|90|||\n",
    }

    def asked(self, shards: int, in_all: int) -> list[tuple[str, ...]]:
        """What Slurm was asked about so many shards of a place."""
        recorded = Recorded(dict(self.ANSWERS))
        spec = placed_spec(SPEC, TestRequest.RECORD)
        wanted = request(spec, None, (), record=TestRequest.RECORD)
        with replaced_by(recorded):
            check_cluster(spec, wanted, shards, None, print, in_all=in_all)
        return [argv for argv in recorded.asked if argv[0] == "sbatch"]

    def test_each_place_is_asked_about_with_its_own_request(self) -> None:
        (argv,) = self.asked(10, 20)
        for word in ("--partition=spot", "--qos=low", "--account=physics", "--gpus=l40s:1"):
            assert word in argv
        assert "--time=15" in argv

    def test_limits_of_the_account_count_all_places_those_of_a_qos_its_own(self) -> None:
        self.asked(80, 140)
        with pytest.raises(Refused, match="association physics"):
            self.asked(80, 160)
        with pytest.raises(Refused, match="QOS low"):
            self.asked(95, 140)


class TestEnvironment:
    @pytest.fixture
    def attempt(self, tmp_path: Path) -> Iterator[Attempt]:
        """An attempt at a shard that the plan placed on profile a."""
        paths = RunPaths("sweep", tmp_path)
        shard = replace(shards(1)[0], profile="a", mode="on-demand")
        lease = Lease(paths.shard(shard.name).live)
        lease.acquire()
        with JournalWriter(paths.shard(shard.name).journal, 1) as journal:
            sync = GroupSync(journal)
            yield Attempt(
                spec=SPEC,
                contract_digest="sha256:aa",
                run=paths,
                shard=shard,
                paths=paths.shard(shard.name),
                lease=lease,
                journal=journal,
                sync=sync,
                loop=SignalLoop(),
                deadline=None,
                is_automatic=False,
                drill=False,
                say=print,
            )
            sync.close()
        lease.release()

    def test_checkpoints_are_bound_to_the_profile(
        self, attempt: Attempt, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delenv("MILEPOST_GPU_PROFILE", raising=False)
        assert attempt.environment()["MILEPOST_GPU_PROFILE"] == "a"
        nowhere = replace(attempt, shard=replace(attempt.shard, profile=None))
        assert "MILEPOST_GPU_PROFILE" not in nowhere.environment()

    def test_what_the_user_says_the_gpu_is_stands(
        self, attempt: Attempt, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("MILEPOST_GPU_PROFILE", "h100")
        assert "MILEPOST_GPU_PROFILE" not in attempt.environment()
        monkeypatch.delenv("MILEPOST_GPU_PROFILE")
        without = replace(attempt, spec=replace(SPEC, resources=Resources(gpus=0)))
        assert "MILEPOST_GPU_PROFILE" not in without.environment()
