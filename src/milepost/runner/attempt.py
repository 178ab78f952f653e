"""One attempt at one shard: what every kind of work needs, and how it ended."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from milepost.config.spec import RunSpec
from milepost.errors import RESUMABLE, DataError
from milepost.journal import JournalWriter
from milepost.lease import Lease
from milepost.model import Action, FailureClass, Finding, Shard
from milepost.paths import RunPaths, ShardPaths
from milepost.runner.oom import KILLED, killed_finding, oom_finding
from milepost.runner.signals import SignalLoop
from milepost.runner.sync import GroupSync

GPU_PROFILE = "MILEPOST_GPU_PROFILE"
TERM_GRACE_S = 2.0
"""Between TERM and KILL for what runs when its time is over."""

WALLTIME_STOPS = ("walltime", "signal URG")
"""Our own deadline, or the signal that a job asks Slurm for before its walltime ends."""

_EXIT = {
    FailureClass.SCHEDULER: 10,
    FailureClass.RUNTIME: 11,
    FailureClass.DATA: 12,
    FailureClass.STORAGE: 13,
    FailureClass.NONE: 11,
}


@dataclass(slots=True)
class Outcome:
    """How an attempt ended. None is what was not measured.

    `stop` is None when the work is done or failed, else `walltime` or `signal TERM` and the like.
    `planned` is what its checkpoints were planned with. `is_saved`: the application stopped at a
    durable checkpoint, so nothing of its work is lost.
    """

    stop: str | None = None
    done: int = 0
    failed: int = 0
    findings: list[Finding] = field(default_factory=list)
    useful_s: float | None = None
    checkpoint_s: float | None = None
    lost_s: float | None = None
    cpu_s: float | None = None
    max_rss_bytes: int | None = None
    restored: Mapping[str, Any] | None = None
    planned: Mapping[str, Any] | None = None
    is_saved: bool | None = None

    @property
    def is_complete(self) -> bool:
        return self.stop is None and self.failed == 0

    @property
    def exit_code(self) -> int:
        """0 done; the class of the first failure; or resumable when it was only stopped."""
        if self.failed:
            return _EXIT[self.findings[0].failure_class] if self.findings else 11
        return RESUMABLE if self.stop else 0

    def record(self) -> dict[str, Any]:
        """What the attempt's record says about its end."""
        return {
            "exit_code": self.exit_code,
            "stop": self.stop or ("failed" if self.failed else "done"),
            "finding": self.findings[0].as_json() if self.findings else None,
            "useful_s": self.useful_s,
            "checkpoint_s": self.checkpoint_s,
            "lost_s": self.lost_s,
            "cpu_s": self.cpu_s,
            "max_rss_bytes": self.max_rss_bytes,
            "restored": self.restored,
            "planned": self.planned,
            "is_saved": self.is_saved,
            "counts": {"done": self.done, "failed": self.failed},
        }

    def add_usage(self, cpu_s: float | None, rss_bytes: int | None) -> None:
        if cpu_s is not None:
            self.cpu_s = (self.cpu_s or 0.0) + cpu_s
        if rss_bytes is not None:
            self.max_rss_bytes = max(self.max_rss_bytes or 0, rss_bytes)


