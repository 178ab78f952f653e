"""`milepost why` and `milepost shell` on a real Slurm: what waits, what ended, what cannot start."""

import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from helpers.run_folder import RunFolder
from helpers.slurm_cluster import Cluster
from milepost.cli.shell import command as shell
from milepost.evidence.why import why_job, why_shard
from milepost.evidence.why_json import as_json
from milepost.evidence.why_text import told
from milepost.model import Action
from milepost.resources import load_yaml
from milepost.slurm.reasons import all_reasons

pytestmark = pytest.mark.slurm


def why(job_id: str, folder: Path) -> tuple[str, Any]:
    """The text in one line, and the plain data."""
    story = why_job(job_id, folder)
    text = told(story)
    assert all(len(line) <= 80 for line in text.splitlines()), text
    return " ".join(text.split()), as_json(story)


def wait_reason(cluster: Cluster, job_id: str, reason: str) -> None:
    cluster.wait(f"reason {reason}", lambda: cluster.fields(job_id).get("Reason") == reason)


def wait_recorded(cluster: Cluster, job_id: str) -> None:
    """Until the accounting has the job's end, its steps included."""

    def is_recorded() -> bool:
        rows = cluster.records(job_id)
        return bool(rows) and all(row[1] not in ("PENDING", "RUNNING") for row in rows)

    cluster.wait("the accounting's record", is_recorded)


def test_waiting_for_resources_has_priority_share_and_forecast(
    cluster: Cluster, tmp_path: Path
) -> None:
    node = ("-w", "n2", "--exclusive", "--qos=high")
    full = cluster.submit(tmp_path, "sleep 300", *node, "--time=5")
    cluster.wait_state(full, "RUNNING", patience_s=90)
    waiting = cluster.submit(tmp_path, "true", *node, "--time=1")
    wait_reason(cluster, waiting, "Resources")

    def is_forecast() -> bool:
        return why(waiting, tmp_path)[1]["waiting"]["forecast"] is not None

    cluster.wait("a forecast", is_forecast, 60)
    text, plain = why(waiting, tmp_path)
    assert "why Resources: it is first in line" in text and "waiting helps" in text
    assert plain["waiting"]["priority"]["value"] > 0
    assert plain["waiting"]["fair_share"]["factor"] is not None
    assert plain["not_heard"] == []
    running, data = why(full, tmp_path)
    assert "running n2 since" in running and data["running"]["left_s"] <= 300


def test_dependency_that_can_never_be_satisfied(cluster: Cluster, tmp_path: Path) -> None:
    failing = cluster.submit(tmp_path, "exit 1", "--hold")
    follower = cluster.submit(tmp_path, "true", f"--dependency=afterok:{failing}")
    cluster.run("scontrol", "release", failing)
    wait_reason(cluster, follower, "DependencyNeverSatisfied")
    text, plain = why(follower, tmp_path)
    assert f"afterok:{failing}" in text and "can never start" in text
    assert f"$ scancel {follower}" in text
    assert plain["waiting"]["reason"]["category"] == "never"


def test_time_limit_of_the_partition_and_the_command_that_mends_it(
    cluster: Cluster, tmp_path: Path
) -> None:
    job_id = cluster.submit(tmp_path, "true", "--partition=short", "--time=10", "--qos=high")
    wait_reason(cluster, job_id, "PartitionTimeLimit")
    _, plain = why(job_id, tmp_path)
    fix = plain["waiting"]["reason"]["command"]
    assert fix == f"scontrol update jobid={job_id} timelimit=00:01:00"
    cluster.run(*shlex.split(fix))
    assert cluster.wait_end(job_id, 60) == "COMPLETED"


def test_held_by_the_user_and_released_as_told(cluster: Cluster, tmp_path: Path) -> None:
    job_id = cluster.submit(tmp_path, "true", "--qos=high")
    held = cluster.submit(tmp_path, "true", "--hold", "--qos=high")
    text, plain = why(held, tmp_path)
    assert "why JobHeldUser" in text and "held until it is released" in text
    cluster.run(*shlex.split(plain["waiting"]["reason"]["command"]))
    assert cluster.wait_end(held, 60) == "COMPLETED"
    cluster.wait_end(job_id, 60)


