"""How much later the copy that outlives the node is durable, where the node takes the first one along."""

from __future__ import annotations

from milepost.config.spec import RunSpec
from milepost.model import WorkKind

_ON_THE_NODE = ("/tmp/", "/var/tmp/", "/local/", "/dev/shm/")


def goes_with_the_node(scratch: str) -> bool:
    """Is this scratch gone when the node is? A path with a variable ($TMPDIR) is a job's own."""
    return "$" in scratch or f"{scratch.rstrip('/')}/".startswith(_ON_THE_NODE)


def upload_seconds(spec: RunSpec, ckpt_bytes: int | None) -> float:
    """Seconds from a checkpoint on the node to its copy in the next tier, at the bandwidth limit.

    0 where the scratch tier outlives the node or nothing is uploaded, and where the size or the
    limit is not known: the upload is then taken as instant.
    """
    uploader, rate_mb_s = spec.checkpoint.uploader, spec.checkpoint.uploader.max_bandwidth_mb_s
    is_sent = uploader.enable and spec.tiers.warm is not None
    if spec.work.kind is not WorkKind.RESUMABLE or not is_sent:
        return 0.0
    if ckpt_bytes is None or rate_mb_s is None or not goes_with_the_node(spec.tiers.scratch):
        return 0.0
    return ckpt_bytes / (rate_mb_s * 1e6)
