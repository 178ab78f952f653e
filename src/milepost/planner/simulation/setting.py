"""The numbers of a simulation: from a plan, changed by KEY=VALUE, as a job and as formulas."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from milepost.errors import ConfigError
from milepost.planner.expected import Conditions
from milepost.planner.interval import DEFAULT_INTERVAL_S, optimal_interval
from milepost.planner.levels import two_tier_overhead
from milepost.planner.simulation.job import FarTier, Job, Preemption, Walltime
from milepost.planner.simulation.policies import Adaptive, EvenSplit, Every, Policy
from milepost.planner.walltime import end_margin

_OPEN_END = 100.0
"""Where the length of the work is not known, it is so many times the MTBF."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One shard and what it meets. Seconds; None is what there is not. `price_per_h` is that of
    a shard for an hour in an allocation, `far_*` a tier that outlives the node (`far_every` 0:
    there is one tier). `durable_s`: no checkpoint begins before the last one
    had that long to become durable. `is_open`: the length of the work is not known, and `worth` is how many
    failures the belief in `mtbf_s` stands on. `is_stated`: the contract states the interval."""

    t_ckpt_s: float
    mtbf_s: float
    work_s: float
    interval_s: float
    t_ckpt_p95_s: float = 0.0
    step_s: float = 0.0
    restore_s: float = 0.0
    downtime_s: float = 0.0
    lag_s: float = 0.0
    durable_s: float = 0.0
    walltime_s: float | None = None
    requeue_s: float | None = None
    preempt_mtbf_s: float | None = None
    notice_s: float = 0.0
    far_every: int = 0
    far_t_ckpt_s: float = 0.0
    far_lag_s: float = 0.0
    far_restore_s: float | None = None
    node_loss: float = 1.0
    price_per_h: float | None = None
    longest_s: float | None = None
    is_stated: bool = False
    is_open: bool = False
    worth: float = 1.0

    @property
    def margin_s(self) -> float:
        """What the runner keeps free before the end of an allocation, beside the checkpoint."""
        p95_s = max(self.t_ckpt_s, self.t_ckpt_p95_s)
        return end_margin(p95_s, self.step_s) - self.t_ckpt_s

    @property
    def wait_s(self) -> float:
        return self.downtime_s if self.requeue_s is None else self.requeue_s

    def job(self) -> Job:
        walltime = preemption = far = None
        if self.walltime_s is not None:
            walltime = Walltime(self.walltime_s, self.wait_s, self.margin_s)
        if self.preempt_mtbf_s is not None:
            preemption = Preemption(
                self.preempt_mtbf_s,
                self.notice_s,
                self.t_ckpt_s,
                self.t_ckpt_p95_s,
                self.step_s,
                self.wait_s,
            )
        if self.far_every:
            restore_s = self.restore_s if self.far_restore_s is None else self.far_restore_s
            far = FarTier(
                self.far_every, self.far_t_ckpt_s, self.far_lag_s, self.node_loss, restore_s
            )
        return Job(
            self.work_s,
            self.t_ckpt_s,
            self.restore_s,
            self.downtime_s,
            self.lag_s,
            walltime,
            preemption,
            far,
        )

    def conditions(self) -> Conditions:
        """The same for the formulas."""
        return Conditions(
            self.t_ckpt_s,
            self.mtbf_s,
            self.restore_s,
            self.downtime_s,
            self.lag_s,
            self.wait_s,
            self._left_s(),
            self.preempt_mtbf_s,
            self.notice_s,
            self.step_s,
            self.t_ckpt_s,
            self.t_ckpt_p95_s,
        )

    def predict(self, interval_s: float) -> float | None:
        """Overhead by formula, for failures at a constant rate; None where there is no formula."""
        if not self.far_every:
            return self.conditions().overhead(interval_s)
        is_plain = self.walltime_s is None and self.preempt_mtbf_s is None and not self.lag_s
        if not (is_plain and 0.0 < self.node_loss < 1.0 and not self.far_lag_s):
            return None
        return two_tier_overhead(
            interval_s * self.far_every,
            self.far_every,
            self.t_ckpt_s,
            self.far_t_ckpt_s,
            self.mtbf_s / (1.0 - self.node_loss),
            self.mtbf_s / self.node_loss,
            self.restore_s,
            self.restore_s if self.far_restore_s is None else self.far_restore_s,
            self.downtime_s,
        )

    def policy(self, name: str) -> tuple[str, float | None, Policy]:
        """A policy by name, as milepost would run it: its title and its interval (None: it varies)."""
        if self.t_ckpt_s == 0.0 and name != "plan":
            raise ConfigError(
                f"there is nothing to choose for the policy {name}: a finished task or stage is "
                "durable by itself",
                fix="use --policy plan, or --interval",
            )
        if name == "adaptive":
            adaptive = Adaptive(
                self.t_ckpt_s,
                self.conditions().effective_mtbf_s,
                worth=self.worth,
                first_s=self.interval_s,
                least_s=self.durable_s,
                most_s=math.inf if self.longest_s is None else self.longest_s,
            )
            return name, None, EvenSplit(adaptive, self.t_ckpt_s)
        titles = {
            "plan": ("as planned", self.interval_s),
            "optimal": ("optimum", self._best_s()),
            "default": ("default", DEFAULT_INTERVAL_S),
        }
        title, interval_s = titles[name]
        never_longer = name == "plan" and self.is_stated
        return title, interval_s, EvenSplit(Every(interval_s), self.t_ckpt_s, never_longer)

    def fixed(self, interval_s: float) -> tuple[str, float | None, Policy]:
        """A policy that keeps to an interval."""
        if not interval_s > 0.0:
            raise ConfigError(f"interval is {interval_s:g} s", fix="use a number above 0")
        return "fixed", interval_s, EvenSplit(Every(interval_s), self.t_ckpt_s)

    def _best_s(self) -> float:
        mtbf_s = self.conditions().effective_mtbf_s
        return optimal_interval(self.t_ckpt_s, mtbf_s, self.work_s)

    def _left_s(self) -> float | None:
        """Of an allocation for work and checkpoints; None when the work fits into one."""
        if self.walltime_s is None:
            return None
        left_s = self.walltime_s - self.margin_s - self.lag_s - self.restore_s
        saves = math.ceil(self.work_s / self.interval_s - 1e-9)
        return None if self.work_s + saves * self.t_ckpt_s <= left_s else left_s


def setting_of(plan: Mapping[str, Any]) -> Setting:
    """What a shard of a plan.json is expected to meet, at the place that most of them go to.

    A ConfigError when nothing was measured.
    """
    known = plan["overhead"]
    if known["t_ckpt_s"] is None or known["unit_s"] is None:
        raise ConfigError(
            "the plan has no measured checkpoint or task, so there is nothing to simulate",
            where=f"run {plan['run']}",
            fix="run the smoke test, then `milepost plan` again",
        )
    rows = {row["name"]: row["value"] for row in plan.get("assumptions", ())}
    place: Mapping[str, Any] = next(iter(plan.get("placement") or ()), {})
    useful_s = place.get("useful_s", known["useful_s"])
    shards = place.get("shards", plan["shard_count"])
    t_ckpt_s = known["t_ckpt_s"]
    mtbf_s = rows.get("mtbf_s") or known["mtbf_s"]
    is_saving = t_ckpt_s > 0.0
    return Setting(
        t_ckpt_s=t_ckpt_s,
        mtbf_s=mtbf_s,
        work_s=_OPEN_END * mtbf_s if useful_s is None else useful_s / shards,
        interval_s=known["unit_s"],
        t_ckpt_p95_s=max(t_ckpt_s, (rows.get("t_ckpt_p95_s") or 0.0) if is_saving else 0.0),
        step_s=(rows.get("step_s") or 0.0) if is_saving else 0.0,
        restore_s=known["restore_s"],
        downtime_s=known["downtime_s"],
        lag_s=known["durable_lag_s"],
        durable_s=rows.get("durable_s") or 0.0,
        walltime_s=place.get("walltime_s", plan.get("walltime_s")),
        preempt_mtbf_s=rows.get("preemption_mtbf_s"),
        notice_s=max(0.0, (rows.get("notice_s") or 0.0) - (rows.get("upload_s") or 0.0)),
        price_per_h=_price(plan.get("cost")),
        longest_s=DEFAULT_INTERVAL_S
        if place.get("mode", plan.get("mode")) == "interruptible"
        else None,
        is_stated=str(plan.get("interval_source", "")).startswith("stated"),
        is_open=useful_s is None,
        worth=_worth(plan.get("mtbf")),
    )


def _worth(block: Mapping[str, Any] | None) -> float:
    """How many failures the plan's MTBF stands on; what was only stated is worth one."""
    seen = ((block or {}).get("failures") or {}).get("failures")
    return max(1.0, float(seen or 0.0))


