"""The assumptions about failures and preemptions, each number with its source."""

from __future__ import annotations

from typing import Any

from milepost.planner.forecast import Hazard
from milepost.planner.history import History, Source
from milepost.planner.mtbf import Mtbf

Rows = list[dict[str, Any]]


def failure_rows(history: History, hazard: Hazard) -> Rows:
    """Exposure of each source, then the estimates with their intervals."""
    rows = [row for source in history.sources for row in _exposure_rows(source)]
    rows += _estimate_rows("mtbf", hazard.failures)
    if hazard.preemptions is not None:
        rows += _estimate_rows("preemption_mtbf", hazard.preemptions)
    return rows


def _exposure_rows(source: Source) -> Rows:
    """What a source was asked and counted; one row where that is nothing, or was not heard."""
    name, seen = source.name, source.tally
    if not seen.executions:
        return [_row(f"{name}_executions", 0 if source.is_heard else None, "", source.said)]
    rows = [
        _row(f"{name}_executions", seen.executions, "", source.said),
        _row(f"{name}_node_h", seen.node_s / 3600.0, "node h", source.said),
        _row(f"{name}_failures", sum(seen.failures.values()), "", source.said),
        _row(f"{name}_preemptions", seen.preemptions, "", source.said),
    ]
    if seen.gpu_s:
        rows.insert(2, _row(f"{name}_gpu_h", seen.gpu_s / 3600.0, "GPU h", source.said))
    return rows


def _estimate_rows(name: str, found: Mtbf) -> Rows:
    rows = [_row(f"{name}_s", found.value_s, "s", found.source)]
    if found.low_s is not None:
        level = "90 % interval of it"
        if found.c2 is not None and found.c2 > 1.0:
            level += ", widened by the bursts"
        rows += [
            _row(f"{name}_low_s", found.low_s, "s", level),
            _row(f"{name}_high_s", found.high_s, "s", level),
        ]
    if found.bound_s is not None:
        rows.append(_row(f"{name}_bound_s", found.bound_s, "s", "no failure yet: at least (95 %)"))
    if found.c2 is not None:
        rows.append(
            _row(f"{name}_gaps_c2", found.c2, "", "of the gaps in exposure; 1 is a constant rate")
        )
    if found.shape is not None:
        rows.append(_row(f"{name}_weibull_shape", found.shape, "", "fitted to the gaps"))
    if found.share is not None and found.failures:
        span = f"{found.share_low:.2g} to {found.share_high:.2g} (90 %)"
        rows.append(_row(f"{name}_share_of_nodes", found.share, "", f"rest is per job; {span}"))
    return rows


def _row(name: str, value: Any, unit: str, source: str) -> dict[str, Any]:
    return {"name": name, "value": value, "unit": unit, "source": source}
