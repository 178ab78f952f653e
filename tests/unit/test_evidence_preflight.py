"""The pre-production checklist: each point fails for its own reason and says what to do."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from helpers.disks import SmallDisks, disks
from helpers.project import Project, ok
from milepost.cli.preflight import command
from milepost.config.spec import StageSpec
from milepost.errors import Refused
from milepost.evidence.closeout import Item
from milepost.evidence.preflight import checks
from milepost.evidence.preflight_facts import Alerts, Facts, gather_facts
from milepost.model import WorkKind

__all__ = ["disks"]  # the fixture

SOLVER = """\
import json, pathlib, sys
import numpy as np
from milepost import Checkpointer

out, steps = pathlib.Path(sys.argv[1]), int(sys.argv[2])
rng = np.random.default_rng(7)
x, first = np.zeros(1000), 0
with Checkpointer.from_env() as ck:
    saved = ck.restore()
    if saved is not None:
        x, first = saved.arrays["x"], saved.step + 1
        rng.bit_generator.state = saved.meta["rng"]
    for step in range(first, steps):
        x += rng.random(1000)
        ck.step(step, lambda: ({"x": x}, {"rng": rng.bit_generator.state}))
        if step % 200 == 0:
            ck.save(step, {"x": x}, {"rng": rng.bit_generator.state})
        if ck.stopping:
            sys.exit(75)
(out / "sum.json").write_text(json.dumps({"sum": float(x.sum())}))
"""
KEYS = [
    *("contract", "create_crash_restore", "contents", "interval", "rotation", "upload", "space"),
    *("coordination", "metrics", "retention", "versions", "privacy", "cost"),
]


def solver_run(root: Path, **keys: Any) -> Project:
    project = Project(root)
    project.write("solver.py", SOLVER)
    project.table("md", [{"steps": 601}])
    block: dict[str, Any] = {
        "purpose": "Does the sum stay the same?",
        "software": ["NumPy"],
        "work": {
            "kind": "resumable",
            "members": "config/md.csv",
            "command": "python solver.py {out} {steps}",
        },
        "artifacts": [{"path": "sum.json", "check": "json"}],
        "control": {"file": "sum.json", "metric": "sum"},
        "resources": {"cpus": 1, "mem_mb": 200, "gpus": 0, "runtime_s": 600},
        "smoke": {"tasks": 1},
        "retry": {"limit": 0},
    }
    project.run("md", **{**block, **keys})
    return project


@pytest.fixture(scope="module")
def tested(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A resumable run whose smoke test and plan are done."""
    project = solver_run(tmp_path_factory.mktemp("tested"))
    project.prepare("md", upto="plan")
    return project


@pytest.fixture
def facts(tested: Project) -> Facts:
    return gather_facts(tested.paths("md"))


def point(facts: Facts, key: str) -> Item:
    return next(item for item in checks(facts) if item.key == key)


def test_a_tested_run_fails_nowhere(facts: Facts) -> None:
    found = checks(facts)
    assert [item.key for item in found] == KEYS
    assert {item.key: item.evidence for item in found if item.holds is False} == {}
    assert {item.key for item in found if item.holds} == set(KEYS)
    assert "with its generator's state" in point(facts, "contents").evidence
    assert "SIGKILL after checkpoint" in point(facts, "create_crash_restore").evidence
    assert "one process, decomposition version 1" in point(facts, "coordination").evidence
    assert point(facts, "metrics").evidence.startswith("23 metrics in work/md/metrics/")


def with_spec(**changes: Any) -> Callable[[Facts], Facts]:
    def change(facts: Facts) -> Facts:
        assert facts.spec is not None
        checkpoint = replace(facts.spec.checkpoint, **changes)
        return replace(facts, spec=replace(facts.spec, checkpoint=checkpoint))

    return change


def with_smoke(**changes: Any) -> Callable[[Facts], Facts]:
    return lambda facts: replace(facts, smoke={**(facts.smoke or {}), **changes})


def with_measured(**changes: Any) -> Callable[[Facts], Facts]:
    def change(facts: Facts) -> Facts:
        smoke = dict(facts.smoke or {})
        return replace(facts, smoke=smoke | {"measured": smoke["measured"] | changes})

    return change


def with_plan(**changes: Any) -> Callable[[Facts], Facts]:
    return lambda facts: replace(facts, plan={**(facts.plan or {}), **changes})


def uploader_off_elsewhere(facts: Facts) -> Facts:
    assert facts.spec is not None
    off = replace(facts.spec.checkpoint.uploader, enable=False)
    away = tuple(replace(p, is_shared=False) for p in facts.places)
    return replace(with_spec(uploader=off)(facts), places=away)


def tier_problem(facts: Facts) -> Facts:
    bad = [replace(p, problem="cannot be listed") if p.name == "warm" else p for p in facts.places]
    return replace(facts, places=tuple(bad))


