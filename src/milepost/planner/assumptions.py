"""Every number a plan stands on, with its unit and where it comes from."""

from __future__ import annotations

from typing import Any

from milepost.config.spec import RunSpec
from milepost.model import WorkKind
from milepost.planner.choice_rows import choice_rows
from milepost.planner.choose import Choice
from milepost.planner.failure_rows import failure_rows
from milepost.planner.history import History
from milepost.planner.measured import Measured

MEASURED = "measured by the smoke test"
DEFAULT = "default"
STATED = "stated in the config"


def list_assumptions(
    spec: RunSpec,
    measured: Measured,
    history: History,
    choice: Choice,
    tasks: int,
    walltime_s: int,
    walltime_source: str,
) -> list[dict[str, Any]]:
    """Rows of name, value (None: not measured), unit, source."""
    found = choice.forecast
    rows = [
        _row("tasks", tasks, "", "counted in the contract's table"),
        _row("cpus", spec.resources.cpus, "", STATED),
        _row("runtime_s", spec.resources.runtime_s, "s", STATED),
        _row("walltime_s", walltime_s, "s", walltime_source),
        *_measured_rows(spec, measured, found.restore_s),
        *failure_rows(history, found.hazard),
    ]
    if found.hazard.preempt_mtbf_s is not None:
        rows += [
            _row("notice_s", found.machine.notice_s, "s", "stated in the profile"),
            _row("saved_in_notice", found.hazard.saved_chance, "", "computed from t_ckpt_s"),
            _row("effective_mtbf_s", found.hazard.value_s, "s", "computed"),
        ]
    if found.upload_s:
        source = "computed from ckpt_bytes and max_bandwidth_mb_s: the node's scratch goes with it"
        rows.append(_row("upload_s", found.upload_s, "s", source))
    rows.append(_row("downtime_s", found.downtime_s, "s", DEFAULT))
    rows.append(_row("mode", found.machine.mode, "", choice.mode_source))
    return rows + choice_rows(spec, measured, choice)


def _measured_rows(spec: RunSpec, measured: Measured, restore_s: float) -> list[dict[str, Any]]:
    task, ckpt = measured.task, measured.t_ckpt
    rows = [
        _row("task_s", task and task.median_s, "s", _source(task)),
        _row("task_p95_s", task and task.p95_s, "s", _source(task)),
        _row("startup_s", measured.startup_s, "s", _source(measured.startup_s)),
        _row("max_rss_bytes", measured.max_rss_bytes, "bytes", _source(measured.max_rss_bytes)),
    ]
    if spec.work.kind is WorkKind.RESUMABLE:
        rows += [
            _row("t_ckpt_s", ckpt and ckpt.median_s, "s", _source(ckpt)),
            _row("t_ckpt_p95_s", ckpt and ckpt.p95_s, "s", _source(ckpt)),
            _row("durable_s", measured.durable_s, "s", _source(measured.durable_s)),
            _row("ckpt_bytes", measured.ckpt_bytes, "bytes", _source(measured.ckpt_bytes)),
            _row("step_s", measured.step_s, "s", _source(measured.step_s)),
        ]
        source = (
            MEASURED if measured.restore_s is not None else "default: start-up and a checkpoint"
        )
        rows.append(_row("restore_s", restore_s, "s", source))
    return rows


def rounded(value: Any) -> Any:
    """Round every float to six significant digits, so that bytes do not hang on the last bit."""
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, dict):
        return {key: rounded(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(one) for one in value]
    return value


def _source(value: object) -> str:
    return MEASURED if value is not None else "not measured"


def _row(name: str, value: Any, unit: str, source: str) -> dict[str, Any]:
    return {"name": name, "value": value, "unit": unit, "source": source}
