"""What a run is expected to take and to cost: the textbook's numbers beside the exact ones."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

from milepost.config.spec import RunSpec
from milepost.planner.choose import Choice, Placement
from milepost.planner.forecast import Forecast
from milepost.planner.theory import (
    cost_overhead,
    exact_interval,
    expected_loss,
    overhead_checkpoint,
    young_interval,
)

NOTABLE = 0.05
"""Textbook and exact numbers that differ by more than this share are worth a note."""


def overhead_block(choice: Choice) -> dict[str, Any]:
    """Overhead of the whole run, and what the report needs to draw it at other intervals."""
    found = choice.forecast
    is_finite = found.fraction is not None and math.isfinite(found.fraction)
    return {
        "fraction": found.fraction if is_finite else None,
        "seconds": lost_seconds(choice),
        "textbook_fraction": found.textbook,
        "useful_s": useful_seconds(choice),
        "unit_s": found.unit_s,
        "t_ckpt_s": found.t_ckpt_s,
        "restore_s": found.restore_s,
        "downtime_s": found.downtime_s,
        "durable_lag_s": found.lag_s,
        "extra_fraction": found.extra,
        "mtbf_s": found.hazard.value_s,
        "mtbf_low_s": found.hazard.low_s,
        "mtbf_high_s": found.hazard.high_s,
    }


def useful_seconds(choice: Choice) -> float | None:
    """Useful seconds of all shards; None when they are not known."""
    return _sum(part.useful_s for part in choice.placements)


def lost_seconds(choice: Choice) -> float | None:
    """Expected seconds beside the useful ones of all shards."""
    return _sum(part.lost_s for part in choice.placements)


def cost_block(spec: RunSpec, choice: Choice) -> dict[str, Any] | None:
    """Expected cost of the run; None when a price or the work is not known.

    Cost_total = Cost_compute + Cost_overhead + Storage_cost; without the price of storage the
    last one and the total are None, and `running` is what is known.
    """
    units = max(1, spec.resources.gpus)
    compute = _money(choice, units, _busy)
    overhead = _money(choice, units, lambda part: part.lost_s)
    if compute is None or overhead is None:
        return None
    storage = _sum(part.storage_cost for part in choice.placements)
    first = choice.forecast.machine
    return {
        "currency": choice.currency,
        "total": None if storage is None else compute + overhead + storage,
        "running": compute + overhead,
        "compute": compute,
        "overhead": overhead,
        "storage": storage,
        "price_per_h": first.price_per_h,
        "units": units,
        "utilisation": first.utilisation,
    }


def running_cost_of(spec: RunSpec, part: Placement) -> float | None:
    """Compute and overhead of the shards of one placement."""
    price, busy_s = part.forecast.machine.price_per_h, _sum((_busy(part), part.lost_s))
    if price is None or busy_s is None:
        return None
    units = max(1, spec.resources.gpus)
    return cost_overhead(price, units, part.forecast.machine.utilisation, busy_s)


def numbers(spec: RunSpec, choice: Choice) -> list[dict[str, Any]]:
    """Rows of name, unit, textbook and exact value, and whether they differ notably.

    Overhead_ckpt = t_ckpt/I, Loss_expected = I/(2 MTBF), I_opt = sqrt(2 t_ckpt MTBF),
    Cost_overhead = c_gpu N_gpu / U Overhead_seconds / 3600 (Young 1974 and common use). Rates
    are those of the largest placement, seconds and money those of the run.
    """
    found = choice.forecast
    money = choice.currency
    textbook, exact = _textbook(spec, choice), _exact(spec, choice)
    units = {"I_opt": "s", "Overhead_ckpt": "", "Loss_expected": "", "Overhead": ""}
    units |= {"Overhead_seconds": "s", "Cost_compute": money, "Cost_overhead": money}
    units |= {"Storage_cost": money, "Cost_total": money}
    if not found.t_ckpt_s:
        del units["I_opt"]
    return [
        {
            "name": name,
            "unit": unit,
            "textbook": textbook[name],
            "exact": exact[name],
            "is_notable": _differ(textbook[name], exact[name]),
        }
        for name, unit in units.items()
    ]


Values = dict[str, float | None]


def _textbook(spec: RunSpec, choice: Choice) -> Values:
    found = choice.forecast
    seconds = _sum(_textbook_seconds(part) for part in choice.placements)
    values: Values = {
        "I_opt": _interval(found, young_interval),
        "Overhead_ckpt": _rate(found, overhead_checkpoint, found.t_ckpt_s),
        "Loss_expected": None,
        "Overhead": found.textbook,
        "Overhead_seconds": seconds,
    }
    if found.unit_s:
        values["Loss_expected"] = expected_loss(found.unit_s, found.hazard.value_s)
    return values | _costs(spec, choice, _textbook_seconds)


def _exact(spec: RunSpec, choice: Choice) -> Values:
    found = choice.forecast
    fraction = found.fraction
    if fraction is not None and not math.isfinite(fraction):
        fraction = None
    spent = _rate(found, overhead_checkpoint, found.t_ckpt_s)
    values: Values = {
        "I_opt": _interval(found, exact_interval),
        "Overhead_ckpt": spent,
        "Loss_expected": None if fraction is None or spent is None else fraction - spent,
        "Overhead": fraction,
        "Overhead_seconds": lost_seconds(choice),
    }
    return values | _costs(spec, choice, lambda part: part.lost_s)


def _costs(spec: RunSpec, choice: Choice, seconds: Callable[[Placement], float | None]) -> Values:
    units = max(1, spec.resources.gpus)
    compute = _money(choice, units, _busy)
    overhead = _money(choice, units, seconds)
    storage = _sum(part.storage_cost for part in choice.placements)
    return {
        "Cost_compute": compute,
        "Cost_overhead": overhead,
        "Storage_cost": storage,
        "Cost_total": _sum((compute, overhead, storage)),
    }


def _busy(part: Placement) -> float | None:
    """Useful seconds and those of the first starts: what is paid when nothing goes wrong."""
    return _sum((part.useful_s, part.startup_s))


def _textbook_seconds(part: Placement) -> float | None:
    textbook = part.forecast.textbook
    return None if part.useful_s is None or textbook is None else part.useful_s * textbook


def _money(
    choice: Choice, units: int, seconds: Callable[[Placement], float | None]
) -> float | None:
    """Cost of some seconds of every placement at its own price; None where one is not known."""
    total = 0.0
    for part in choice.placements:
        machine, spent_s = part.forecast.machine, seconds(part)
        if machine.price_per_h is None or spent_s is None:
            return None
        total += cost_overhead(machine.price_per_h, units, machine.utilisation, spent_s)
    return total


def _interval(found: Forecast, optimum: Callable[[float, float], float]) -> float | None:
    return optimum(found.t_ckpt_s, found.hazard.value_s) if found.t_ckpt_s else None


def _rate(
    found: Forecast, rate: Callable[[float, float], float], cost_s: float | None
) -> float | None:
    return rate(cost_s, found.unit_s) if cost_s is not None and found.unit_s else None


def _differ(textbook: float | None, exact: float | None) -> bool:
    if textbook is None or exact is None:
        return False
    return abs(textbook - exact) > NOTABLE * abs(exact)


def _sum(values: Iterable[float | None]) -> float | None:
    """The sum; None when one of them is not known."""
    total = 0.0
    for value in values:
        if value is None:
            return None
        total += value
    return total
