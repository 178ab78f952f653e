"""Solve a mixed integer model with HiGHS, or with the CBC that comes with PuLP."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from milepost.errors import RuntimeFailure

SOLVERS = ("HiGHS", "CBC")
"""In the order in which they are asked."""


@dataclass(frozen=True, slots=True)
class Effort:
    """How hard to try. `gap`: an answer this near to the best one (relative) is good enough.
    `time_limit_s`: give back the best answer that was found until then."""

    gap: float
    time_limit_s: float


@dataclass(frozen=True, slots=True)
class Solved:
    """`value` of the objective, None when the constraints cannot be met.

    `is_best`: proven to be within the effort's gap; False when the time was over before.
    """

    value: float | None
    solver: str
    is_best: bool = True


@cache
def available() -> tuple[str, ...]:
    """Solvers of this installation, the preferred one first."""
    found = tuple(name for name in SOLVERS if _solver(name, Effort(0.0, 1.0), mip=True).available())
    if "HiGHS" in found:
        import highspy

        with _silence():  # the first one of a process greets, whatever its options say
            highspy.Highs()  # type: ignore[no-untyped-call]
    return found


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    """Lose what C code prints: stdout carries a command's result and nothing else."""
    sys.stdout.flush()
    kept, nowhere = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    try:
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)
        os.close(nowhere)


def solve(
    problem: Any, effort: Effort, solvers: Sequence[str] | None = None, *, mip: bool = True
) -> Solved:
    """Minimise `problem` with the first solver that gives an answer.

    A solver that breaks, or ends without an answer, gives way to the next one. RuntimeFailure
    when none has an answer.
    """
    import pulp

    known, said = available(), []
    for name in solvers or known:
        try:
            problem.solve(_solver(name, effort, mip=mip))
        except (pulp.PulpSolverError, OSError, KeyError) as error:
            # KeyError: PuLP does not know every way in which HiGHS may end
            said.append(f"{name}: {error!r}")
            continue
        status, found = problem.status, problem.sol_status
        if status == pulp.LpStatusInfeasible:
            return Solved(None, name)
        if found in (pulp.LpSolutionOptimal, pulp.LpSolutionIntegerFeasible):
            best = found == pulp.LpSolutionOptimal
            return Solved(float(pulp.value(problem.objective) or 0.0), name, best)
        said.append(f"{name} ended with {pulp.LpStatus[status]}")
    raise RuntimeFailure(
        f"no solver found an answer ({'; '.join(said) or 'none is installed'})",
        where="planner",
        fix="relax deadline_h or budget, or name fewer profiles",
    )


def _solver(name: str, effort: Effort, *, mip: bool) -> Any:
    import pulp

    kind = pulp.HiGHS if name == "HiGHS" else pulp.PULP_CBC_CMD
    return kind(mip=mip, msg=False, threads=1, gapRel=effort.gap, timeLimit=effort.time_limit_s)
