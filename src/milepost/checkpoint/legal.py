"""May this state be restored here? Container, GPU profile, code and decomposition must match."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from milepost.checkpoint.environment import Environment, current_environment
from milepost.checkpoint.manifest import Manifest
from milepost.errors import Refused

CONFIG, LIBRARY, COMMAND = "config", "library", "command"
"""Who restores: a run, a program that uses the library by itself, or a person."""
ALLOWABLE = ("container", "gpu_profile", "code")


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a restart must match. `allow` lists differences that are accepted; with
    `can_redecompose` the decomposition is one of them. `caller` is CONFIG, LIBRARY or COMMAND:
    where whoever reads a refusal can allow it."""

    environment: Environment
    rank: int = 0
    rank_count: int = 1
    allow: tuple[str, ...] = ()
    decomposition_version: int = 1
    can_redecompose: bool = False
    caller: str = LIBRARY


def wanted_now(
    allow: Sequence[str] = (),
    rank: int = 0,
    rank_count: int = 1,
    decomposition_version: int = 1,
    can_redecompose: bool = False,
    caller: str = LIBRARY,
) -> Wanted:
    """What a restart in this process must match."""
    environment = current_environment()
    return Wanted(
        environment, rank, rank_count, tuple(allow), decomposition_version, can_redecompose, caller
    )


def differences(manifest: Manifest, wanted: Wanted) -> tuple[str, ...]:
    """Why restoring `manifest` would be illegal, one sentence for each difference."""
    pairs = {
        "container": (manifest.environment.container, wanted.environment.container),
        "gpu_profile": (manifest.environment.gpu_profile, wanted.environment.gpu_profile),
        "code": (manifest.environment.code, wanted.environment.code),
    }
    if manifest.kind == "arrays" and not wanted.can_redecompose:
        pairs["decomposition"] = (
            f"version {manifest.decomposition_version}, {len(manifest.ranks)} ranks",
            f"version {wanted.decomposition_version}, {wanted.rank_count} ranks",
        )
    return tuple(
        f"{name} was {then or 'not recorded'} and is {now or 'not known'}"
        for name, (then, now) in pairs.items()
        if then != now and name not in wanted.allow
    )


def check_legal(manifest: Manifest, wanted: Wanted, where: object) -> None:
    """Raise Refused, naming the differences, when restoring `manifest` would be illegal."""
    found = differences(manifest, wanted)
    if found:
        names = {text.partition(" ")[0] for text in found}
        allowable = sorted(names & set(ALLOWABLE))
        ways = ["restart where it was made"]
        if allowable:
            ways.append(f"accept it with {_allowing(allowable, wanted.caller)}")
        if "decomposition" in names:
            ways.append("give Checkpointer(redecompose=…), which makes the state of one rank anew")
        raise Refused(
            f"generation {manifest.name} may not be restored here: {'; '.join(found)}",
            where=where,
            fix=", or ".join(ways),
        )


def _allowing(names: Sequence[str], caller: str) -> str:
    """How the caller accepts these differences."""
    if caller == COMMAND:
        return " ".join(f"--allow {name}" for name in names)
    if caller == CONFIG:
        return f"checkpoint.allow: [{', '.join(names)}]"
    return f"Checkpointer(allow={list(names)})"


def is_same_cut(manifest: Manifest, wanted: Wanted) -> bool:
    """Was it made by as many ranks, cut in the same way?"""
    return (
        len(manifest.ranks) == wanted.rank_count
        and manifest.decomposition_version == wanted.decomposition_version
    )
