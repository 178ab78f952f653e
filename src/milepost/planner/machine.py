"""Where a shard may run: a profile and a purchase mode, or simply this machine."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Machine:
    """One (profile, mode) pair as seen by a shard.

    `price_per_h` is the price of one GPU (of the node, without GPUs) for an hour; None is not
    known. `speed` and `write_speed` are relative to the machine of the smoke test. `places` is
    how many shards run side by side (None: no limit known). `vram_gb` is the memory of one GPU.
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

    @property
    def is_interruptible(self) -> bool:
        return self.mode == "interruptible"

    @property
    def name(self) -> str:
        return f"{self.profile or 'this machine'}, {self.mode}"
