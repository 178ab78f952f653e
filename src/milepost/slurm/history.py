"""What slurmdbd has recorded about jobs: every attempt of each, by `sacct`.

Asked by job id and with a start, never with sacct's own window, which loses jobs at midnight.
"""

from __future__ import annotations

from collections.abc import Iterable

from milepost.slurm.command import SEPARATOR, NotHeard, Said, failed, run
from milepost.slurm.jobids import batches, checked
from milepost.slurm.records import AttemptRecord, Row, join
from milepost.slurm.sacct_text import FIELDS, FREE_TEXT, NEWER, parse_rows
from milepost.slurm.units import print_time
from milepost.slurm.version import slurm_version

CLOCK_SKEW_S = 3600.0
"""The clocks of the submitting host and of slurmctld may differ by this much."""
_DISABLED = "accounting storage is disabled"


class NoAccounting(NotHeard):
    """This cluster keeps no accounting: sacct will never answer."""


def history(job_ids: Iterable[str], since: float) -> dict[str, list[AttemptRecord]]:
    """The attempts of each job, oldest first; a job that is not recorded is absent.

    `since` (seconds since the epoch) is when the first of the jobs was submitted. Keys are ids as
    sacct prints them (`123`, `123_4`, `123+0`) and, for a task of an array that was asked for by
    its plain number, that number. Raises NotHeard when sacct fails, NoAccounting (a NotHeard)
    where there is none.
    """
    wanted = checked(job_ids)
    rows: list[Row] = []
    for batch in batches(wanted):
        rows.extend(parse_rows(_sacct(batch, since)))
    found = join(rows)
    by_number = {records[0].raw_id: records for records in found.values()}
    return {**{k: v for k, v in by_number.items() if k in wanted}, **found}


def _sacct(batch: Iterable[str], since: float) -> str:
    newer = NEWER if slurm_version() >= (24, 11) else ()
    said = run(
        *("sacct", "-D", "-P", f"--delimiter={SEPARATOR}", "-j", ",".join(batch)),
        *("-S", print_time(since - CLOCK_SKEW_S)),
        *("-o", ",".join((*FIELDS, *newer, *FREE_TEXT))),
    )
    if is_accounting_disabled(said):
        raise NoAccounting(
            "this cluster keeps no accounting",
            said=said,
            fix="the states of ended jobs come from slurmctld alone, for MinJobAge seconds",
        )
    if said.exit_code != 0 or sacct_complains(said):
        raise failed(said)
    return said.out


def is_accounting_disabled(said: Said) -> bool:
    """Does sacct say that this cluster keeps no accounting?"""
    return _DISABLED in (said.err + said.out).lower()


def sacct_complains(said: Said) -> bool:
    """Before 23.11 sacct could fail with exit code 0: it said so, and printed at most a header."""
    return "error:" in said.err and len(said.out.strip().splitlines()) <= 1
