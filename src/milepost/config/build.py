"""Make a RunSpec from the plain data of a run; the data is valid and complete."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from milepost.config.spec import (
    CheckpointSpec,
    ControlSpec,
    EncryptSpec,
    PlannerSpec,
    Resources,
    ResultSpec,
    RunSpec,
    ShardsSpec,
    SlurmSpec,
    SmokeSpec,
    StageSpec,
    TierSpec,
    UploaderSpec,
    WorkSpec,
)
from milepost.model import ArtifactCheck, WorkKind

Block = Mapping[str, Any]


def build_run(name: str, raw: Block) -> RunSpec:
    """The run `name`; `raw` is its block with all defaults and what is shared, and is kept."""
    return RunSpec(
        name=name,
        work=_work(raw["work"]),
        purpose=raw["purpose"],
        software=tuple(raw["software"]),
        workload=raw["workload"],
        resource_class=raw["resource_class"],
        needs=tuple(raw.get("needs", ())),
        resources=Resources(**raw["resources"]),
        artifacts=tuple(_artifact(item) for item in raw["artifacts"]),
        control=None if raw["control"] is None else ControlSpec(**raw["control"]),
        smoke=SmokeSpec(raw["smoke"]["tasks"], _texts(raw["smoke"]["set"])),
        resume=raw["resume"],
        stop=raw["stop"],
        shards=ShardsSpec(**raw["shards"]),
        retry_limit=raw["retry"]["limit"],
        checkpoint=_checkpoint(raw["checkpoint"]),
        planner=PlannerSpec(**raw["planner"]),
        signatures=tuple(raw.get("signatures", ())),
        public_note=raw["privacy"]["public_note"],
        license=raw["privacy"].get("license"),
        slurm=SlurmSpec(**raw.get("slurm", {})),
        tiers=TierSpec(**raw["tiers"]),
        raw=raw,
    )


def _work(raw: Block) -> WorkSpec:
    return WorkSpec(
        kind=WorkKind(raw["kind"]),
        table=raw.get("tasks") or raw["members"],
        command=raw.get("command"),
        function=raw.get("function"),
        stages=tuple(
            StageSpec(item["name"], item["command"], tuple(item["outputs"]))
            for item in raw.get("stages", ())
        ),
        adapter=raw["adapter"],
        result=_result(raw["result"]),
        inputs=tuple(raw["inputs"]),
        environment=_texts(raw["environment"]),
    )


def _result(raw: Block) -> ResultSpec:
    best = raw.get("best") or {"metric": None, "mode": "max"}
    return ResultSpec(raw.get("file"), raw.get("stdout") == "json", best["metric"], best["mode"])


def _artifact(raw: Block) -> ArtifactCheck:
    options = {key: value for key, value in raw.items() if key not in ("path", "check")}
    return ArtifactCheck(raw["path"], raw["check"], options)


def _checkpoint(raw: Block) -> CheckpointSpec:
    interval = raw["interval_seconds"]
    return CheckpointSpec(
        interval_s=None if interval == "auto" else float(interval),
        rotation=raw["rotation"],
        compression=raw["compression"],
        delta=raw["delta"],
        encrypt=None if raw["encrypt"] is None else EncryptSpec(**raw["encrypt"]),
        signal=raw["signal"],
        contents=tuple(item["name"] for item in raw["contents"]),
        uploader=UploaderSpec(**raw["uploader"]),
        ttl_days=raw["retention"]["ttl_days"],
        gold_every=raw["retention"]["gold_every"],
        max_gap_s=raw["retention"]["max_gap_s"],
        when_busy=raw["when_busy"],
        staging_limit_mb=raw["staging_limit_mb"],
        rank_timeout_s=float(raw["rank_timeout_s"]),
        allow=tuple(raw["allow"]),
    )


def _texts(values: Block) -> dict[str, str]:
    return {name: str(value) for name, value in values.items()}
