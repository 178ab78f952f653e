"""The public record: allowed fields only, and nothing private in it, wherever it was planted."""

from __future__ import annotations

import html
import json
import socket
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from helpers.project import Project, ok, said
from helpers.run_folder import FINDING, RunFolder, finished_simulation, finished_sweep
from helpers.secrets import CREDENTIALS, PLANTED
from milepost.cli.closeout import command
from milepost.evidence.closing import close
from milepost.evidence.gather import gather
from milepost.evidence.public_texts import public_texts
from milepost.journal import read_journal

PUBLIC = ("public.json", "public.md", "ro-crate-metadata.json")
FIELDS = {
    *("schema", "verdict", "milepost", "purpose", "software", "workload", "resource_class"),
    *("artifacts", "resume", "stop", "counts", "durations", "failure_modes", "accepted", "open"),
    *("note", "withheld"),
}


def written(folder: RunFolder, partial: bool = True) -> dict[str, str]:
    close(folder.paths, now="2026-03-02T00:00:00.000Z", partial=partial)
    return {p.name: p.read_text(encoding="utf-8") for p in folder.paths.closeout.iterdir()}


def record_of(folder: RunFolder) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(written(folder)["public.json"])
    return found


def test_only_allowed_fields(tmp_path: Path) -> None:
    record = record_of(finished_simulation(tmp_path))
    assert set(record) <= FIELDS
    assert record["artifacts"] == [".json: json"]
    assert record["counts"]["interruptions"] == 1
    assert record["durations"]["core_hours_lost"] == pytest.approx(8 / 3600, rel=1e-3)


def test_a_harmless_note_is_published(tmp_path: Path) -> None:
    (tmp_path / "note.md").write_text("It was quick.\n", encoding="utf-8")
    folder = RunFolder(tmp_path).contract(privacy={"public_note": "note.md"})
    record = record_of(folder)
    assert record["note"] == "It was quick." and "withheld" not in record
    assert "## Note\n\nIt was quick." in written(folder)["public.md"]


@pytest.mark.parametrize("kind", PLANTED)
def test_a_text_that_tells_something_private_is_withheld(tmp_path: Path, kind: str) -> None:
    planted = PLANTED[kind]
    text = f"Which one binds? {planted.text}\nIt was quick."
    (tmp_path / "note.md").write_text(text, encoding="utf-8")
    folder = RunFolder(tmp_path).contract(
        purpose=text, software=["NumPy", text], privacy={"public_note": "note.md"}
    )
    files = written(folder)
    for name in PUBLIC:
        assert [word for word in planted.secrets if word in files[name]] == [], name
        assert "It was quick" not in files[name]
    record = json.loads(files["public.json"])
    assert [w["text"] for w in record["withheld"]] == ["purpose", "software", "note"]
    assert record["software"] == ["NumPy"] and "purpose" not in record
    assert "Withheld, since private words stand in it: purpose (" in files["public.md"]


def test_closeout_says_what_it_withheld_and_how_to_see_it(tmp_path: Path) -> None:
    (tmp_path / "note.md").write_text("Quick.\nBy a.b@example.org\n", encoding="utf-8")
    RunFolder(tmp_path).contract(privacy={"public_note": "note.md"}).smoke().plan()
    done = CliRunner().invoke(command, ["sweep", "--partial", "--root", str(tmp_path)])
    assert "1 text withheld from the public record, the note (note.md:2): 1 mail" in done.stderr
    assert 'in "By [mail]"' in done.stderr
    assert "next: milepost public --check note.md --run sweep; mend it and close" in done.stderr


