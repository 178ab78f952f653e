"""GPU profiles: what a profile file says, as the machines a shard may run on."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from milepost.errors import ConfigError
from milepost.planner.machine import Machine

MODES = ("on-demand", "interruptible", "reserved")
_FILE = ("schema", "currency", "utilisation", "profiles")
_PROFILE = ("vram_gb", "ckpt_gb", "write_speed", "speed", "mig", "modes")
_MODE = ("price_per_h", "mtbf_h", "preempt_mtbf_h", "notice_s", "gpus_max")
_SLICE = ("name", "vram_gb", "share")


@dataclass(frozen=True, slots=True)
class Profiles:
    """The machines for a shard of so many GPUs, in order of name, and the prices' currency."""

    machines: tuple[Machine, ...]
    currency: str


def read_profiles(data: Mapping[str, Any], gpus: int) -> Profiles:
    """Machines for shards of `gpus` GPUs; entries without vram_gb are for shards without GPUs.

    A MIG slice is a machine of its own for shards of one GPU: its share of the price and of
    the speed. Unknown keys and wrong values are a ConfigError that names them.
    """
    _check_keys("profiles file", data, _FILE)
    if data.get("schema") != 1:
        raise ConfigError(f"schema is {data.get('schema')!r}, not 1", where="profiles file")
    share = _number("utilisation", data.get("utilisation"), 1.0)
    if not 0.0 < share <= 1.0:
        raise ConfigError(f"utilisation is {share}", fix="use a number above 0, at most 1")
    found = [
        machine
        for name, profile in sorted((data.get("profiles") or {}).items())
        for machine in _machines(str(name), profile or {}, gpus, share)
    ]
    return Profiles(tuple(found), str(data.get("currency") or ""))


def _machines(
    name: str, profile: Mapping[str, Any], gpus: int, utilisation: float
) -> Iterator[Machine]:
    _check_keys(name, profile, _PROFILE)
    memory = _optional(f"{name}.vram_gb", profile.get("vram_gb"))
    if (memory is None) != (gpus == 0):
        return
    slices = profile.get("mig") or () if gpus == 1 else ()
    for mode in sorted(profile.get("modes") or {}):
        if mode not in MODES:
            raise ConfigError(f"unknown mode {mode!r}", where=name, fix=f"use {', '.join(MODES)}")
        terms = profile["modes"][mode] or {}
        _check_keys(f"{name}.modes.{mode}", terms, _MODE)
        whole = _machine(name, mode, profile, terms, gpus, utilisation)
        yield whole
        for part in slices:
            yield _slice(whole, part)


def _machine(
    name: str,
    mode: str,
    profile: Mapping[str, Any],
    terms: Mapping[str, Any],
    gpus: int,
    utilisation: float,
) -> Machine:
    at = f"{name}.modes.{mode}"
    limit = _optional(f"{at}.gpus_max", terms.get("gpus_max"))
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
        places=None if limit is None else int(limit) // max(1, gpus),
        utilisation=utilisation,
        ckpt_gb=_optional(f"{name}.ckpt_gb", profile.get("ckpt_gb")),
    )


def _slice(whole: Machine, part: Mapping[str, Any]) -> Machine:
    from dataclasses import replace

    at = f"{whole.profile}.mig"
    _check_keys(at, part, _SLICE)
    share = _number(f"{at}.share", part.get("share"), 1.0)
    if share > 1.0:
        raise ConfigError(f"share is {share}", where=at, fix="use the part of the GPU, at most 1")
    return replace(
        whole,
        profile=f"{whole.profile}/{part.get('name')}",
        price_per_h=None if whole.price_per_h is None else whole.price_per_h * share,
        vram_gb=_optional(f"{at}.vram_gb", part.get("vram_gb")),
        speed=whole.speed * share,
        places=None if whole.places is None else int(whole.places / share + 1e-9),
    )


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
