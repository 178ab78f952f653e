"""The testbed is a real cluster: what the other tests in this folder rely on, seen once each."""

import json
import os
import time
from pathlib import Path

import pytest

from helpers.slurm_cluster import Cluster
from milepost.planner.accounting import read_rows
from milepost.planner.exposure import End
from milepost.slurm.past import past_jobs

pytestmark = pytest.mark.slurm

NODES = ("n1", "n2", "n3", "n4")
MPI_ENVIRONMENT = "export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"


def output(folder: Path, job_id: str) -> str:
    return (folder / f"{job_id}.out").read_text()


def test_status_names_every_daemon_and_node(cluster: Cluster) -> None:
    found = json.loads(cluster.testbed("status", "--json"))
    assert found["up"] is True
    assert {daemon["name"] for daemon in found["daemons"]} > {"slurmctld", "slurmdbd", *NODES}
    assert all(daemon["answers"] and daemon["pid"] for daemon in found["daemons"])
    assert [node["name"] for node in found["nodes"]] == list(NODES)
    assert "testbed in" in cluster.testbed("status").splitlines()[-1]


def test_up_twice_is_harmless(cluster: Cluster) -> None:
    before = json.loads(cluster.testbed("status", "--json"))["daemons"]
    cluster.testbed("up", "--no-install")
    assert json.loads(cluster.testbed("status", "--json"))["daemons"] == before


def test_a_job_runs_on_each_node(cluster: Cluster, tmp_path: Path) -> None:
    jobs = {node: cluster.submit(tmp_path, "echo $SLURMD_NODENAME", "-w", node) for node in NODES}
    for node, job_id in jobs.items():
        assert cluster.wait_end(job_id) == "COMPLETED"
        assert output(tmp_path, job_id).split() == [node]


def test_gpus_are_handed_out_and_counted(cluster: Cluster, tmp_path: Path) -> None:
    job_id = cluster.submit(tmp_path, "echo $CUDA_VISIBLE_DEVICES", "--gres=gpu:3")
    too_many = cluster.submit(tmp_path, "true", "--gres=gpu:4", "-w", "n1", "--hold")
    assert cluster.wait_end(job_id) == "COMPLETED"
    assert len(output(tmp_path, job_id).strip().split(",")) == 3
    assert "gpu:4" in cluster.fields(too_many)["TresPerNode"]


def test_memory_above_the_request_is_killed(cluster: Cluster, tmp_path: Path) -> None:
    script = "srun python3 -c 'b = bytearray(400_000_000); print(len(b))'\necho went on"
    job_id = cluster.submit(tmp_path, script, "--mem=60M")
    assert cluster.wait_end(job_id) == "COMPLETED"  # the script goes on: only the step tells
    assert "went on" in output(tmp_path, job_id)

    def steps() -> dict[str, str]:
        return {row[0]: row[1] for row in cluster.records(job_id)}

    cluster.wait("the step's record", lambda: steps().get(f"{job_id}.0", "RUNNING") != "RUNNING")
    assert steps()[f"{job_id}.0"] == "OUT_OF_MEMORY"


def test_low_gives_way_to_high_and_runs_again(cluster: Cluster, tmp_path: Path) -> None:
    script = (
        "echo attempt ${SLURM_RESTART_COUNT:-0}\n[ ${SLURM_RESTART_COUNT:-0} -gt 0 ] || sleep 300"
    )
    low = cluster.submit(tmp_path, script, "--qos=low", "-w", "n1", "--exclusive")
    cluster.wait_state(low, "RUNNING")
    high = cluster.submit(tmp_path, "true", "--qos=high", "-w", "n1", "--exclusive")
    assert cluster.wait_end(high) == "COMPLETED"
    assert cluster.wait_end(low, 60) == "COMPLETED"
    assert cluster.fields(low)["Restarts"] == "1"
    assert [line for line in output(tmp_path, low).splitlines() if "attempt" in line] == [
        "attempt 0",
        "attempt 1",
    ]
    cluster.wait(
        "both attempts' records", lambda: attempt_states(cluster, low) == {"PREEMPTED", "COMPLETED"}
    )


def attempt_states(cluster: Cluster, job_id: str) -> set[str]:
    return {row[1] for row in cluster.records(job_id) if row[0] == job_id}


def test_partition_cancel_shows_its_notice_and_cancels(cluster: Cluster, tmp_path: Path) -> None:
    options = ("--partition=cancel", "--qos=cancellable", "-w", "n2", "--exclusive")
    victim = cluster.submit(tmp_path, "srun bash -c 'trap \"\" TERM; sleep 300'", *options)
    cluster.wait_state(victim, "RUNNING")
    assert cluster.fields(victim)["PreemptTime"] == "None"
    high = cluster.submit(tmp_path, "true", "--qos=high", "-w", "n2", "--exclusive")
    cluster.wait(
        "a PreemptTime", lambda: cluster.fields(victim).get("PreemptTime") not in ("None", None)
    )
    assert cluster.wait_end(victim, 90) == "PREEMPTED"
    assert cluster.wait_end(high, 90) == "COMPLETED"


