"""What the checkpoints of a run hold over their retention, and what that costs."""

from __future__ import annotations

from dataclasses import dataclass

from milepost.config.spec import CheckpointSpec, RunSpec
from milepost.model import WorkKind
from milepost.planner.forecast import Forecast
from milepost.planner.measured import Measured

DAYS_A_MONTH = 365.25 / 12.0


@dataclass(frozen=True, slots=True)
class Storage:
    """Price of a GB for a month and GB at hand (None: not known), for checkpoints of one kind.

    `ckpt_bytes` is the measured size; without it the profile's typical one counts.
    """

    has_checkpoints: bool
    ckpt: CheckpointSpec
    ckpt_bytes: int | None
    price: float | None = None
    capacity_gb: float | None = None

    def kept(self, option: Forecast, useful_s: float) -> int:
        """Generations that a shard keeps at its end: the newest, and every n-th for good."""
        made = int(useful_s / option.interval.seconds) if option.interval.seconds > 0 else 0
        gold = made // self.ckpt.gold_every if self.ckpt.gold_every else 0
        return min(max(made, 1), self.ckpt.rotation) + gold

    def size_gb(self, option: Forecast) -> float | None:
        """GB of a generation."""
        if self.ckpt_bytes is not None:
            return self.ckpt_bytes / 1e9
        return option.machine.ckpt_gb

    def known_gb(self, option: Forecast, useful_s: float) -> float | None:
        """GB that a shard's generations hold; 0 for work without checkpoints, None: not known."""
        if not self.has_checkpoints:
            return 0.0
        size = self.size_gb(option)
        return None if size is None else size * self.kept(option, useful_s)

    def stored_gb(self, option: Forecast, useful_s: float) -> float:
        """The same for the limit of storage, which an unknown size does not touch."""
        return self.known_gb(option, useful_s) or 0.0

    def cost(self, option: Forecast, useful_s: float) -> float | None:
        """Storage_cost of a shard until its checkpoints expire, in the price's currency.

        None when price, size or retention is not known; storage that is free, or holds nothing,
        costs 0.
        """
        held = self.known_gb(option, useful_s)
        if self.price == 0.0 or held == 0.0:
            return 0.0
        if held is None or self.price is None or self.ckpt.ttl_days is None:
            return None
        return held * self.price * self.ckpt.ttl_days / DAYS_A_MONTH


def storage_of(
    spec: RunSpec, measured: Measured, price: float | None, capacity_gb: float | None
) -> Storage:
    """The storage of a run's checkpoints."""
    return Storage(
        spec.work.kind is WorkKind.RESUMABLE,
        spec.checkpoint,
        measured.ckpt_bytes,
        price,
        capacity_gb,
    )
