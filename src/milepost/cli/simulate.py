"""`milepost simulate`: play a run against failures, preemptions and walltimes, many times."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from milepost.cli.options import json_option, root_option
from milepost.errors import ConfigError
from milepost.paths import RunPaths

if TYPE_CHECKING:
    from milepost.planner.simulation.failures import Failures
    from milepost.planner.simulation.setting import Setting

_POLICIES = ("plan", "optimal", "adaptive", "default")
_HOPELESS = 1000.0
"""An interval whose overhead is that many times the work is not simulated."""

_QUIET_S = 2.0
"""Progress is shown of a simulation that takes longer than this."""


@click.command()
@click.argument("words", nargs=-1, metavar="[RUN] [KEY=VALUE]...")
@root_option
@click.option("--jobs", default=2000, show_default=True, help="How often a shard is played.")
@click.option("--seed", default=1, show_default=True, help="Same seed, same numbers.")
@click.option(
    "--policy",
    "policies",
    multiple=True,
    type=click.Choice(_POLICIES),
    help="When it saves: as planned, the optimum, adaptive as the runner does it, every 120 s. "
    "May be given again; all when none is named.",
)
@click.option("--interval", "intervals", multiple=True, type=float, help="Also: every so many s.")
@click.option(
    "--what-if", "more", multiple=True, metavar="KEY=VALUE", help="The same as KEY=VALUE."
)
@click.option("--shape", default=1.0, show_default=True, help="Weibull shape; below 1: clusters.")
@click.option(
    "--trace",
    type=click.Path(path_type=Path),
    help="Replay the failures of a CSV file (also .xz, .gz, .bz2): a column `time` or `gap_s`. "
    "Each play begins somewhere else in it.",
)
@click.option("--trace-column", metavar="NAME", help="Its column of times (or gaps).")
@click.option("--trace-only", multiple=True, metavar="COLUMN=VALUE", help="Only such rows of it.")
@click.option("--from-start", is_flag=True, help="Every play begins where the trace begins.")
@json_option
def command(
    words: tuple[str, ...],
    root: Path,
    jobs: int,
    seed: int,
    policies: tuple[str, ...],
    intervals: tuple[float, ...],
    more: tuple[str, ...],
    shape: float,
    trace: Path | None,
    trace_column: str | None,
    trace_only: tuple[str, ...],
    from_start: bool,
    as_json: bool,
) -> None:
    """Play a shard of RUN with the numbers of its plan, or one told by KEY=VALUE alone.

    Failures come at random or from a recorded trace; there are preemptions with notice,
    walltimes and background uploads where the plan or the changes have them. Writes nothing.

    \b
      milepost simulate sweep
      milepost simulate sweep mtbf_h=6 t_ckpt_s=30 --interval 600
      milepost simulate t_ckpt_s=60 work_h=500 --trace failures.csv
    """
    from milepost.planner.simulation.setting import changed, read_changes

    run, texts = _split(words)
    changes = read_changes((*texts, *more))
    failures = _trace(trace, trace_column, trace_only, from_start)
    if failures is not None:
        failures = failures if "mtbf_s" not in changes else failures.scaled(changes["mtbf_s"])
        changes["mtbf_s"] = failures.mtbf_s
    plan = None if run is None else _read(RunPaths(run, root))
    if plan is None and "plan" in policies:
        raise click.UsageError("--policy plan needs a RUN")
    setting = changed(None if plan is None else _setting(plan), changes)
    setting.job().check()
    process = failures or _random(setting.mtbf_s, shape)
    names = policies or _usual(setting, plan is not None)
    chosen = [setting.policy(name) for name in names]
    chosen += [setting.fixed(seconds) for seconds in intervals]
    has_formula = failures is None and shape == 1.0
    rows = [_play(setting, process, one, jobs, seed, has_formula) for one in chosen]
    found = {
        "run": run,
        "setting": asdict(setting),
        "failures": _said(process),
        "jobs": jobs,
        "seed": seed,
        "policies": rows,
    }
    if as_json:
        click.echo(json.dumps(found, allow_nan=False))
        return
    from milepost.planner.simulation.table import describe

    click.echo("\n".join(describe(found)))


def _usual(setting: Setting, has_plan: bool) -> tuple[str, ...]:
    """The policies of a simulation that names none."""
    known = _POLICIES if setting.t_ckpt_s > 0.0 else ("plan",)
    return tuple(name for name in known if has_plan or name != "plan")


def _split(words: tuple[str, ...]) -> tuple[str | None, list[str]]:
    runs = [word for word in words if "=" not in word]
    if len(runs) > 1:
        raise click.UsageError(f"more than one run: {', '.join(runs)}")
    return (runs[0] if runs else None), [word for word in words if "=" in word]


def _read(paths: RunPaths) -> dict[str, Any]:
    from milepost.durable import read_json

    if not paths.plan.is_file():
        raise ConfigError(
            "there is no plan", where=paths.plan, fix=f"run `milepost plan {paths.run}` first"
        )
    return dict(read_json(paths.plan))


def _setting(plan: dict[str, Any]) -> Setting:
    from milepost.planner.simulation.setting import setting_of

    return setting_of(plan)


def _trace(path: Path | None, column: str | None, only: tuple[str, ...], from_start: bool) -> Any:
    from milepost.planner.simulation.trace import read_trace

    if path is None:
        if column or only or from_start:
            raise click.UsageError("--trace-column, --trace-only and --from-start need --trace")
        return None
    pairs = [text.partition("=") for text in only]
    if not all(equals for _, equals, _ in pairs):
        raise click.UsageError("--trace-only takes COLUMN=VALUE")
    return read_trace(path, column, {name: value for name, _, value in pairs}, from_start)


def _random(mtbf_s: float, shape: float) -> Failures:
    from milepost.planner.simulation.failures import Exponential, Weibull

    return Exponential(mtbf_s) if shape == 1.0 else Weibull(mtbf_s, shape)


def _said(failures: Failures) -> dict[str, Any]:
    from milepost.planner.exposure import burstiness
    from milepost.planner.simulation.failures import Replay, Weibull

    found: dict[str, Any] = {"kind": type(failures).__name__.lower(), "mtbf_s": failures.mtbf_s}
    if isinstance(failures, Weibull):
        found["shape"] = failures.shape
    if isinstance(failures, Replay):
        found["count"] = len(failures.times_s)
        found["gaps_c2"] = burstiness(failures.gaps_s.tolist())
    return found


def _play(
    setting: Setting,
    failures: Failures,
    chosen: tuple[str, float | None, Any],
    jobs: int,
    seed: int,
    has_formula: bool,
) -> dict[str, Any]:
    """Simulate one policy; a row of the result."""
    from milepost.planner.simulate import simulate
    from milepost.planner.simulation.outcome import summarise

    title, interval_s, policy = chosen
    predicted = None
    if interval_s is not None:
        expected = setting.predict(interval_s)
        if expected is not None and expected > _HOPELESS:
            raise ConfigError(
                f"an interval of {interval_s:g} s with failures every "
                f"{setting.conditions().effective_mtbf_s:.4g} s never ends",
                where="--interval" if title == "fixed" else f"policy {title}",
                fix="simulate a shorter interval",
            )
        predicted = expected if has_formula else None
    runs = simulate(setting.job(), failures, policy, jobs, seed, _progress(title))
    outcome = asdict(summarise(runs, setting.price_per_h))
    return {
        "policy": title,
        "interval_s": interval_s,
        "predicted": predicted,
        "events": runs.events,
        **outcome,
    }


def _progress(title: str) -> Any:
    """Tells a terminal how far a long simulation is; None where nobody looks."""
    if not sys.stderr.isatty():
        return None
    from milepost.clock import monotonic

    begin_s = monotonic()

    def tell(share: float) -> None:
        if monotonic() - begin_s < _QUIET_S:
            return
        end = "\r\033[K" if share >= 1.0 else ""
        click.echo(f"\r{title}: {100 * share:3.0f} % simulated{end}", err=True, nl=False)

    return tell
