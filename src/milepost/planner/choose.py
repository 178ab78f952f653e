"""Which profile and purchase mode a run uses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from milepost.config.spec import RunSpec
from milepost.planner.forecast import Forecast, forecast
from milepost.planner.machine import Machine
from milepost.planner.measured import Measured
from milepost.planner.mtbf import History
from milepost.planner.sharding import ShardPlan


@dataclass(frozen=True, slots=True)
class Choice:
    """The chosen machine with its forecast, and why."""

    forecast: Forecast
    mode_source: str
    preempt_source: str = "stated in the profile"
    currency: str = ""
    notes: tuple[str, ...] = ()


def choose_machine(
    spec: RunSpec,
    measured: Measured,
    history: History,
    shards: ShardPlan,
    profiles: Mapping[str, Any] | None,
) -> Choice:
    """This machine when no profiles are configured, cost n/a; else the best pair."""
    mode, source = _mode(spec)
    machine = Machine(mode=mode)
    return Choice(forecast(spec, measured, history, machine, shards.shard_s), source)


def _mode(spec: RunSpec) -> tuple[str, str]:
    if spec.planner.mode == "auto":
        return "on-demand", "default: no profiles are configured"
    return spec.planner.mode, "stated in the config (planner.mode)"