def test_requeued_on_hold_is_told_in_words(cluster: Cluster, tmp_path: Path) -> None:
    job_id = cluster.submit(tmp_path, "sleep 300", "--qos=high")
    cluster.wait_state(job_id, "RUNNING", patience_s=60)
    cluster.run("scontrol", "requeuehold", job_id)
    cluster.wait_state(job_id, "PENDING")
    cluster.wait(
        "the record of the first attempt",
        lambda: "REQUEUED" in [row[1] for row in cluster.records(job_id)],
    )
    text, plain = why(job_id, tmp_path)
    assert "why JobHeldUser (job requeued in held state)" in text
    assert plain["attempts"][0]["state"] == "REQUEUED"


def test_exit_1_names_the_cause_in_the_log(cluster: Cluster, tmp_path: Path) -> None:
    script = "echo 'ModuleNotFoundError: No module named solver' >&2\nexit 1"
    job_id = cluster.submit(tmp_path, script, "--qos=high")
    assert cluster.wait_end(job_id, 60) == "FAILED"
    wait_recorded(cluster, job_id)
    text, plain = why(job_id, tmp_path)
    (attempt,) = plain["attempts"]
    assert (attempt["state"], attempt["exit"]) == ("FAILED", "1:0")
    assert attempt["finding"]["subclass"] == "dependency_import"
    assert attempt["asked_bytes"] and attempt["cpus"] and attempt["where"].startswith("n")
    assert "| ModuleNotFoundError" in text and "next mend" in text


def test_exit_137_is_explained(cluster: Cluster, tmp_path: Path) -> None:
    job_id = cluster.submit(tmp_path, "bash -c 'kill -9 $$'\nexit $?", "--qos=high")
    assert cluster.wait_end(job_id, 60) == "FAILED"
    wait_recorded(cluster, job_id)
    assert "128 + 9: a process was ended by signal KILL" in why(job_id, tmp_path)[0]


def test_killed_for_memory(cluster: Cluster, tmp_path: Path) -> None:
    script = "python3 -c 'b = bytearray(400_000_000); print(len(b))'"
    job_id = cluster.submit(tmp_path, script, "--mem=60M", "--qos=high")
    assert cluster.wait_end(job_id, 60) == "OUT_OF_MEMORY"
    wait_recorded(cluster, job_id)
    text, plain = why(job_id, tmp_path)
    assert plain["attempts"][0]["finding"]["action"] == "retry_more_memory"
    assert "(90 MB: --mem)" in text


def test_log_folder_that_is_missing(cluster: Cluster, tmp_path: Path) -> None:
    closed = "--output=/proc/none/%j.out"
    job_id = cluster.submit(tmp_path, "true", closed, "--qos=high")
    assert cluster.wait_end(job_id, 60) == "FAILED"
    wait_recorded(cluster, job_id)
    assert "its output file could not be opened" in why(job_id, tmp_path)[0]


def test_accounting_away_is_said(cluster: Cluster, tmp_path: Path) -> None:
    job_id = cluster.submit(tmp_path, "exit 3", "--qos=high")
    assert cluster.wait_end(job_id, 60) == "FAILED"
    cluster.testbed("stop", "slurmdbd")
    try:
        text, plain = why(job_id, tmp_path)
    finally:
        cluster.testbed("start", "slurmdbd")
    assert "accounting (sacct) not heard" in text
    assert plain["attempts"][0]["exit"] == "3:0"
    assert plain["attempts"][0]["max_rss_bytes"] is None


def test_job_of_a_shard_is_told_with_its_shard(cluster: Cluster, tmp_path: Path) -> None:
    folder = RunFolder(tmp_path).contract().table({"0001": {"a": {"C": 1}}})
    folder.paths.shard("0001").live.mkdir(parents=True)
    comment = "--comment=rule_shard_wildcards_sweep_0001"
    job_id = cluster.submit(tmp_path, "true", comment, "--hold", "--qos=high")
    by_job, by_shard = why_job(job_id, tmp_path), why_shard(folder.paths, "0001")
    assert (by_job.run, by_job.shard) == ("sweep", "0001")
    assert by_shard.job_id == job_id and by_shard.waiting is not None


def test_shard_killed_for_memory_joins_both_records(cluster: Cluster, tmp_path: Path) -> None:
    folder = RunFolder(tmp_path).contract().table({"0001": {"a": {"C": 1}}})
    (tmp_path / "fit.py").write_text("b = bytearray(400_000_000)\nprint(len(b))\n")
    shard = f"{sys.executable} -m milepost.cli.main shard sweep 0001"
    comment = "--comment=rule_shard_wildcards_sweep_0001"
    options = (comment, "--mem=150M", "-c2", "--qos=high", "--time=5")
    job_id = cluster.submit(tmp_path, shard, *options)
    cluster.wait_end(job_id, 90)
    wait_recorded(cluster, job_id)
    story = why_shard(folder.paths, "0001")
    text = told(story)
    assert (story.job_id, len(story.attempts)) == (job_id, 1), text
    (attempt,) = story.attempts
    assert attempt.number == 1 and attempt.where is not None and attempt.where.startswith("n")
    assert attempt.finding is not None
    assert attempt.finding.action is Action.RETRY_MORE_MEMORY, text
    assert "snakemake --profile slurm results/sweep/shards/0001/journal.csv" in text