def _price(cost: Mapping[str, Any] | None) -> float | None:
    if cost is None or cost.get("price_per_h") is None:
        return None
    return float(cost["price_per_h"]) * float(cost["units"]) / float(cost["utilisation"])


_HOURS = {
    "mtbf_h": "mtbf_s",
    "work_h": "work_s",
    "walltime_h": "walltime_s",
    "preempt_mtbf_h": "preempt_mtbf_s",
}
_NUMBERS = (
    "interval_s",
    "t_ckpt_s",
    "t_ckpt_p95_s",
    "step_s",
    "restore_s",
    "downtime_s",
    "lag_s",
    "requeue_s",
    "notice_s",
    "far_every",
    "far_t_ckpt_s",
    "far_lag_s",
    "far_restore_s",
    "node_loss",
    "price_per_h",
)
KEYS = (*_HOURS, *_NUMBERS)
_MAY_BE_NONE = ("walltime_h", "preempt_mtbf_h", "requeue_s", "far_restore_s", "price_per_h")
_ABOVE_0 = ("mtbf_h", "work_h", "walltime_h", "preempt_mtbf_h", "interval_s")


def read_changes(texts: Iterable[str]) -> dict[str, Any]:
    """Fields of a Setting from KEY=VALUE texts (`null`: there is none); a ConfigError names what
    is not known."""
    found: dict[str, Any] = {}
    for text in texts:
        key, _, value = text.partition("=")
        if key not in KEYS:
            near = difflib.get_close_matches(key, KEYS, 1)
            hint = f"did you mean {near[0]}? " if near else ""
            raise ConfigError(
                f"unknown change {text!r}", fix=f"{hint}use KEY=VALUE with {', '.join(KEYS)}"
            )
        found[_HOURS.get(key, key)] = _value(key, value)
    return found


