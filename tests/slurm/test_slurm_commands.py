"""What milepost reads from Slurm's commands, on a real one."""

import os
import time
from pathlib import Path

import pytest

from helpers.slurm_cluster import Cluster
from milepost.slurm import control
from milepost.slurm.command import NotHeard
from milepost.slurm.exitcode import ExitCode
from milepost.slurm.history import history
from milepost.slurm.limits import cluster_limits, partitions, submit_limits
from milepost.slurm.queue import job_details, ping, queue
from milepost.slurm.records import AttemptRecord
from milepost.slurm.request import test_only
from milepost.slurm.sacct_json import parse_json
from milepost.slurm.version import slurm_version
from milepost.slurm.witness import Word, ask, listen

pytestmark = pytest.mark.slurm

NOWHERE = "4000000"


def attempts(job_id: str) -> list[AttemptRecord]:
    return history([job_id], time.time() - 3600).get(job_id, [])


def wait_record(cluster: Cluster, job_id: str, count: int = 1) -> list[AttemptRecord]:
    """Wait until slurmdbd has the ends of so many attempts and of all their steps."""

    def is_recorded() -> bool:
        try:
            found = attempts(job_id)
        except NotHeard:
            return False
        steps = [step for one in found for step in one.steps]
        ended = [one for one in found if one.end is not None]
        is_whole = all(one.req_mem_bytes is not None for one in ended)
        return (
            len(ended) >= count and is_whole and all(step.state.base != "RUNNING" for step in steps)
        )

    cluster.wait(f"{count} records of job {job_id}", is_recorded, 60)
    return attempts(job_id)


def test_listed_not_listed_and_not_heard(cluster: Cluster, tmp_path: Path) -> None:
    name = "na me|x JobState=FAILED"
    job_id = cluster.submit(
        tmp_path, "true", "--hold", f"--job-name={name}", "--comment=a State=b c"
    )
    found = queue([job_id, NOWHERE], restarts=True)
    assert list(found) == [job_id]
    entry = found[job_id]
    assert entry.state.is_waiting
    assert (entry.reason.word, entry.reason.is_held) == ("JobHeldUser", True)
    assert (entry.name, entry.restarts, entry.priority) == (name, 0, 0)
    assert entry.submit == pytest.approx(time.time(), abs=60)
    assert queue([NOWHERE]) == {}
    assert job_details(NOWHERE) is None
    details = job_details(job_id)
    assert details is not None
    assert details.state.base == "PENDING"
    assert details.comment == "a State=b c"
    assert details.fields["JobName"] == name
    assert details.work_dir == str(tmp_path)
    assert ping()


