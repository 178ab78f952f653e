"""Ranks of a Slurm step meet in the checkpoint folder; one that is killed aborts for all."""

import sys
import textwrap
from pathlib import Path

import pytest

from helpers.slurm_cluster import Cluster
from milepost.checkpoint.store import CheckpointStore
from milepost.checkpoint.verify import verify_generation

pytestmark = pytest.mark.slurm

SOLVER = textwrap.dedent(
    """
    import os, signal, sys
    import numpy as np
    from milepost import Checkpointer
    from milepost.errors import MilepostError

    folder, steps, die = sys.argv[1], int(sys.argv[2]), sys.argv[3] == "die"
    rank, seen = int(os.environ["SLURM_PROCID"]), 0

    def hook(step):
        global seen
        seen += step == "copied"
        if die and rank == 1 and step == "copied" and seen == 3:
            os.kill(os.getpid(), signal.SIGKILL)

    try:
        with Checkpointer(folder, interval_s=0, hook=hook, rank_timeout_s=20) as ck:
            saved = ck.restore()
            x, start = np.full(20_000, float(rank)), 0
            if saved is not None:
                x, start = saved.arrays["x"], saved.step + 1
            for step in range(start, steps):
                x += 1
                ck.save(step, {"x": x})
                ck.wait()
    except MilepostError as error:
        print(f"rank {rank} failed: {error}", flush=True)
        sys.exit(error.exit_code)
    print(f"rank {rank} from {start} right {bool(np.all(x == rank + steps))}", flush=True)
    """
)


def test_the_tasks_of_a_step_on_two_nodes_save_together(cluster: Cluster, tmp_path: Path) -> None:
    program = tmp_path / "solver.py"
    program.write_text(SOLVER)
    step = f"srun --ntasks=3 {sys.executable} {program} {tmp_path}/ckpt"
    killed = f"srun --kill-on-bad-exit=0 --ntasks=3 {sys.executable} {program} {tmp_path}/ckpt"
    body = f"{killed} 4 die; echo code $?\n{step} 4 -"
    job = cluster.submit(tmp_path, body, "--nodes=2", "--ntasks=3", "--mem=600")
    cluster.wait_end(job, patience_s=90)
    said = (tmp_path / f"{job}.out").read_text()
    for rank in (0, 2):
        assert f"rank {rank} failed" in said, said
    assert "code 0" not in said
    for rank in range(3):
        assert f"rank {rank} from 2 right True" in said, said
    store = CheckpointStore(tmp_path / "ckpt")
    assert len(store.manifest(store.generations()[0]).ranks) == 3
    assert not any(verify_generation(store, name) for name in store.generations())
