"""Checks that a schema cannot make, over all runs and the places they share."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterator, Mapping
from itertools import combinations
from pathlib import Path
from typing import Any

from milepost.config.checks_run import RUN_CHECKS
from milepost.config.checks_work import WORK_CHECKS, needed_by
from milepost.config.needs import find_circles
from milepost.config.schema import Problem, neighbour, shown
from milepost.config.signatures import check_signatures
from milepost.config.view import View

NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_LONGEST_NAME = 60


def check_config(data: Mapping[str, Any], root: Path) -> list[Problem]:
    """Mistakes that need more than the schema; `data` has its defaults and may be wrong anywhere.

    Files are looked for below `root`.
    """
    view = View(data)
    checks: list[Callable[[], Iterator[Problem]]] = [
        lambda: _numbers(view),
        lambda: _names(view),
        lambda: _tiers(view),
        lambda: _needs(view),
        lambda: check_signatures(view.at("signatures")),
    ]
    problems = [problem for check in checks for problem in check()]
    for run in view.items("runs"):
        for run_check in RUN_CHECKS:
            problems += run_check(run, view.at("tiers"))
        for work_check in WORK_CHECKS:
            problems += work_check(run, root)
    return problems


def _numbers(view: View) -> Iterator[Problem]:
    if isinstance(view.data, float) and not math.isfinite(view.data):
        yield view.wrong(f"{view.data} is not a finite number")
    for item in view.items():
        yield from _numbers(item)


def _names(view: View) -> Iterator[Problem]:
    for run in view.items("runs"):
        if not NAME.fullmatch(run.name):
            better = re.sub(r"[^a-z0-9]+", "-", run.name.lower()).strip("-") or "run-1"
            yield run.wrong(
                f"{run.name!r} is no name for a run; expected a-z, 0-9 and single hyphens,"
                f" such as {better}"
            )
        elif len(run.name) > _LONGEST_NAME:
            yield run.wrong(f"the name is longer than {_LONGEST_NAME} characters")


def _needs(view: View) -> Iterator[Problem]:
    """Needed runs exist, and no run waits for itself."""
    known = [run.name for run in view.items("runs")]
    needs = {run.name: needed_by(run) for run in view.items("runs")}
    for run in view.items("runs"):
        for place in run.items("needs"):
            if (name := place.text()) is not None and name not in known:
                others = [other for other in known if other != run.name]
                yield place.wrong(f"there is no run {name!r}; {neighbour(name, others)}")
    for circle in find_circles(needs):
        yield view.at("runs", circle[0], "needs").wrong(
            f"a circle of runs that wait for each other: {' needs '.join(circle)}; remove one"
        )


def _tiers(view: View) -> Iterator[Problem]:
    """Tiers lie beside each other and outside the folders of the runs."""
    tiers = view.at("tiers")
    places = {name: tiers.at(name) for name in ("scratch", "warm", "cold") if tiers.text(name)}
    folders = {name: _folder(str(tier.data)) for name, tier in places.items()}
    for run in view.items("runs"):
        for own in (f"results/{run.name}", f"work/{run.name}"):
            for name, folder in folders.items():
                if _is_within(folder, own) or _is_within(own, folder):
                    yield places[name].wrong(
                        f"{shown(places[name].data)} overlaps {own}, the folder of run {run.name};"
                        " expected a place of its own"
                    )
    for one, other in combinations(folders, 2):
        inner = _is_within(folders[one], folders[other]) or _is_within(folders[other], folders[one])
        if inner:
            yield places[other].wrong(
                f"{shown(places[other].data)} overlaps tiers.{one}; expected a place of its own"
            )


def _folder(place: str) -> str:
    is_url = "://" in place
    return place.rstrip("/") if is_url else os.path.normpath(place)


def _is_within(inner: str, outer: str) -> bool:
    return inner == outer or inner.startswith(outer + "/")