def test_sacct_answers_from_slurmdbd(cluster: Cluster, tmp_path: Path) -> None:
    job_id = cluster.submit(tmp_path, "exit 3", "--account=chemistry")
    assert cluster.wait_end(job_id) == "FAILED"

    def record() -> list[str]:
        rows = cluster.records(job_id, "JobID,State,ExitCode,Account,Partition,QOS")
        return rows[0] if rows else []

    expected = [job_id, "FAILED", "3:0", "chemistry", "main", "normal"]
    cluster.wait("the record", lambda: record() == expected)


def test_priority_and_fairshare_answer(cluster: Cluster, tmp_path: Path) -> None:
    full = cluster.submit(tmp_path, "sleep 300", "-N4", "--exclusive")
    cluster.wait_state(full, "RUNNING")
    waiting = cluster.submit(tmp_path, "true", "-N4", "--exclusive")
    cluster.wait(
        "a priority", lambda: cluster.run("sprio", "-h", "-j", waiting, "-o", "%i %Y").strip()
    )
    shares = cluster.run("sshare", "-n", "-P", "-a", "-o", "Account,User,RawShares,FairShare")
    rows = [line.split("|") for line in shares.splitlines()]
    per_account = {row[0].strip(): row[2] for row in rows if not row[1]}
    assert per_account["physics"] == "3"
    assert per_account["chemistry"] == "1"
    assert all(0 <= float(row[3]) <= 1 for row in rows if row[1])


def test_one_minute_partition_does_not_start_longer_jobs(cluster: Cluster, tmp_path: Path) -> None:
    job_id = cluster.submit(tmp_path, "true", "--partition=short", "--time=10")
    cluster.wait("the reason", lambda: cluster.fields(job_id)["Reason"] == "PartitionTimeLimit")
    assert cluster.state(job_id) == "PENDING"


if os.environ.get("MILEPOST_SLOW_TESTS"):  # a minute and a half: only when asked for

    def test_one_minute_partition_ends_longer_jobs(cluster: Cluster, tmp_path: Path) -> None:
        job_id = cluster.submit(tmp_path, "sleep 300", "--partition=short")
        assert cluster.wait_end(job_id, 150) == "TIMEOUT"


def test_mpirun_with_two_ranks(cluster: Cluster, tmp_path: Path) -> None:
    script = f"{MPI_ENVIRONMENT}\nmpirun bash -c 'echo rank $OMPI_COMM_WORLD_RANK of $OMPI_COMM_WORLD_SIZE'"
    job_id = cluster.submit(tmp_path, script, "-n2", "-N2")
    assert cluster.wait_end(job_id) == "COMPLETED", output(tmp_path, job_id)
    assert sorted(output(tmp_path, job_id).splitlines()) == ["rank 0 of 2", "rank 1 of 2"]


def is_failure(job_id: str) -> bool:
    """Does the job count as a failure of its node where the MTBF is estimated?"""
    heard = past_jobs(time.time() - 3600, time.time())
    ends = [span.end for row, span in read_rows(heard.rows, heard.until_s) if row.job_id == job_id]
    return ends == [End.FAILURE]


def test_killed_node_is_missed_and_comes_back(cluster: Cluster, tmp_path: Path) -> None:
    job_id = cluster.submit(tmp_path, "sleep 300", "-w", "n4", "--no-requeue")
    cluster.wait_state(job_id, "RUNNING")
    cluster.testbed("kill-node", "n4")
    try:
        assert cluster.wait_end(job_id, 60) == "NODE_FAIL"
        cluster.wait("the failure in the record", lambda: is_failure(job_id), 60)
        cluster.wait("node down", lambda: cluster.node_state("n4").startswith("down"))
    finally:
        cluster.testbed("start-node", "n4")
    cluster.wait("node idle", lambda: cluster.node_state("n4") == "idle")


def test_accounting_catches_up_after_slurmdbd_was_away(cluster: Cluster, tmp_path: Path) -> None:
    cluster.testbed("stop", "slurmdbd")
    try:
        job_id = cluster.submit(tmp_path, "true")
        assert cluster.wait_end(job_id) == "COMPLETED"
    finally:
        cluster.testbed("start", "slurmdbd")
    cluster.wait("the record", lambda: attempt_states(cluster, job_id) == {"COMPLETED"}, 60)


def test_jobs_outlive_a_restart_of_slurmctld(cluster: Cluster, tmp_path: Path) -> None:
    marker = tmp_path / "go"
    job_id = cluster.submit(tmp_path, f"until [ -e {marker} ]; do sleep 0.2; done")
    cluster.wait_state(job_id, "RUNNING")
    cluster.testbed("stop", "slurmctld")
    cluster.testbed("start", "slurmctld")
    assert cluster.state(job_id) == "RUNNING"
    marker.touch()
    assert cluster.wait_end(job_id) == "COMPLETED"
