"""`milepost plan`: choose interval, shard size, walltime, profile and mode of a run."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from milepost.cli.options import json_option, root_option
from milepost.errors import Refused
from milepost.paths import RunPaths

if TYPE_CHECKING:
    from milepost.config.spec import RunSpec
    from milepost.planner.sharding import RowSizes
    from milepost.slurm.past import PastJobs


@click.command()
@click.argument("words", nargs=-1, metavar="[RUN] [KEY=VALUE]...")
@root_option
@click.option(
    "--what-if",
    "more",
    multiple=True,
    metavar="KEY=VALUE",
    help="Plan with other values, such as t_ckpt_s=5 mtbf_h=6, beside the plan as it is; writes "
    "nothing.",
)
@json_option
def command(words: tuple[str, ...], root: Path, more: tuple[str, ...], as_json: bool) -> None:
    """Choose interval, shard size, walltime, profile and mode of RUN.

    Reads results/RUN/contract.json and results/RUN/smoke/smoke.json, and writes
    results/RUN/plan/plan.json and report.html. The same inputs give the same bytes. RUN may be
    left out where only one run has a smoke test.

    \b
      milepost plan sweep
      milepost plan sweep --what-if t_ckpt_s=5 mtbf_h=6
    """
    from milepost.planner.make import make_plan
    from milepost.planner.summary import summarise

    names = [word for word in words if "=" not in word]
    changes = (*more, *(word for word in words if "=" in word))
    if len(names) > 1:
        raise click.UsageError(f"one RUN at a time, not {' and '.join(names)}")
    paths = RunPaths(names[0] if names else _only_run(root), root)
    inputs = _read_inputs(paths)
    if changes:
        click.echo(_compare(paths.run, inputs, changes, as_json=as_json))
        return
    plan = make_plan(**inputs)
    _write(paths, plan)
    click.echo(_json(plan) if as_json else summarise(plan))


def _compare(run: str, inputs: dict[str, Any], changes: Sequence[str], *, as_json: bool) -> str:
    """The plan as it is and as it would be; one that cannot be made says why."""
    from milepost.planner.make import make_plan
    from milepost.planner.what_if import apply_changes, compare

    changed = apply_changes(inputs, changes)
    before, refusal = None, ""
    try:
        before = make_plan(**inputs)
    except Refused as error:
        refusal = error.what
    after = make_plan(**changed)
    if as_json:
        found = {"run": run, "changes": list(changes), "before": before, "after": after}
        return _json(found | {"refusal": refusal or None})
    return compare(run, changes, before, after, refusal)


def _json(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False)


def _only_run(root: Path) -> str:
    """The run to plan when none is named: the only one that has a smoke test."""
    found = sorted(path.parents[1].name for path in root.glob("results/*/smoke/smoke.json"))
    if len(found) != 1:
        known = ", ".join(found) or "none has a smoke test yet"
        raise click.UsageError(f"name a RUN ({known})")
    return found[0]


def _read_inputs(paths: RunPaths) -> dict[str, Any]:
    """Arguments of make_plan, from the files of the run."""
    from milepost.config.contract import load_contract
    from milepost.durable import read_json
    from milepost.launch.profilefile import read_profile_file
    from milepost.runner.observed import attempts_of_run

    contract = load_contract(paths)
    if not paths.smoke.is_file():
        raise Refused(
            "there is no smoke test result",
            where=paths.smoke,
            fix=f"run `milepost smoke {paths.run}` first",
        )
    smoke = read_json(paths.smoke)
    profiles = contract.spec.planner.profiles
    _gate(smoke, contract.digest, paths)
    return {
        "spec": contract.spec,
        "smoke": smoke,
        "tasks": int(contract.table["rows"]),
        "attempts": attempts_of_run(paths),
        "profiles": None if profiles is None else read_profile_file(profiles, paths.root),
        "jobs": _read_jobs(contract.spec.planner.history_days),
        "sizes": _read_sizes(contract.spec, paths.root),
    }


def _gate(smoke: dict[str, Any], digest: str, paths: RunPaths) -> None:
    """Refuse a smoke test that did not pass or that tested another contract."""
    if not smoke.get("passed"):
        raise Refused(
            f"the smoke test did not pass: {smoke.get('reason', 'no reason given')}",
            where=paths.smoke,
            fix=f"mend the cause, then run `milepost smoke {paths.run}` again",
        )
    if smoke.get("contract_digest") != digest:
        raise Refused(
            f"the smoke test is of contract {smoke.get('contract_digest')}, the contract is {digest}",
            where=paths.smoke,
            fix=f"run `milepost smoke {paths.run}` again",
        )


def _read_jobs(days: float | None) -> PastJobs | None:
    """What the accounting knows of the user's own jobs; None when nobody is to be asked."""
    if days is None:
        return None
    from milepost.slurm.past import past_jobs

    now_s = time.time()
    return past_jobs(now_s - days * 86400.0, now_s)


def _read_sizes(spec: RunSpec, root: Path) -> RowSizes | None:
    """The work of each row, where a column tells; that of the smoke slice is the unit."""
    column = spec.planner.size
    if column is None:
        return None
    import statistics

    from milepost.config.tasks import read_tasks, row_size
    from milepost.launch.slice import choose_rows
    from milepost.planner.sharding import RowSizes

    tasks = read_tasks(root / spec.work.table)
    unit = statistics.median(row_size(row, column) for row in choose_rows(tasks, spec.smoke))
    return RowSizes(tuple(row_size(task, column) for task in tasks), unit)


def _write(paths: RunPaths, plan: dict[str, Any]) -> None:
    """Report first, plan last: a plan that exists has its report."""
    from milepost.durable import atomic_file, write_json
    from milepost.planner.report import report_html

    with atomic_file(paths.plan_report) as stream:
        stream.write(report_html(plan))
    write_json(paths.plan, plan)
