"""`milepost doctor`: from the symptoms of a run to cause and remedy."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from milepost.cli.options import json_option, root_option
from milepost.errors import Suspect

if TYPE_CHECKING:
    from milepost.evidence.doctor import Diagnosis, Report


@click.command(short_help="from a run's symptoms to cause and remedy")
@click.argument("run")
@click.option(
    "--deep/--quick",
    default=True,
    help="Read and digest every byte of the checkpoints (the default), or compare sizes only.",
)
@root_option
@json_option
def command(run: str, deep: bool, root: Path, as_json: bool) -> None:
    """Look for what ails RUN in what it left on disk: checkpoints, logs, metrics, disks.

    Tells symptom, cause, evidence and remedy, and what it looked at and found nothing. Reads only.
    Exit code 0 when nothing was found, 21 otherwise. Why one shard is not done: `milepost why`.
    """
    from milepost.evidence.doctor import diagnose_run
    from milepost.evidence.doctor_facts import examine
    from milepost.paths import RunPaths

    report = diagnose_run(examine(RunPaths(run, root), deep=deep))
    click.echo(json.dumps(report.as_json(), indent=2) if as_json else told(report))
    if report.diagnoses:
        first = report.diagnoses[0]
        raise Suspect(
            f"{first.symptom}: {first.evidence[0]}",
            where=run if first.shard is None else f"{run}/{first.shard}",
            fix=first.commands(run)[0],
        )


def told(report: Report) -> str:
    """The report for a terminal of 80 columns."""
    from milepost.evidence.doctor import policy
    from milepost.evidence.redact import without_credentials
    from milepost.evidence.tabulate import tabulate
    from milepost.evidence.words import plural

    lines = []
    for diagnosis in report.diagnoses:
        lines += [*_diagnosis(diagnosis, report.run), ""]
    rows = [(a.ailment.replace("_", " "), a.looked_at) for a in report.answers if not a.found]
    if rows:
        lines += [tabulate(("nothing found of", "looked at"), rows), ""]
    ill = [a for a in report.answers if a.found]
    count = (
        f"{plural(len(report.diagnoses), 'diagnosis').replace('siss', 'ses')}"
        if ill
        else "nothing found"
    )
    lines.append(f"run {report.run}: {count}; {len(policy())} ailments looked for")
    text: str = without_credentials("\n".join(lines))
    return text


def _diagnosis(diagnosis: Diagnosis, run: str) -> list[str]:
    from milepost.evidence.why_text import pairs

    where = f"run {run}" if diagnosis.shard is None else f"shard {run}/{diagnosis.shard}"
    commands = "\n".join([diagnosis.remedy, *diagnosis.commands(run)])
    facts = [("cause", diagnosis.why)]
    facts += [("evidence" if n == 0 else "", text) for n, text in enumerate(diagnosis.evidence)]
    return [f"{where}: {diagnosis.symptom}", *pairs([*facts, ("do", commands)])]