@dataclass(frozen=True, slots=True)
class Attempt:
    """What the kinds of work share. `deadline` is on the monotonic clock, None for no limit.

    `is_automatic` is true when no person asked for this attempt: what needs a remedy is then
    not tried again. `drill` kills this process at its first durable progress, for the smoke test.
    """

    spec: RunSpec
    contract_digest: str
    run: RunPaths
    shard: Shard
    paths: ShardPaths
    lease: Lease
    journal: JournalWriter
    sync: GroupSync
    loop: SignalLoop
    deadline: float | None
    is_automatic: bool
    drill: bool
    say: Callable[[str], None]

    @property
    def number(self) -> int:
        return self.lease.attempt

    @property
    def out(self) -> Path:
        return self.paths.out(self.number)

    def environment(self) -> dict[str, str]:
        """Variables that every process of this attempt gets."""
        return {
            **self._gpu_profile(),
            **self.spec.work.environment,
            "MILEPOST_RUN": self.spec.name,
            "MILEPOST_SHARD": self.shard.name,
            "MILEPOST_ATTEMPT": str(self.number),
            "MILEPOST_TOKEN": self.lease.token,
            "MILEPOST_LEASE": str(self.lease.path.absolute()),
            "MILEPOST_CODE": self.contract_digest,
        }

    def _gpu_profile(self) -> dict[str, str]:
        """The plan's profile as the type of GPU, unless the user says what it is."""
        profile = self.shard.profile
        if profile is None or not self.spec.resources.gpus or GPU_PROFILE in os.environ:
            return {}
        return {GPU_PROFILE: profile}

    def remaining_s(self) -> float:
        return float("inf") if self.deadline is None else self.deadline - time.monotonic()

    def may_retry(self, name: str, finding: Finding, failures: int) -> bool:
        """Is the same again, now, a remedy within the contract's bound?"""
        return finding.action is Action.RETRY_SAME and failures <= self.spec.retry_limit

    def check_lease(self) -> None:
        if self.lease.lost.is_set():
            self.lease.check()


SURE = 0.5
"""Below this a finding rests on the exit code alone."""
_ANYWHERE = (Action.RETRY_SAME, Action.RESUME_FROM_CHECKPOINT, Action.WAIT)
_BY_A_LARGER_REQUEST = (Action.RETRY_MORE_MEMORY, Action.LONGER_WALLTIME)


def is_final(finding: Mapping[str, Any], *, on_slurm: bool) -> bool:
    """Does a failure need a remedy from outside, so that nobody tries again unasked?

    On Slurm the next request is larger by what was lacking (launch.request); this machine has no
    more memory and time at the next try than at the last.
    """
    action = finding.get("action")
    return action not in _ANYWHERE and not (on_slurm and action in _BY_A_LARGER_REQUEST)


def time_limit_finding(attempt: Attempt) -> Finding:
    """The finding for work that filled a whole walltime and left nothing durable.

    The same again would fill the next one, too: without this an attempt would follow the other
    for ever.
    """
    evidence = (
        f"attempt {attempt.number} was ended by its walltime",
        "nothing became durable in it, so another one of the same length would not get further",
    )
    return Finding(
        FailureClass.RUNTIME, "time_limit", Action.LONGER_WALLTIME, evidence, confidence=0.95
    )


def classify_output(
    output: bytes,
    exit_code: int,
    oom_kills: int | None = None,
    own: Sequence[Mapping[str, Any]] = (),
) -> Finding:
    """The finding for what a process printed last and how it ended.

    `oom_kills` of its processes were killed by the kernel for want of memory; None: not told.
    `own` are the user's signatures.
    """
    if oom_kills:
        return oom_finding(oom_kills, exit_code)
    from milepost.evidence.classify import classify  # signatures are loaded for failures only

    finding = classify(output, exit_code=exit_code, extra=own)
    is_guess = finding.subclass == "host_oom" and finding.confidence < SURE
    if oom_kills == 0 and exit_code in KILLED and is_guess:
        return killed_finding(exit_code)
    return finding


def artifact_finding(error: DataError, oom_kills: int | None = None) -> Finding:
    """The finding for work that said it had succeeded and whose artifact does not verify."""
    if oom_kills:  # a script may go on after the end of a child, and exit 0 without its output
        return oom_finding(oom_kills, 0)
    return Finding(
        FailureClass.DATA, "bad_artifact", Action.RETRY_SAME, ("exit code 0", str(error)), 0.95
    )


def die() -> NoReturn:
    """End this process as a node failure would: at once, with nothing tidied."""
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("unreachable")
