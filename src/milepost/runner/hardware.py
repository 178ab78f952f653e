"""How the shard's hardware is divided among the tasks that run at a time."""

from __future__ import annotations

import os

from milepost.config.spec import Resources

_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")


def slot_environments(resources: Resources, common: dict[str, str]) -> list[dict[str, str]]:
    """Variables of each slot: a GPU each where there are GPUs, else a core each.

    Numerical libraries would start a thread for every core of the node in every task, so their
    thread counts are set to the slot's share unless the user set them.
    """
    slots = resources.gpus or resources.cpus
    threads = str(max(1, resources.cpus // slots))
    shared = {n: threads for n in _THREADS if n not in os.environ and n not in common} | common
    if not resources.gpus:
        return [dict(shared) for _ in range(slots)]
    return [shared | {"CUDA_VISIBLE_DEVICES": device} for device in visible_gpus(resources.gpus)]


def visible_gpus(count: int) -> list[str]:
    """The devices that this allocation was given, or 0, 1, … where nobody says."""
    given = [d for d in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if d]
    return (given + [str(n) for n in range(count) if str(n) not in given])[:count]
