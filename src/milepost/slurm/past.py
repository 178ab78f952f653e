"""All jobs of this user in a window of time, as the accounting recorded them.

One row for each execution of a job: `-D` lists every requeue, `-X` leaves steps out.
"""

from __future__ import annotations

import getpass
import re
from dataclasses import dataclass

from milepost.slurm.command import SEPARATOR, NotHeard, failed, run
from milepost.slurm.history import is_accounting_disabled, sacct_complains
from milepost.slurm.records import Row
from milepost.slurm.sacct_text import PAST, parse_rows
from milepost.slurm.units import print_time

PATIENCE_S = 30.0
"""Nothing waits for the answer but a plan, which can do without it."""


@dataclass(frozen=True, slots=True)
class PastJobs:
    """Executions of jobs between two moments (seconds since the epoch).

    `complaint` says why nobody answered; then there are no rows, and nothing follows from that.
    """

    since_s: float
    until_s: float
    rows: tuple[Row, ...] = ()
    complaint: str | None = None


def past_jobs(since_s: float, until_s: float) -> PastJobs:
    """Ask the accounting; never raises NotHeard: a plan is made without it then."""
    try:
        return PastJobs(since_s, until_s, tuple(parse_rows(_ask(since_s, until_s))))
    except NotHeard as error:
        return PastJobs(since_s, until_s, complaint=_shortly(error))


def _shortly(error: NotHeard) -> str:
    """Why nobody answered, without the times that were asked about: the same complaint is the
    same text."""
    if error.said is None or not error.said.text():
        return re.sub("`.*`", "sacct", error.what, flags=re.DOTALL)
    return error.said.text().splitlines()[-1]


def _ask(since_s: float, until_s: float) -> str:
    said = run(
        *("sacct", "-D", "-X", "-P", f"--delimiter={SEPARATOR}", "-u", getpass.getuser()),
        *("-S", print_time(since_s), "-E", print_time(until_s), "-o", ",".join(PAST)),
        timeout_s=PATIENCE_S,
    )
    if is_accounting_disabled(said):
        raise NotHeard("this cluster keeps no accounting", said=said, fix="state planner.mtbf_h")
    if said.exit_code != 0 or sacct_complains(said):
        raise failed(said)
    return said.out