OTHER = "sha256:" + "0" * 64
ILLS: list[tuple[str, Callable[[Facts], Facts], str]] = [
    ("contract", lambda f: replace(f, contract=None), "there is none"),
    ("contract", lambda f: replace(f, changed_inputs=("solver.py",)), "changed since: solver.py"),
    ("create_crash_restore", lambda f: replace(f, smoke=None), "there is no smoke test"),
    ("create_crash_restore", with_smoke(contract_digest=OTHER), "of another contract"),
    ("create_crash_restore", with_smoke(passed=False, reason="no"), "it did not pass: no"),
    ("create_crash_restore", with_smoke(killed=None), "does not say that anything was killed"),
    ("create_crash_restore", with_smoke(control={"equal": None}), "were not compared"),
    ("contents", lambda f: replace(f, rehearsed=()), "left no generation"),
    ("contents", with_spec(contents=("state.json",)), "has no state.json"),
    ("contents", with_spec(contents=("rank_{rank}.bin", "x.bin")), "has no x.bin"),
    ("interval", with_measured(t_ckpt_s=None), "measured no checkpoint"),
    ("interval", lambda f: replace(f, plan=None), "no plan chose one"),
    ("interval", with_measured(durable_s=1e6), "later than the next is due"),
    ("rotation", with_spec(rotation=1), "only the newest one"),
    ("upload", uploader_off_elsewhere, "a node that dies takes them along"),
    ("upload", tier_problem, "cannot be listed"),
    ("space", with_measured(ckpt_bytes=1 << 43), "may be used (1 shard x 4 x 8.8 TB)"),
    ("coordination", lambda f: replace(f, rehearsed=()), "left no generation"),
    ("metrics", lambda f: replace(f, rehearsed=()), "wrote no metrics"),
    ("metrics", lambda f: replace(f, alerts=Alerts(1, ("milepost_x",))), "milepost_x"),
    ("retention", with_spec(ttl_days=None), "kept for ever"),
    ("versions", lambda f: replace(f, versions={"python": "2.7"}), "python 3."),
    ("privacy", lambda f: replace(f, credentials=("work.command",)), "work.command"),
    ("privacy", lambda f: replace(f, key_problem="no such file"), "no such file"),
    ("cost", lambda f: replace(f, plan=None), "there is no plan"),
    ("cost", with_plan(contract_digest=OTHER), "of another contract"),
]


@pytest.mark.parametrize(
    ("key", "ill", "says"), ILLS, ids=lambda v: v if isinstance(v, str) else ""
)
def test_each_point_fails_for_its_own_reason(
    facts: Facts, key: str, ill: Callable[[Facts], Facts], says: str
) -> None:
    found = point(ill(facts), key)
    assert found.holds is False and says in found.evidence
    assert found.next_action != ""


def test_what_was_not_measured_does_not_apply(facts: Facts) -> None:
    assert point(with_plan(overhead={"useful_s": None})(facts), "cost").holds is None
    later = tuple(replace(p, free_bytes=None, is_known_later=True) for p in facts.places)
    unknown = point(replace(facts, places=later), "space")
    assert unknown.holds is True and "known only in the job" in unknown.evidence


def test_without_a_price_the_cost_is_not_known_and_with_profiles_it_must_be(facts: Facts) -> None:
    assert "cost n/a" in point(facts, "cost").evidence
    assert facts.spec is not None
    priced = replace(facts.spec, planner=replace(facts.spec.planner, profiles="gpu.yaml"))
    assert point(replace(facts, spec=priced), "cost").holds is False
    money = with_plan(cost={"total": 12.5, "currency": "USD"})(replace(facts, spec=priced))
    assert point(money, "cost").evidence.endswith("cost 12.5 USD")


def test_a_flipped_bit_in_the_slice_and_a_changed_input(tmp_path: Path, tested: Project) -> None:
    project = tested.copy_to(tmp_path / "copy")
    data = next(project.paths("md").smoke_work.glob("*/undisturbed/scratch/md/*/ckpt/*/rank_0.bin"))
    newest = max(data.parent.parent.glob("0*"))
    content = bytearray((newest / "rank_0.bin").read_bytes())
    content[4096] ^= 1
    (newest / "rank_0.bin").write_bytes(content)
    project.write("solver.py", SOLVER + "# changed\n")
    done = project.milepost("preflight", "md")
    assert done.returncode == 20
    assert "FAIL  contents" in done.stdout and "digest" in done.stdout
    assert "FAIL  contract" in done.stdout and "solver.py" in done.stdout
    assert "next: milepost contract md" in done.stderr
    assert max(map(len, done.stdout.splitlines())) <= 80


