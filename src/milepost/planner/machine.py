"""Where a shard may run: a profile and a purchase mode, or simply this machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Machine:
    """One (profile, mode) pair as seen by a shard.

    `price_per_h` is the price of one GPU (of the node, without GPUs) for an hour; None is not
    known. `speed` and `write_speed` are relative to the machine of the smoke test. `places` is
    how many shards run side by side (None: no limit known), each on `gpus_a_place` GPUs (nodes,
    without GPUs) of those that all machines with the same `pool` share. `vram_gb` is the memory
    of one GPU, `walltime_s` the longest allocation. `slurm` says where it is on a cluster:
    partition, qos, account, constraint, reservation, gpu_model.
    """

    profile: str | None = None
    mode: str = "on-demand"
    price_per_h: float | None = None
    vram_gb: float | None = None
    speed: float = 1.0
    write_speed: float = 1.0
    mtbf_h: float | None = None
    preempt_mtbf_h: float | None = None
    notice_s: float | None = None
    places: int | None = None
    utilisation: float = 1.0
    ckpt_gb: float | None = None
    walltime_s: float | None = None
    pool: str | None = None
    gpus_a_place: float = 1.0
    slurm: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_interruptible(self) -> bool:
        return self.mode == "interruptible"

    @property
    def name(self) -> str:
        return f"{self.profile or 'this machine'}, {self.mode}"
