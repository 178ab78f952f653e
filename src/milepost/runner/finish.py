"""The end of a shard with a single member: verify, publish, and the row that says so."""

from __future__ import annotations

from milepost.errors import DataError
from milepost.journal import DONE, FAILED, TASK
from milepost.runner.attempt import Attempt, Outcome, artifact_finding
from milepost.runner.publish import publish, read_result, verify_output


def is_finished(attempt: Attempt) -> bool:
    """Does the journal already hold the member's `done` row?"""
    return attempt.shard.tasks[0].key in attempt.journal.state.done


def finish_member(attempt: Attempt, outcome: Outcome, oom_kills: int | None = None) -> None:
    """Publish the private folder as the shard's artifacts, or record what does not verify.

    `oom_kills` of its processes were killed for want of memory: then that is why.
    """
    member = attempt.shard.tasks[0]
    try:
        proofs = verify_output(attempt.out, attempt.spec.artifacts, member.params)
        result = read_result(attempt.spec.work.result, attempt.out, None, None)
        target = attempt.run.artifact(attempt.shard.name)
        publish(attempt.out, target, proofs)
    except DataError as error:
        finding = artifact_finding(error, oom_kills)
        data = {"finding": finding.as_json(), "exit": 0, "log": []}
        attempt.journal.append(TASK, member.key, FAILED, data=data)
        attempt.sync.flush()
        outcome.findings.append(finding)
        outcome.failed = 1
        return
    data = {
        "result": result,
        "artifacts": [proof.as_json() for proof in proofs],
        "cpu_s": outcome.cpu_s,
        "max_rss_bytes": outcome.max_rss_bytes,
    }
    attempt.journal.append(TASK, member.key, DONE, seconds=outcome.useful_s, data=data)
    attempt.sync.add([target / proof.path for proof in proofs], attempt.run.artifacts)
    attempt.sync.flush()
    outcome.done = 1
