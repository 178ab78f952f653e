"""`milepost simulate`: hold a plan's predicted overhead against simulated runs."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from milepost.cli.options import json_option, root_option
from milepost.errors import ConfigError
from milepost.paths import RunPaths


@click.command()
@click.argument("run")
@root_option
@click.option("--jobs", default=2000, show_default=True, help="How many jobs to simulate.")
@click.option("--seed", default=1, show_default=True, help="Same seed, same numbers.")
@click.option("--shape", default=1.0, show_default=True, help="Weibull shape; below 1: clusters.")
@click.option("--interval", type=float, help="Seconds between checkpoints; that of the plan.")
@json_option
def command(
    run: str,
    root: Path,
    jobs: int,
    seed: int,
    shape: float,
    interval: float | None,
    as_json: bool,
) -> None:
    """Simulate the shards of RUN with the parameters of its plan; writes nothing."""
    from milepost.durable import read_json
    from milepost.planner.simulate import simulate
    from milepost.planner.theory import exact_overhead

    job = _job(read_json(_existing(RunPaths(run, root))), shape, interval)
    predicted = exact_overhead(
        job.interval_s, job.t_ckpt_s, job.mtbf_s, job.restore_s, job.downtime_s, job.lag_s
    )
    if predicted > _HOPELESS:
        raise ConfigError(
            f"an interval of {job.interval_s:g} s with failures every {job.mtbf_s:g} s never ends",
            where="--interval",
            fix="simulate a shorter interval",
        )
    found = simulate(job, jobs, seed)
    if as_json:
        click.echo(json.dumps({"predicted": predicted, **asdict(found), "job": asdict(job)}))
        return
    click.echo(f"interval   {job.interval_s:.4g} s, {job.chunks} chunks a job")
    click.echo(f"predicted  {100 * predicted:.3g} % overhead")
    click.echo(
        f"simulated  {100 * found.overhead:.3g} % "
        f"({100 * found.low:.3g} to {100 * found.high:.3g}, 95 %), "
        f"{found.failures_per_job:.3g} failures a job, {found.jobs} jobs"
    )


_HOPELESS = 1000.0
"""A job whose overhead is that many times its work is not simulated."""


def _existing(paths: RunPaths) -> Path:
    if not paths.plan.is_file():
        raise ConfigError(
            "there is no plan", where=paths.plan, fix=f"run `milepost plan {paths.run}` first"
        )
    return paths.plan


def _job(plan: dict[str, Any], shape: float, interval: float | None) -> Any:
    """The job of a plan; where the length of a shard is not known, a hundred MTBFs of work."""
    from milepost.planner.simulate import Job

    known = plan["overhead"]
    if known["t_ckpt_s"] is None or known["unit_s"] is None:
        raise ConfigError(
            "the plan has no measured checkpoint or task, so there is nothing to simulate",
            where=f"run {plan['run']}",
            fix="run the smoke test, then `milepost plan` again",
        )
    interval_s = known["unit_s"] if interval is None else interval
    if not interval_s > 0.0:
        raise ConfigError(f"interval is {interval_s:g} s", fix="use a number above 0")
    useful_s = known["useful_s"]
    work_s = 100.0 * known["mtbf_s"] if useful_s is None else useful_s / plan["shard_count"]
    return Job(
        interval_s=interval_s,
        t_ckpt_s=known["t_ckpt_s"],
        mtbf_s=known["mtbf_s"],
        chunks=max(1, round(work_s / interval_s)),
        restore_s=known["restore_s"],
        downtime_s=known["downtime_s"],
        lag_s=known["durable_lag_s"],
        shape=shape,
    )