def test_what_only_the_run_knows_as_private_is_looked_for(tmp_path: Path) -> None:
    folder = finished_sweep(tmp_path)
    folder.attempt("0001", 2, host="isar12.lab", slurm_job_id="770815")
    folder.paths.frozen_submission.unlink()
    words = {"host": "isar12", "job": "770815", "account": "phys_ml", "environment": "kistchen"}
    folder.contract(
        software=[*words.values(), "NumPy"],
        slurm={"account": "phys_ml", "qos": "normal"},
        work={
            "kind": "batch",
            "tasks": "config/tasks.csv",
            "command": "python fit.py --C {C} --out {out}",
            "environment": {"CACHE": "kistchen"},
        },
    )
    texts = public_texts(gather(folder.paths))
    assert texts.software == ("NumPy",)
    assert [kind for w in texts.withheld for kind in w.kinds] == list(words)


def test_names_of_files_and_of_own_signatures_stay_at_home(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path, "kessler-run").contract(
        artifacts=[
            {"path": "score.kessler17", "check": "exists"},
            {"path": "mkessler.csv", "check": "exists"},
        ]
    )
    folder.table({"0001": {"a1": {}, "a2": {}}})
    own = FINDING | {"subclass": "isar_down", "evidence": ["on isar12"]}
    folder.failed("0001", "a1", finding=own)
    folder.failed("0001", "a2", finding=own | {"class": "kessler", "action": "ask_kessler"})
    files = written(folder)
    record = json.loads(files["public.json"])
    assert record["artifacts"] == [".csv: exists", "file: exists"]
    modes = [(m["class"], m["subclass"], m["action"]) for m in record["failure_modes"]]
    assert modes == [("runtime", "other", "fix_no_retry"), ("unclassified", "other", "none")]
    assert record["failure_modes"][0]["fix"] == "mend the cause first"
    for name in PUBLIC:
        assert "kessler" not in files[name] and "isar" not in files[name]


SECRETS_TASK = """\
import json, os, pathlib, sys

out, secret = pathlib.Path(sys.argv[1]), sys.argv[2]
print("starting with", secret)
print("environment:", os.environ["LAB_SECRET"], file=sys.stderr)
name = "".join(c if c.isalnum() or c in "-_.@" else "_" for c in secret)[:80]
(out / (name + ".txt")).write_text(secret)
if "fails" in sys.argv:
    raise RuntimeError("cannot use " + secret)
(out / "score.json").write_text(json.dumps({"said": secret, "n": len(secret)}) + "\\n")
"""


