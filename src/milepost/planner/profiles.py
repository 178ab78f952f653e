"""GPU profiles: what a profile file says, as the machines a shard may run on."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from milepost.errors import ConfigError
from milepost.planner.machine import Machine

MODES = ("on-demand", "interruptible", "reserved")
_FILE = ("schema", "currency", "utilisation", "storage", "profiles")
_STORAGE = ("price_per_gb_month", "capacity_gb")
_PROFILE = (
    "vram_gb",
    "ckpt_gb",
    "write_speed",
    "speed",
    "gpus_max",
    "nodes_max",
    "mig",
    "modes",
)
_MODE = (
    "price_per_h",
    "mtbf_h",
    "preempt_mtbf_h",
    "notice_s",
    "gpus_max",
    "nodes_max",
    "walltime_max_h",
    "utilisation",
    "slurm",
)
_SLICE = ("name", "vram_gb", "share", "gpu_model")
_SLURM = ("partition", "qos", "account", "constraint", "reservation", "gpu_model")


@dataclass(frozen=True, slots=True)
class Profiles:
    """The machines for a shard of so many GPUs, in order of name, and the prices' currency.

    `storage_price` is that of one GB for a month of 365.25/12 days, `storage_gb` the most that
    checkpoints of the run may hold at a time; None is not known.
    """

    machines: tuple[Machine, ...]
    currency: str
    storage_price: float | None = None
    storage_gb: float | None = None


def read_profiles(data: Mapping[str, Any], gpus: int) -> Profiles:
    """Machines for shards of `gpus` GPUs; entries without vram_gb are for shards without GPUs.

    A MIG slice is a machine of its own for shards of one GPU: its share of the price and of
    the speed. Unknown keys and wrong values are a ConfigError that names them.
    """
    _check_keys("profiles file", data, _FILE)
    if data.get("schema") != 1:
        raise ConfigError(f"schema is {data.get('schema')!r}, not 1", where="profiles file")
    share = _share("utilisation", data.get("utilisation"), 1.0)
    storage = data.get("storage") or {}
    _check_keys("storage", storage, _STORAGE)
    found = [
        machine
        for name, profile in sorted((data.get("profiles") or {}).items())
        for machine in _machines(str(name), profile or {}, gpus, share)
    ]
    return Profiles(
        tuple(found),
        str(data.get("currency") or ""),
        _optional("storage.price_per_gb_month", storage.get("price_per_gb_month"), zero=True),
        _optional("storage.capacity_gb", storage.get("capacity_gb"), zero=True),
    )


def named_on_slurm(files: Iterable[Any]) -> set[str]:
    """Which of partition, qos, … some profile of these files names; wrong files are not judged."""
    found: set[str] = set()
    for profile in (p for one in files for p in _values(one, "profiles")):
        for terms in _values(profile, "modes"):
            slurm = terms.get("slurm") if isinstance(terms, Mapping) else None
            found |= {key for key, value in (slurm or {}).items() if value is not None}
        if isinstance(profile, Mapping) and any(
            one.get("gpu_model") for one in profile.get("mig") or ()
        ):
            found.add("gpu_model")
    return found


def _values(data: Any, key: str) -> list[Any]:
    inner = data.get(key) if isinstance(data, Mapping) else None
    return list(inner.values()) if isinstance(inner, Mapping) else []


def _machines(
    name: str, profile: Mapping[str, Any], gpus: int, utilisation: float
) -> Iterator[Machine]:
    _check_keys(name, profile, _PROFILE)
    memory = _optional(f"{name}.vram_gb", profile.get("vram_gb"))
    _check_capacity(name, profile, has_gpus=memory is not None)
    for mode in sorted(profile.get("modes") or {}):
        if mode not in MODES:
            raise ConfigError(f"unknown mode {mode!r}", where=name, fix=f"use {', '.join(MODES)}")
        terms = profile["modes"][mode] or {}
        _check_keys(f"{name}.modes.{mode}", terms, _MODE)
        _check_capacity(f"{name}.modes.{mode}", terms, has_gpus=memory is not None)
        whole = _machine(name, mode, profile, terms, gpus, utilisation)
        slices = [_slice(whole, part) for part in profile.get("mig") or ()]
        if (memory is None) == (gpus == 0):
            yield whole
            yield from slices if gpus == 1 else ()


def _machine(
    name: str,
    mode: str,
    profile: Mapping[str, Any],
    terms: Mapping[str, Any],
    gpus: int,
    utilisation: float,
) -> Machine:
    at = f"{name}.modes.{mode}"
    pool, most = _pool(name, mode, profile, terms)
    hours = _optional(f"{at}.walltime_max_h", terms.get("walltime_max_h"))
    return Machine(
        profile=name,
        mode=mode,
        price_per_h=_optional(f"{at}.price_per_h", terms.get("price_per_h"), zero=True),
        vram_gb=_optional(f"{name}.vram_gb", profile.get("vram_gb")),
        speed=_number(f"{name}.speed", profile.get("speed"), 1.0),
        write_speed=_number(f"{name}.write_speed", profile.get("write_speed"), 1.0),
        mtbf_h=_optional(f"{at}.mtbf_h", terms.get("mtbf_h")),
        preempt_mtbf_h=_optional(f"{at}.preempt_mtbf_h", terms.get("preempt_mtbf_h")),
        notice_s=_optional(f"{at}.notice_s", terms.get("notice_s"), zero=True),
        places=None if most is None else int(most) // max(1, gpus),
        utilisation=_share(f"{at}.utilisation", terms.get("utilisation"), utilisation),
        ckpt_gb=_optional(f"{name}.ckpt_gb", profile.get("ckpt_gb")),
        walltime_s=None if hours is None else 3600.0 * hours,
        pool=pool,
        gpus_a_place=max(1, gpus),
        slurm=_slurm(f"{at}.slurm", terms.get("slurm")),
    )


def _pool(
    name: str, mode: str, profile: Mapping[str, Any], terms: Mapping[str, Any]
) -> tuple[str | None, float | None]:
    """Whose GPUs (nodes) they are, and how many of them at a time; None: no limit is known."""
    key = capacity_key(0 if profile.get("vram_gb") is None else 1)
    of_all = _optional(f"{name}.{key}", profile.get(key), zero=True)
    of_mode = _optional(f"{name}.modes.{mode}.{key}", terms.get(key), zero=True)
    if of_all is not None:
        return name, of_all if of_mode is None else min(of_all, of_mode)
    return (None, None) if of_mode is None else (f"{name}, {mode}", of_mode)


def capacity_key(gpus: int) -> str:
    """The name of the limit of places for shards of so many GPUs."""
    return "gpus_max" if gpus else "nodes_max"


def _check_capacity(where: str, data: Mapping[str, Any], *, has_gpus: bool) -> None:
    """A limit in the wrong unit would be no limit."""
    wrong, right = capacity_key(not has_gpus), capacity_key(has_gpus)
    if data.get(wrong) is not None:
        kind = "with" if has_gpus else "without"
        raise ConfigError(
            f"{wrong} does not go with a profile {kind} GPUs", where=where, fix=f"use {right}"
        )


def _slice(whole: Machine, part: Mapping[str, Any]) -> Machine:
    """A part of a GPU; a GPU holds as many of it as fit whole."""
    at = f"{whole.profile}.mig"
    _check_keys(at, part, _SLICE)
    share = _share(f"{at}.share", part.get("share"), 1.0)
    each = math.floor(1.0 / share + 1e-4)  # 0.142857 is meant to be a seventh
    model = part.get("gpu_model")
    return replace(
        whole,
        profile=f"{whole.profile}/{part.get('name')}",
        price_per_h=None if whole.price_per_h is None else whole.price_per_h * share,
        vram_gb=_optional(f"{at}.vram_gb", part.get("vram_gb")),
        speed=whole.speed * share,
        places=None if whole.places is None else whole.places * each,
        gpus_a_place=1.0 / each,
        slurm=whole.slurm if model is None else {**whole.slurm, "gpu_model": str(model)},
    )


def _slurm(where: str, data: Any) -> dict[str, str]:
    _check_keys(where, {} if data is None else data, _SLURM)
    return {key: str(value) for key, value in sorted((data or {}).items()) if value is not None}


def _check_keys(where: str, value: Any, known: tuple[str, ...]) -> None:
    if not isinstance(value, Mapping):
        raise ConfigError(f"is {value!r}, not a mapping", where=where)
    for key in value:
        if key not in known:
            near = difflib.get_close_matches(str(key), known, 1) or list(known)
            raise ConfigError(
                f"unknown key {key!r}", where=where, fix=f"did you mean {' or '.join(near)}?"
            )


def _optional(where: str, value: Any, *, zero: bool = False) -> float | None:
    if value is None:
        return None
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not (value > 0 or (zero and value == 0)) or value == float("inf"):
        least = "0 or more" if zero else "above 0"
        raise ConfigError(f"is {value!r}", where=where, fix=f"use a number {least}, or null")
    return float(value)


def _number(where: str, value: Any, default: float) -> float:
    found = _optional(where, value)
    return default if found is None else found


def _share(where: str, value: Any, default: float) -> float:
    found = _number(where, value, default)
    if found > 1.0:
        raise ConfigError(f"is {found:g}", where=where, fix="use a number above 0, at most 1")
    return found