def test_job_that_died_before_its_runner_began_is_told(cluster: Cluster, tmp_path: Path) -> None:
    folder = RunFolder(tmp_path).contract().table({"0001": {"a": {"C": 1}}})
    comment = "--comment=rule_shard_wildcards_sweep_0001"
    job_id = cluster.submit(tmp_path, "no-such-program", comment, "--qos=high")
    assert cluster.wait_end(job_id, 60) == "FAILED"
    story = why_shard(folder.paths, "0001")
    assert (story.job_id, story.attempts[0].number) == (job_id, None)
    assert "the command was not found" in " ".join(told(story).split())


def test_shell_runs_on_a_node_with_the_environment(cluster: Cluster, tmp_path: Path) -> None:
    small = {"cpus": 1, "mem_mb": 100, "gpus": 0, "runtime_s": 60}
    RunFolder(tmp_path).contract(resources=small).table({"0001": {"a": {"C": 1}}})
    words = ["sweep", "0001", "--root", str(tmp_path), "--print", "--program", "printenv"]
    shown = CliRunner().invoke(shell, [*words, "--", "--qos=high"])
    argv = [w for w in shlex.split(shown.stdout.replace("\\\n", "")) if w != "--pty"]
    result = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=True)
    assert "MILEPOST_SHARD=0001" in result.stdout
    assert "SLURM_CPUS_PER_TASK=1" in result.stdout and "SLURM_JOB_ID=" in result.stdout


def test_every_command_of_the_table_is_one_that_this_slurm_takes(cluster: Cluster) -> None:
    """The columns that sacctmgr is asked for exist; what changes a job is not run here."""
    newer = {name for name, reason in all_reasons().items() if (reason.since or "") > "22.05"}
    values = {"account": "physics", "qos": "normal", "user": "root", "job": "1", "limit": "1"}
    seen = set()
    for name, reason in all_reasons().items():
        for words in reason.filled(values | {"partition": "main"}).remedy.split("; "):
            if words.startswith("sacctmgr show") and name not in newer:
                seen.add(words)
    assert len(seen) > 10
    for words in sorted(seen):
        cluster.run(*shlex.split(words))


def test_reasons_that_this_slurm_has_are_in_the_table(cluster: Cluster) -> None:
    """Slurm's own library names them; the table must know each."""
    library = next(Path("/usr/lib").glob("*/slurm-wlm/libslurmfull.so"), None)
    if library is None:
        pytest.skip("the library of this Slurm is not where Debian has it")
    names = set(load_yaml("policies", "pending_reasons.yaml")["words"]["owner"])
    strings = subprocess.run(
        ["grep", "-aoE", "(Assoc|QOS)(Grp|Max|Min)[A-Za-z]+", str(library)],
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    words = {w for w in strings.stdout.split() if w.startswith(tuple(names))}
    assert len(words) > 100
    unknown = {w for w in words if w not in all_reasons()}
    assert unknown == set()


def test_the_page_shows_what_is_printed(cluster: Cluster, tmp_path: Path) -> None:
    RunFolder(tmp_path).contract().table({"0001": {"a": {"C": 1}}})
    options = ("--partition=short", "--time=10", "--qos=high")
    comment = "--comment=rule_shard_wildcards_sweep_0001"
    job_id = cluster.submit(tmp_path, "true", *options, comment)
    wait_reason(cluster, job_id, "PartitionTimeLimit")
    page = (Path(__file__).parents[2] / "docs" / "why.md").read_text(encoding="utf-8")
    shown = page.split("$ milepost why 171\n")[1].split("  submitted")[0]
    printed = told(why_job(job_id, tmp_path)).split("  submitted")[0]
    assert printed == shown.replace("171", job_id)


def test_the_command_line_answers(cluster: Cluster, tmp_path: Path) -> None:
    job_id = cluster.submit(tmp_path, "true", "--hold", "--qos=high")
    argv = [sys.executable, "-m", "milepost.cli.main", "why", job_id, "--json"]
    result = subprocess.run(
        argv, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True
    )
    assert json.loads(result.stdout)["waiting"]["reason"]["name"] == "JobHeldUser"
