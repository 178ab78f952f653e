"""Which checkpoint interval to use, and why."""

from __future__ import annotations

from dataclasses import dataclass

from milepost.planner.theory import exact_interval, whole_chunks

DEFAULT_INTERVAL_S = 120.0
"""Used when nothing is known, and the longest interval in interruptible mode."""


DEFAULT_SHARE = 0.05
"""The default gives way to a checkpoint that would cost more than this part of the time."""


@dataclass(frozen=True, slots=True)
class Interval:
    """Seconds of useful work between checkpoints, where it comes from, what bounded it."""

    seconds: float
    source: str
    notes: tuple[str, ...] = ()


def choose_interval(
    stated_s: float | None,
    t_ckpt_s: float | None,
    mtbf_s: float | None,
    *,
    durable_s: float | None = None,
    is_interruptible: bool = False,
    work_s: float | None = None,
) -> Interval:
    """The contract's number, else the exact optimum, else 120 s; then the bounds.

    `mtbf_s` is None when nothing is known of failures: there is no optimum then.
    `durable_s` is how long a checkpoint takes to become durable: a shorter interval would let
    the queue of unwritten checkpoints grow. `work_s` is the useful work of one shard, cut into
    whole chunks when it is known.
    """
    if stated_s is not None:
        first = Interval(stated_s, "stated in the config (checkpoint.interval_seconds)")
    elif t_ckpt_s is None:
        first = Interval(DEFAULT_INTERVAL_S, "default, no checkpoint was measured")
    elif mtbf_s is None:
        first = _default(t_ckpt_s)
    else:
        seconds = optimal_interval(t_ckpt_s, mtbf_s, work_s)
        first = Interval(seconds, "computed from the measured t_ckpt and the MTBF")
    return _above_durable(_below_cap(first, is_interruptible), durable_s)


def _default(t_ckpt_s: float) -> Interval:
    """120 s; longer where a checkpoint takes so long that it would cost too much."""
    found = Interval(DEFAULT_INTERVAL_S, "default, nothing is known of failures")
    least_s = t_ckpt_s / DEFAULT_SHARE
    if least_s <= found.seconds:
        return found
    note = (
        f"interval {found.seconds:.4g} s lengthened to {least_s:.4g} s: a checkpoint takes "
        f"{t_ckpt_s:.4g} s and would cost more than {100 * DEFAULT_SHARE:g} %"
    )
    return Interval(least_s, found.source, (note,))


def optimal_interval(t_ckpt_s: float, mtbf_s: float, work_s: float | None = None) -> float:
    """The exact optimum, fitted to whole chunks of `work_s` seconds when that is known."""
    if work_s is None or work_s <= 0.0:
        return exact_interval(t_ckpt_s, mtbf_s)
    return work_s / whole_chunks(work_s, t_ckpt_s, mtbf_s)


def _below_cap(found: Interval, is_interruptible: bool) -> Interval:
    if not is_interruptible or found.seconds <= DEFAULT_INTERVAL_S:
        return found
    note = f"interval {found.seconds:.4g} s shortened to 120 s: the longest in interruptible mode"
    return Interval(DEFAULT_INTERVAL_S, found.source, (*found.notes, note))


def _above_durable(found: Interval, durable_s: float | None) -> Interval:
    if durable_s is None or found.seconds >= durable_s:
        return found
    note = (
        f"interval {found.seconds:.4g} s lengthened to {durable_s:.4g} s: "
        "a checkpoint takes that long to become durable"
    )
    return Interval(durable_s, found.source, (*found.notes, note))