def test_a_silent_controller_is_not_heard(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = Path("/etc/slurm/slurm.conf").read_text().splitlines()
    kept = [line for line in lines if not line.startswith(("SlurmctldPort=", "SlurmctldTimeout="))]
    nobody_there = ["SlurmctldPort=16899", "SlurmctldTimeout=1", "MessageTimeout=2", ""]
    other = tmp_path / "slurm.conf"
    other.write_text("\n".join([*kept, *nobody_there]))
    monkeypatch.setenv("SLURM_CONF", str(other))
    with pytest.raises(NotHeard):
        queue([NOWHERE])
    with pytest.raises(NotHeard):
        job_details(NOWHERE)
    with pytest.raises(NotHeard):
        control.cancel(NOWHERE)
    with pytest.raises(NotHeard):
        test_only({})


def test_silent_accounting_is_not_heard(cluster: Cluster, tmp_path: Path) -> None:
    cluster.testbed("stop", "slurmdbd")
    try:
        job_id = cluster.submit(tmp_path, "sleep 300")
        with pytest.raises(NotHeard):
            attempts(job_id)
        assert ask([job_id], time.time()).word in (Word.ALIVE, Word.PENDING)
        answer = ask([NOWHERE], time.time(), last_sign=0.0)
        assert (answer.word, answer.deadline) == (Word.NOT_HEARD, None)
    finally:
        cluster.testbed("start", "slurmdbd")
    cluster.wait("sacct again", lambda: not listen([NOWHERE], time.time()).complaints, 60)


def test_hold_release_memory_cancel(cluster: Cluster, tmp_path: Path) -> None:
    job_id = cluster.submit(tmp_path, "sleep 300", "--hold", "--mem=100M")
    control.update_memory(job_id, 300)
    details = job_details(job_id)
    assert details is not None
    assert details.fields["MinMemoryNode"] == "300M"
    control.release(job_id)
    cluster.wait_state(job_id, "RUNNING")
    control.cancel(job_id)
    control.cancel(job_id)
    assert cluster.wait_end(job_id) == "CANCELLED"
    assert control.preempt_time(job_id) is None
    (record,) = wait_record(cluster, job_id)
    assert record.state.cancelled_by == os.getuid()
    assert ask([job_id], time.time() - 600).word is Word.CANCELLED


def test_a_requeued_job_has_a_record_an_attempt(cluster: Cluster, tmp_path: Path) -> None:
    marker = tmp_path / "again"
    script = f"[ -e {marker} ] && exit 3\ntouch {marker}\nsrun sleep 300"
    job_id = cluster.submit(tmp_path, script)
    cluster.wait(
        "the first attempt", lambda: marker.exists() and cluster.state(job_id) == "RUNNING"
    )
    assert control.requeue(job_id)
    cluster.wait("the queue again", lambda: cluster.state(job_id) == "PENDING")
    assert ask([job_id], time.time() - 600).word is Word.PENDING
    assert not control.requeue(job_id)
    assert cluster.wait_end(job_id, 60) == "FAILED"
    first, second = wait_record(cluster, job_id, 2)
    assert first.state.is_requeued
    assert (second.state.base, second.exit_code) == ("FAILED", ExitCode(3, 0))
    assert (first.number, second.number) == (0, 1)
    assert first.steps and "batch" in [step.step for step in second.steps]
    assert first.end is not None and second.start is not None and first.end <= second.start
    entry = queue([job_id], restarts=True)[job_id]
    assert entry.restarts == 1
    answer = ask([job_id], time.time() - 600)
    assert answer.word is Word.FAILED
    assert len(answer.attempts) == 2


def test_an_ended_job_is_requeued_while_slurmctld_knows_it(
    cluster: Cluster, tmp_path: Path
) -> None:
    job_id = cluster.submit(tmp_path, "true")
    assert cluster.wait_end(job_id) == "COMPLETED"
    assert control.requeue(job_id)
    cluster.wait("the second attempt", lambda: cluster.fields(job_id).get("Restarts") == "1", 60)
    with pytest.raises(NotHeard, match="Invalid job id"):
        control.requeue(NOWHERE)


def test_a_step_out_of_memory_under_a_completed_job(cluster: Cluster, tmp_path: Path) -> None:
    script = "srun python3 -c 'print(len(bytearray(400_000_000)))'\necho went on"
    job_id = cluster.submit(tmp_path, script, "--mem=60M")
    assert cluster.wait_end(job_id) == "COMPLETED"
    (record,) = wait_record(cluster, job_id)
    assert record.job_state.base == "COMPLETED"
    assert record.state.base == "OUT_OF_MEMORY"
    assert record.req_mem_bytes == 60 << 20
    assert ask([job_id], time.time() - 600).word is Word.OUT_OF_MEMORY


def test_text_and_json_say_the_same(cluster: Cluster, tmp_path: Path) -> None:
    job_id = cluster.submit(tmp_path, "srun sleep 1.5\nexit 3", "--mem=100M", "--time=7")
    assert cluster.wait_end(job_id) == "FAILED"
    (text,) = wait_record(cluster, job_id)
    answer = parse_json(cluster.run("sacct", "--json", "-D", "-j", job_id))
    assert answer.version == slurm_version()
    row = answer.rows[0]
    assert text.exit_code == ExitCode(3, 0)
    assert row.state.base == text.state.base
    assert row.exit_code in (None, ExitCode(3, 0))  # 22.05 calls every exit code a success
    for name in (
        "job_id",
        "submit",
        "start",
        "end",
        "elapsed_s",
        "time_limit_s",
        "nodes",
        "req_mem_bytes",
    ):
        assert getattr(row, name) == getattr(text, name), name
    assert [r.step for r in answer.rows[1:]] == [s.step for s in text.steps]
    assert [r.max_rss_bytes for r in answer.rows[1:]] == [s.max_rss_bytes for s in text.steps]


def test_array_tasks_are_told_apart(cluster: Cluster, tmp_path: Path) -> None:
    script = "exit $((SLURM_ARRAY_TASK_ID == 1 ? 4 : 0))"
    job_id = cluster.submit(tmp_path, script, "--array=1-2")
    tasks = [f"{job_id}_1", f"{job_id}_2"]
    cluster.wait(
        "both ends", lambda: all(one.state.is_terminal for one in queue(tasks).values()), 60
    )
    wait_record(cluster, tasks[0])
    wait_record(cluster, tasks[1])
    heard = history(tasks, time.time() - 3600)
    assert heard[tasks[0]][0].exit_code == ExitCode(4, 0)
    assert heard[tasks[1]][0].state.is_success
    number = heard[tasks[0]][0].raw_id
    assert history([number], time.time() - 3600)[number][0].job_id == tasks[0]


def test_a_notice_of_preemption_shows_its_time(cluster: Cluster, tmp_path: Path) -> None:
    options = ("--partition=cancel", "--qos=cancellable", "-w", "n3", "--exclusive")
    victim = cluster.submit(tmp_path, "srun bash -c 'trap \"\" TERM; sleep 300'", *options)
    cluster.wait_state(victim, "RUNNING")
    assert control.preempt_time(victim) is None
    cluster.submit(tmp_path, "true", "--qos=high", "-w", "n3", "--exclusive")
    cluster.wait("a PreemptTime", lambda: control.preempt_time(victim) is not None)
    assert ask([victim], time.time() - 600).word is Word.ALIVE
    assert cluster.wait_end(victim, 60) == "PREEMPTED"


def test_limits_of_the_testbed(cluster: Cluster) -> None:
    limits = cluster_limits()
    assert (limits.version, limits.max_array_size) == (slurm_version(), 1001)
    assert limits.has_accounting and limits.can_requeue
    found = partitions()
    assert found["main"].is_default
    assert found["short"].max_time_s == 60.0
    assert (found["cancel"].preempt_mode, found["cancel"].grace_s) == ("CANCEL", 10.0)
    assert found["main"].mem_per_node_bytes == 4000 << 20
    allowed = submit_limits()
    assert allowed is not None
    assert {one.name for one in allowed if one.kind == "association"} >= {"physics", "chemistry"}
    assert {one.name: one.max_submit for one in allowed if one.kind == "QOS"}["limited"] == 2


@pytest.mark.parametrize(
    ("request_", "limit"),
    [
        ({"partition": "nowhere"}, "partition"),
        ({"account": "nobody"}, "account"),
        ({"qos": "nothing"}, "QOS"),
        ({"mem_mb": 100_000}, "partition main, memory of a node"),
        ({"cpus": 9}, "partition main, CPUs of a node"),
        ({"nodes": 9}, "nodes"),
        ({"array": "1-2000"}, "array"),
        ({"partition": "short", "runtime_s": 600}, "partition short, MaxTime"),
        ({"partition": "cancel", "qos": "low"}, "partition cancel, qos"),
    ],
)
def test_the_limit_that_binds(cluster: Cluster, request_: dict[str, object], limit: str) -> None:
    result = test_only(request_)
    assert not result.ok
    assert result.binds[0].limit == limit


def test_the_submit_limit_that_binds(cluster: Cluster, tmp_path: Path) -> None:
    for _ in range(2):
        cluster.submit(tmp_path, "true", "--qos=limited", "--hold")
    result = test_only({"qos": "limited"})
    assert not result.ok
    assert result.binds[-1].limit == "QOSMaxSubmitJobPerUserLimit"


def test_a_request_that_fits(cluster: Cluster) -> None:
    result = test_only({"cpus": 1, "mem_mb": 100, "runtime_s": 60})
    assert result.ok, result.message
    assert result.start_estimate is not None
