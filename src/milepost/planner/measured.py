"""What the smoke test measured, read once from smoke.json."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Spread:
    """Median and 95 % quantile of `n` measurements, seconds."""

    median_s: float
    p95_s: float
    n: int


@dataclass(frozen=True, slots=True)
class Measured:
    """Seconds and bytes of the smoke slice; None is what was not measured.

    `is_reduced` tells that the slice ran with overwritten fields, so that seconds per task are
    those of a smaller task than the run's.
    """

    task: Spread | None = None
    startup_s: float | None = None
    t_ckpt: Spread | None = None
    durable_s: float | None = None
    restore_s: float | None = None
    step_s: float | None = None
    ckpt_bytes: int | None = None
    max_rss_bytes: int | None = None
    is_reduced: bool = False


def read_measured(smoke: Mapping[str, Any]) -> Measured:
    """Read the `measured` block of a smoke.json."""
    found = smoke.get("measured") or {}
    size, peak = found.get("ckpt_bytes"), found.get("max_rss_bytes")
    return Measured(
        task=_spread(found.get("task_s")),
        startup_s=_number(found.get("startup_s")),
        t_ckpt=_spread(found.get("t_ckpt_s")),
        durable_s=_number(found.get("durable_s")),
        restore_s=_number(found.get("restore_s")),
        step_s=_number(found.get("step_s")),
        ckpt_bytes=None if size is None else int(size),
        max_rss_bytes=None if peak is None else int(peak),
        is_reduced=bool((smoke.get("slice") or {}).get("set")),
    )


def _spread(value: Mapping[str, Any] | None) -> Spread | None:
    if value is None or value.get("median") is None:
        return None
    median = float(value["median"])
    p95 = value.get("p95")
    return Spread(median, max(median, float(median if p95 is None else p95)), int(value["n"]))


def _number(value: Any) -> float | None:
    return None if value is None else float(value)
