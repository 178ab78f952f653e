"""What the uploader tells about itself, in the text format of Prometheus."""

from __future__ import annotations

import os
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from milepost.durable import atomic_file
from milepost.errors import MilepostError

VARIABLE = "MILEPOST_METRICS"
"""Where the runner wants the file of this process; no file when it is not set."""

_HELP = {
    "queue_count": ("gauge", "Generations that wait for a tier or are being sent."),
    "queue_bytes": ("gauge", "Their size in bytes."),
    "queue_since": ("gauge", "When the oldest of them was committed, in seconds since the epoch."),
    "queue_age_s": ("gauge", "How long the oldest of them waited when this file was written."),
    "sent_count": ("counter", "Generations sent and proved at the far end."),
    "sent_bytes": ("counter", "Bytes of data sent, those of broken tries too."),
    "overtaken_count": ("counter", "Generations not sent because a newer one was there."),
    "failure_count": ("counter", "Uploads that failed after their retries."),
    "retry_count": ("counter", "Calls to a tier that were tried again."),
}


@dataclass(frozen=True, slots=True)
class UploadMetrics:
    """Units are the ends of the names; None has no line in the file."""

    queue_count: int = 0
    queue_bytes: int = 0
    queue_since: float | None = None
    queue_age_s: float = 0.0
    sent_count: int = 0
    sent_bytes: int = 0
    overtaken_count: int = 0
    failure_count: int = 0
    retry_count: int = 0

    def as_text(self) -> str:
        """The text that Prometheus and its node exporter read."""
        lines = []
        for name, value in asdict(self).items():
            if value is None:
                continue
            kind, text = _HELP[name]
            metric = f"milepost_upload_{name}"
            lines += [f"# HELP {metric} {text}", f"# TYPE {metric} {kind}", f"{metric} {value}"]
        return "\n".join(lines) + "\n"


def write_metrics(metrics: UploadMetrics) -> None:
    """Write the file that MILEPOST_METRICS names, if it names one.

    A place that is full is told on stderr: no checkpoint depends on it.
    """
    place = os.environ.get(VARIABLE)
    if not place:
        return
    try:
        with atomic_file(Path(place)) as stream:
            stream.write(metrics.as_text())
    except (MilepostError, OSError) as error:
        print(f"milepost: the metrics are not written: {error}", file=sys.stderr)
