"""The jobs of a window as a real accounting tells them: what the MTBF is estimated from."""

import time
from pathlib import Path

import pytest

from helpers.slurm_cluster import Cluster
from milepost.planner.accounting import read_rows
from milepost.planner.exposure import End, Span
from milepost.slurm.past import past_jobs

pytestmark = pytest.mark.slurm


def spans(*job_ids: str) -> dict[str, list[Span]]:
    """What the accounting of the last hour makes of these jobs."""
    heard = past_jobs(time.time() - 3600, time.time())
    assert heard.complaint is None
    found: dict[str, list[Span]] = {job_id: [] for job_id in job_ids}
    for row, span in read_rows(heard.rows, heard.until_s):
        if row.job_id in found:
            found[row.job_id].append(span)
    return found


def test_sizes_and_ends_of_jobs_and_every_execution_once(cluster: Cluster, tmp_path: Path) -> None:
    large = cluster.submit(tmp_path, "srun sleep 2", "-N2", "--gres=gpu:1")
    waiting = cluster.submit(tmp_path, "true", "--hold")
    again = tmp_path / "again"
    script = f"[ -e {again} ] && exec srun sleep 3\ntouch {again}\nsrun sleep 300"
    gives_way = cluster.submit(tmp_path, script, "--qos=low", "-w", "n3", "--exclusive")
    cluster.wait("its first execution", again.exists)
    cluster.submit(tmp_path, "srun sleep 3", "--qos=high", "-w", "n3", "--exclusive")
    cluster.wait("the preemption", lambda: cluster.fields(gives_way).get("Restarts") == "1", 60)
    cluster.wait_end(gives_way, 60)
    cluster.wait_end(large)

    def recorded() -> bool:
        known = spans(large, gives_way)
        is_over = all(span.end_s < time.time() - 1 for one in known.values() for span in one)
        return is_over and (len(known[large]), len(known[gives_way])) == (1, 2)

    cluster.wait("the records", recorded, 60)
    found = spans(large, gives_way, waiting)
    (both,) = found[large]
    assert (both.end, both.nodes, both.gpus) == (End.CENSORED, 2, 2)
    assert 2 <= both.seconds < 60
    first, second = found[gives_way]
    assert (first.end, second.end) == (End.PREEMPTION, End.CENSORED)
    assert first.place == "main/low"
    assert second.start_s >= first.end_s
    assert found[waiting] == []