def test_a_small_disk_has_no_room(tmp_path: Path, tested: Project, disks: SmallDisks) -> None:
    project = tested.copy_to(tmp_path / "copy")
    scratch = disks.mount(tmp_path / "disk", 128)
    contract = project.paths("md").frozen_contract
    data = json.loads(contract.read_text())
    data["accepted"]["tiers"]["scratch"] = str(scratch)
    contract.write_text(json.dumps(data))
    found = point(gather_facts(project.paths("md")), "space")
    assert found.holds is True
    (scratch / "rest").write_bytes(b"x" * (80 << 10))
    found = point(gather_facts(project.paths("md")), "space")
    assert found.holds is False and "scratch" in found.evidence and "kB" in found.evidence
    (scratch / "rest").write_bytes(b"x" * (128 << 10))
    refused = project.milepost("submit", "md")
    assert refused.returncode == 13
    assert "scratch" in refused.stderr and "nothing was launched" in refused.stderr


def test_a_tier_that_may_not_be_written(tmp_path: Path, tested: Project, disks: SmallDisks) -> None:
    project = tested.copy_to(tmp_path / "copy")
    warm = disks.mount(tmp_path / "disk", 128)
    contract = project.paths("md").frozen_contract
    data = json.loads(contract.read_text())
    data["accepted"]["tiers"]["warm"] = str(warm)
    contract.write_text(json.dumps(data))
    assert point(gather_facts(project.paths("md")), "upload").holds is True
    disks.remount(warm, "ro")
    found = point(gather_facts(project.paths("md")), "upload")
    assert found.holds is False and "may not be written" in found.evidence


def test_what_is_public_or_secret_is_looked_at(tmp_path: Path) -> None:
    project = solver_run(
        tmp_path,
        purpose="Does it work for a.b@example.org?",
    )
    project.prepare("md", upto="contract")
    found = point(gather_facts(project.paths("md")), "privacy")
    assert found.holds is False and "the purpose: 1 mail" in found.evidence
    work = project.runs["md"]["work"] | {"environment": {"LAB_TOKEN": "q7Rz2LmXv9Kc4T"}}
    project.run("md", purpose="Does it work?", work=work)
    project.prepare("md", upto="contract")
    found = point(gather_facts(project.paths("md")), "privacy")
    assert found.holds is False and "work.environment.LAB_TOKEN" in found.evidence
    assert "q7Rz2" not in found.evidence


def test_batch_work_has_no_checkpoints_and_that_is_no_failure(tmp_path: Path) -> None:
    project = Project(tmp_path)
    project.batch("squares", [1, 2, 3, 4])
    project.prepare("squares", upto="plan")
    found = {item.key: item for item in checks(gather_facts(project.paths("squares")))}
    away = {k for k, item in found.items() if item.holds is None}
    assert away == {
        *("contents", "interval", "rotation", "upload", "coordination", "metrics", "retention")
    }
    assert [item for item in found.values() if item.holds is False] == []


def test_the_seams_of_a_pipeline_are_its_checkpoints(facts: Facts) -> None:
    assert facts.spec is not None
    stages = (StageSpec("align", "x", ("a.bam",)), StageSpec("sort", "x", ("b.bam", "b.bai")))
    work = replace(facts.spec.work, kind=WorkKind.STAGES, stages=stages)
    found = point(replace(facts, spec=replace(facts.spec, work=work)), "contents")
    assert found.holds is True
    assert found.evidence == "2 seams, 3 outputs verified before they count"


def test_nothing_done_yet_is_said_point_by_point(tmp_path: Path) -> None:
    project = solver_run(tmp_path)
    project.prepare("md", upto="contract")
    done = project.milepost("preflight", "--json")
    (one,) = json.loads(done.stdout)
    assert done.returncode == 20 and one["run"] == "md" and one["ready"] is False
    bad = {c["key"]: c["next_action"] for c in one["checks"] if c["holds"] is False}
    assert bad["create_crash_restore"] == "milepost smoke md"
    assert bad["cost"] == "milepost plan md"
    assert set(bad) == {
        *("create_crash_restore", "contents", "interval", "coordination", "metrics", "cost")
    }


def test_no_contract_at_all(tmp_path: Path) -> None:
    result = CliRunner().invoke(command, ["md", "--root", str(tmp_path)])
    assert isinstance(result.exception, Refused) and "FAIL  contract" in result.stdout
    nothing = CliRunner().invoke(command, ["--root", str(tmp_path)])
    assert "there is no contract here" in str(nothing.exception)


def test_submit_says_what_fails_and_goes_on(tmp_path: Path, tested: Project) -> None:
    project = tested.copy_to(tmp_path / "copy")
    assert "preflight:" not in ok(project.milepost("submit", "md")).stderr
    project.run("md", checkpoint={"rotation": 1})
    ok(project.milepost("contract", "md"))
    again: subprocess.CompletedProcess[str] = ok(project.milepost("submit", "md"))
    assert "preflight: rotation: only the newest one" in again.stderr
