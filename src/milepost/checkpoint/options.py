"""The options of a Checkpointer as the runner hands them over: one JSON object in MILEPOST_CKPT."""

from __future__ import annotations

import difflib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from milepost.checkpoint.codec import check_choice
from milepost.checkpoint.legal import ALLOWABLE
from milepost.errors import ConfigError

VARIABLE = "MILEPOST_CKPT"


@dataclass(frozen=True, slots=True)
class Options:
    """Where, when and how to save.

    `folder` holds the generations; `warm` and `cold` are places (paths or URLs) whose top holds
    the same generations. Times are seconds, `deadline` is seconds since the epoch, and
    `max_bandwidth_mb_s` is 10^6 bytes/s. `upload` False only reads from
    `warm`; `to` is `warm`, or `cold` to go on from warm to cold with every `cold_every`-th
    generation, the gold ones and the last. `rank_timeout_s` bounds every
    wait of a rank for the others. With `mtbf_s`, the interval is the one that loses least, and
    `interval_s` counts until a save was measured; it is then at most
    `interval_most_s`. `mtbf_file` holds a newer MTBF once there is one: `{"mtbf_s": …}`.
    `when_busy`: a save that is due at a step while
    one is under way is skipped (`skip`) or waited for (`wait`). `max_gap_s`: so that older
    generations stay at most so far apart. `staging_limit_mb` bounds the memory of the copy
    (10^6 bytes).
    """

    folder: str = "checkpoints"
    warm: str | None = None
    cold: str | None = None
    interval_s: float = 120.0
    deadline: float | None = None
    deadline_margin_s: float = 60.0
    rotation: int = 3
    compression: str = "auto"
    delta: bool = True
    encrypt: Mapping[str, Any] | None = None
    gold_every: int | None = None
    ttl_days: float | None = None
    allow: tuple[str, ...] = ()
    upload: bool = True
    to: str = "warm"
    cold_every: int = 1
    max_bandwidth_mb_s: float | None = None
    retries: int = 5
    rank_timeout_s: float = 600.0
    mtbf_s: float | None = None
    interval_most_s: float | None = None
    when_busy: str = "skip"
    max_gap_s: float | None = None
    staging_limit_mb: float | None = None
    mtbf_file: str | None = None

    def __post_init__(self) -> None:
        check_choice(self.compression)
        for name, least in (
            ("interval_s", 0),
            ("rotation", 1),
            ("cold_every", 1),
            ("retries", 0),
            ("rank_timeout_s", 0),
        ):
            value = getattr(self, name)
            if not isinstance(value, int | float) or isinstance(value, bool) or not value >= least:
                raise ConfigError(
                    f"{name} is {value!r}; it must be {least} or more", where="checkpoint"
                )
        if self.to not in ("warm", "cold"):
            raise ConfigError(f"to is {self.to!r}", where="checkpoint", fix="use warm or cold")
        if self.when_busy not in ("skip", "wait"):
            raise ConfigError(
                f"when_busy is {self.when_busy!r}", where="checkpoint", fix="use skip or wait"
            )
        for name in ("mtbf_s", "interval_most_s", "max_gap_s", "staging_limit_mb"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ConfigError(
                    f"{name} is {value!r}; it must be more than 0", where="checkpoint"
                )
        for difference in self.allow:
            if difference not in ALLOWABLE:
                raise ConfigError(
                    f"allow names {difference!r}",
                    where="checkpoint",
                    fix=f"use {', '.join(ALLOWABLE)}",
                )


def parse_options(value: Mapping[str, Any]) -> Options:
    """Options from plain data; None means the default. A ConfigError names unknown keys."""
    known = {field.name for field in fields(Options)}
    for key in value:
        if key not in known:
            near = difflib.get_close_matches(key, known, 1)
            raise ConfigError(
                f"unknown key {key!r}",
                where=VARIABLE,
                fix=f"did you mean {near[0]!r}?" if near else f"use {', '.join(sorted(known))}",
            )
    given = {key: item for key, item in value.items() if item is not None}
    if "allow" in given:
        given["allow"] = tuple(given["allow"])
    return Options(**given)


def options_from_env(environ: Mapping[str, str] | None = None) -> Options | None:
    """The options in MILEPOST_CKPT; None when it is not set."""
    stated = stated_in_env(environ)
    return None if stated is None else parse_options(stated)


def stated_in_env(environ: Mapping[str, str] | None = None) -> dict[str, Any] | None:
    """What MILEPOST_CKPT states and no more; None when it is not set."""
    text = (os.environ if environ is None else environ).get(VARIABLE)
    if not text:
        return None
    try:
        value = json.loads(text)
    except ValueError as error:
        raise ConfigError(f"is not JSON ({error})", where=VARIABLE) from error
    if not isinstance(value, dict):
        raise ConfigError("is not a JSON object", where=VARIABLE)
    return {key: item for key, item in value.items() if item is not None}