@pytest.fixture(scope="module")
def planted_run(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A real run, closed with failures, with every planted thing in every input that takes text."""
    project = Project(tmp_path_factory.mktemp("planted"))
    all_ = " ; ".join(p.text for p in PLANTED.values())
    project.write("task.py", SECRETS_TASK)
    project.write("notes/mkessler.md", "Quick.\n" + all_)
    texts = [p.text.replace("\n", " ") for p in PLANTED.values()]
    rows = [{"secret": text, "how": "works"} for text in texts]
    rows += [{"secret": text, "how": "fails"} for text in texts[::7]]
    project.table("mkessler", rows)
    project.tiers = {"scratch": str(project.root / "scratch"), "warm": str(project.root / "warm")}
    project.run(
        "planted",
        purpose=f"Which one binds? {all_}",
        software=[*texts, "NumPy"],
        work={
            "kind": "batch",
            "tasks": "config/mkessler.csv",
            "command": "python -I -S task.py {out} {secret} {how} --token ghp_a1B2c3D4e5F6g7H8i9J0k1",
            "result": {"file": "score.json"},
            "environment": {"LAB_SECRET": all_.replace("\n", " "), "SLURM_JOB_ACCOUNT_X": "grpq17"},
        },
        artifacts=[{"path": "score.json", "check": "json"}],
        resources={"cpus": 2, "mem_mb": 100, "gpus": 0, "runtime_s": 600},
        slurm={"account": "phys_ml17", "partition": "volta-long", "qos": "urgent-mk"},
        smoke={"tasks": 2},
        shards={"count": 2},
        retry={"limit": 0},
        privacy={"public_note": "notes/mkessler.md"},
    )
    project.prepare("planted")
    shards = [project.milepost("shard", "planted", name) for name in ("0001", "0002")]
    assert [done.returncode for done in shards] == [0, 11]
    project.write("said/shards.txt", "".join(map(said, shards)))
    closed = project.milepost("closeout", "planted", "--accept", f"good enough, said {all_}")
    ok(closed)
    assert "texts withheld from the public record" in closed.stderr
    return project


def test_the_run_did_hold_what_was_planted(planted_run: Project) -> None:
    """Otherwise what follows would prove nothing."""
    paths = planted_run.paths("planted")
    logs = b"".join(p.read_bytes() for p in sorted(paths.work.rglob("*.log")))
    contract = paths.contract.read_text(encoding="utf-8")
    names = " ".join(str(p) for p in paths.artifacts.rglob("*"))
    for planted in PLANTED.values():
        word = planted.secrets[0]
        assert word.encode() in logs
        assert (
            json.dumps(word)[1:-1] in contract
            or json.dumps(word, ensure_ascii=False)[1:-1] in contract
        )
    assert "hartwig" in names and "FAILED" in paths.reconcile.read_text()


@pytest.mark.parametrize("name", PUBLIC)
def test_a_real_run_publishes_none_of_it(planted_run: Project, name: str) -> None:
    text = (planted_run.paths("planted").closeout / name).read_text(encoding="utf-8")
    plain = json.dumps(json.loads(text), ensure_ascii=False) if name.endswith("json") else text
    for kind, planted in PLANTED.items():
        assert [word for word in planted.secrets if word in text or word in plain] == [], kind
    more = ["grpq17", "planted", str(planted_run.root), "mkessler", "ghp_", "phys_ml17"]
    more += [socket.gethostname(), "0001", "config/"]
    assert [word for word in more if word in text] == []
    assert "NumPy" in text
    if name == "public.json":
        record = json.loads(text)
        assert set(record) <= FIELDS and record["verdict"] == "CLOSED WITH ACCEPTED FAILURES"
        assert record["failure_modes"][0]["count"] == len(list(PLANTED)[::7])


WRITTEN = ["closeout/record.json", "closeout/report.html", "reconcile.csv"]


@pytest.mark.parametrize("name", WRITTEN)
def test_no_record_of_it_holds_a_credential(planted_run: Project, name: str) -> None:
    text = (planted_run.paths("planted").results / name).read_text(encoding="utf-8")
    assert_no_credential(text)


def test_nothing_that_it_says_holds_a_credential(planted_run: Project) -> None:
    texts = [(planted_run.root / "said/shards.txt").read_text(encoding="utf-8")]
    for words in (
        ["why", "planted/0002"],
        ["doctor", "planted"],
        ["status"],
        ["reconcile", "planted"],
        ["classify", *map(str, planted_run.paths("planted").shard("0002").attempts.glob("*.log"))],
    ):
        texts.append(said(planted_run.milepost(*words)))
    assert "1 FAILED" in texts[4] and "runtime/" in texts[5]
    for text in texts:
        assert_no_credential(text)


def assert_no_credential(text: str) -> None:
    readings = [text, html.unescape(text), text.replace("\\/", "/").replace('\\"', '"')]
    for kind in CREDENTIALS:
        found = [w for w in PLANTED[kind].secrets if any(w in reading for reading in readings)]
        assert found == [], kind
    assert "ghp_a1B2" not in text


def test_milepost_copies_no_credential_into_journal_or_attempts(planted_run: Project) -> None:
    """What a task was told stands in its row; what its log said is copied without."""
    shards = planted_run.paths("planted").work / "shards"
    copies = [json.loads(p.read_text())["finding"] for p in shards.glob("*/attempts/[0-9].json")]
    for path in shards.glob("*/journal.csv"):
        copies += [row.data for row in read_journal(path).failed.values()]
    text = json.dumps(copies, ensure_ascii=False)
    assert "RuntimeError" in text
    for kind in CREDENTIALS:
        assert [word for word in PLANTED[kind].secrets if word in text] == [], kind
