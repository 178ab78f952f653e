"""Would Slurm take the shards? Asked before anything is launched, by `sbatch --test-only`.

A request that Slurm refuses, or accepts and never starts, is Refused with the limit that binds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from milepost.config.spec import RunSpec
from milepost.errors import Refused
from milepost.launch.request import Request
from milepost.slurm.limits import ClusterLimits, SubmitLimits, cluster_limits, submit_limits
from milepost.slurm.refusals import Binding
from milepost.slurm.request import over_submit, shown, test_only


def check_cluster(
    spec: RunSpec,
    wanted: Request,
    shards: int,
    jobs: int | None,
    say: Callable[[str], None],
    *,
    in_all: int | None = None,
) -> None:
    """Raise Refused when the shards of a run cannot be submitted or would wait for ever.

    `jobs` is how many of them are in the queue at most at a time, None for all at once. Where the
    shards are those of one place, `in_all` counts those of all places.
    """
    request = {
        "account": spec.slurm.account,
        "partition": spec.slurm.partition,
        "qos": spec.slurm.qos,
        "reservation": spec.slurm.reservation,
        "constraint": spec.slurm.constraint,
        "cpus": spec.resources.cpus,
        "gpus": _gpus(spec.resources.gpus, wanted.gpu_model),
        "mem_mb": wanted.mem_mb,
        "runtime_s": wanted.runtime_s,
        "signal": f"{spec.checkpoint.signal}@{wanted.notice_s}",
    }
    answer = test_only(request)
    if not answer.ok:
        raise _refused(answer.binds, f"as asked: {shown(request)}")
    cluster = cluster_limits()
    _say_array_size(cluster, shards, say)
    limits = submit_limits() or []
    account = spec.slurm.account or ""
    qos = spec.slurm.qos or _default_qos(limits, spec.slurm.account)
    for number, names in ((in_all or shards, (account, "")), (shards, ("", qos))):
        at_once = min(number, number if jobs is None else jobs)
        binds = over_submit(at_once, cluster, limits, account=names[0], qos=names[1])
        if binds:
            raise _refused(binds, f"{number} shards")


def _gpus(number: int, model: str | None) -> int | str | None:
    """As sbatch takes them: a number, or the type in front of it."""
    if not number:
        return None
    return number if model is None else f"{model}:{number}"


def _default_qos(limits: Sequence[SubmitLimits], account: str | None) -> str:
    """The QOS of a job that names none, where the association tells."""
    known = [
        one.default_qos
        for one in limits
        if one.kind == "association" and account in (None, one.name) and one.default_qos
    ]
    return known[0] if known else ""


def _say_array_size(cluster: ClusterLimits, shards: int, say: Callable[[str], None]) -> None:
    most = cluster.max_array_size
    if most is not None and shards >= most:
        say(
            f"MaxArraySize of this cluster is {most}; the {shards} shards are single jobs, which it "
            "does not limit (an array of your own would have to be cut)"
        )


def _refused(binds: Sequence[Binding], where: str) -> Refused:
    return Refused(
        "Slurm would not run the shards: " + "; ".join(f"{b.limit}: {b.meaning}" for b in binds),
        where=where,
        fix="; ".join(dict.fromkeys(b.remedy for b in binds)) + "; nothing was launched",
    )
