"""A simulation for a terminal of 80 columns."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping
from typing import Any

from milepost.planner.words import duration, percent

Row = Mapping[str, Any]

_FEW = 100
"""Fewer interruptions than this do not show what interruptions cost."""


def describe(found: Mapping[str, Any]) -> Iterator[str]:
    """Lines: the job, what it meets, then a row for each policy, with 95 % intervals."""
    setting, failures = found["setting"], found["failures"]
    yield from _lines("job", _job(setting))
    yield from _lines("failures", _failures(failures))
    if setting["walltime_s"] is not None:
        wait = setting["downtime_s"] if setting["requeue_s"] is None else setting["requeue_s"]
        yield f"walltime   {duration(setting['walltime_s'])}, then a wait of {duration(wait)}"
    if setting["preempt_mtbf_s"] is not None:
        every, notice = duration(setting["preempt_mtbf_s"]), duration(setting["notice_s"])
        yield f"preempted  every {every}, with {notice} of notice"
    if setting["far_every"]:
        yield (
            f"far tier   every {setting['far_every']}th checkpoint; {percent(setting['node_loss'])} "
            "of failures need it"
        )
    yield f"played     {found['jobs']} times, seed {found['seed']}; in brackets: 95 % interval"
    yield ""
    has_price = any(row["cost"] is not None for row in found["policies"])
    yield f"{'policy':<10} {'interval':>8} {'formula':>8} {'overhead':>23} {'lost':>7} " + (
        f"{'saves':>7} {'cost':>9}" if has_price else f"{'saves':>7} {'fails':>7}"
    )
    for row in found["policies"]:
        yield _row(row, has_price)
    events = min(row["events"] for row in found["policies"])
    if events < _FEW:
        yield ""
        yield f"only {events} interruptions in all: the intervals say little; play more (--jobs)"
    best = min(found["policies"], key=lambda row: row["overhead"]["mean"])
    span = best["makespan_s"]
    yield ""
    yield (
        f"least with {best['policy']}: {duration(span['mean'])} from start to end, "
        f"19 of 20 within {duration(span['p95'])}"
    )


def _lines(name: str, text: str) -> Iterator[str]:
    for number, line in enumerate(textwrap.wrap(text, 69)):
        yield f"{'' if number else name:<10} {line}"


def _job(setting: Mapping[str, Any]) -> str:
    parts = [
        f"{duration(setting['work_s'])} of work{' (assumed)' if setting['is_open'] else ''}",
        f"checkpoint {duration(setting['t_ckpt_s'])}",
        f"restore {duration(setting['restore_s'])}",
        f"downtime {duration(setting['downtime_s'])}",
    ]
    if setting["lag_s"]:
        parts[1] += f" (durable {duration(setting['lag_s'])} later)"
    return ", ".join(parts)


def _failures(failures: Mapping[str, Any]) -> str:
    every = f"every {duration(failures['mtbf_s'])}"
    if failures["kind"] == "replay":
        c2 = failures["gaps_c2"]
        bursts = "" if c2 is None else f", C2 of the gaps {c2:.3g}"
        return f"{failures['count']} of a trace, {every} on average{bursts}"
    if failures["kind"] == "weibull":
        return f"{every}, Weibull of shape {failures['shape']:g}"
    return f"{every}, at a constant rate"


def _row(row: Row, has_price: bool) -> str:
    over = row["overhead"]
    spread = f"{_bare(over['mean'])} % ({_bare(over['low'])} - {_bare(over['high'])})"
    last = f"{row['cost']['mean']:>9.2f}" if has_price else f"{_count(row['failures']['mean']):>7}"
    interval = "varies" if row["interval_s"] is None else duration(row["interval_s"])
    lost = row["lost_s"]["mean"] / (row["makespan_s"]["mean"] or 1.0)
    return (
        f"{row['policy']:<10} {interval:>8} {percent(row['predicted']):>8} {spread:>23} "
        f"{percent(lost):>7} {_count(row['checkpoints']['mean']):>7} {last}"
    )


def _bare(fraction: float) -> str:
    return f"{100.0 * fraction:#.3g}".rstrip(".")


def _count(value: float) -> str:
    return f"{value:.3g}" if value < 1000.0 else f"{value:.0f}"