def _value(key: str, text: str) -> float | int | None:
    if text in ("null", "none") and key in _MAY_BE_NONE:
        return None
    try:
        value = float(text)
    except ValueError as error:
        raise ConfigError(f"{key} is {text!r}, not a number", fix="use KEY=NUMBER") from error
    least = "a number above 0" if key in _ABOVE_0 else "0 or more"
    if not math.isfinite(value) or value < 0.0 or (key in _ABOVE_0 and value == 0.0):
        raise ConfigError(f"{key} is {text}", fix=f"use {least}")
    if key == "far_every":
        if value != int(value):
            raise ConfigError(f"far_every is {text}", fix="use a whole number")
        return int(value)
    return value * 3600.0 if key in _HOURS else value


def changed(setting: Setting | None, changes: Mapping[str, Any]) -> Setting:
    """The setting with other numbers; without one (no plan) the changes say it all.

    What is not said then is 0, the work is a hundred MTBFs and the interval the optimum.
    """
    if setting is not None:
        if "t_ckpt_s" in changes and "t_ckpt_p95_s" not in changes:
            setting = replace(setting, t_ckpt_p95_s=0.0)
        is_open = setting.is_open and "work_s" not in changes
        return replace(setting, **changes, is_open=is_open)
    missing = [name for name in ("t_ckpt_s", "mtbf_s") if name not in changes]
    if missing:
        named = " and ".join("mtbf_h" if name == "mtbf_s" else name for name in missing)
        raise ConfigError(
            f"there is no run to take {named} from",
            fix="name a run that has a plan, or say at least t_ckpt_s=… and mtbf_h=…",
        )
    start = {"work_s": _OPEN_END * changes["mtbf_s"], "interval_s": 1.0, **changes}
    found = Setting(**start, is_open="work_s" not in changes)
    if "interval_s" not in changes:
        found = replace(found, interval_s=max(found._best_s(), 1.0))
    return found
