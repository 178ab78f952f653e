"""The run's specification out of its frozen contract (not out of today's configuration)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from milepost.config.spec import ControlSpec, Resources, ResultSpec, RunSpec, StageSpec, WorkSpec
from milepost.model import ArtifactCheck, WorkKind


def spec_of(contract: Mapping[str, Any]) -> RunSpec:
    """What the evidence needs of the contract; the rest keeps its defaults."""
    raw = {**contract.get("frozen", {}), **contract.get("accepted", {})}
    work = raw["work"]
    kept = ("purpose", "workload", "resource_class", "resume", "stop")
    control = raw.get("control")
    return RunSpec(
        name=contract["run"],
        work=_work(work),
        software=tuple(raw.get("software", ())),
        resources=Resources(**raw.get("resources", {})),
        artifacts=tuple(_artifact(a) for a in raw.get("artifacts", ())),
        control=ControlSpec(**control) if control else None,
        public_note=(raw.get("privacy") or {}).get("public_note"),
        raw=raw,
        **{k: raw[k] for k in kept if k in raw},
    )


def _work(work: Mapping[str, Any]) -> WorkSpec:
    result = work.get("result") or {}
    return WorkSpec(
        kind=WorkKind(work["kind"]),
        table=work.get("tasks") or work.get("members") or "",
        command=work.get("command"),
        stages=tuple(
            StageSpec(s["name"], s["command"], tuple(s["outputs"]))
            for s in work.get("stages") or ()
        ),
        result=ResultSpec(
            result.get("file"),
            bool(result.get("stdout")),
            result.get("best"),
            result.get("best_is") or "max",
        ),
    )


def _artifact(value: Mapping[str, Any]) -> ArtifactCheck:
    options = {k: v for k, v in value.items() if k not in ("path", "check")}
    return ArtifactCheck(value["path"], value["check"], options)
