"""The scheduler's word: from queue and accounting, with lag, silence and requeue told apart."""

import pytest

from helpers.slurm_answers import Recorded
from milepost.evidence.states import Scheduler
from milepost.slurm.command import SEPARATOR, replaced_by
from milepost.slurm.exitcode import ExitCode
from milepost.slurm.queue import QueueEntry
from milepost.slurm.reasons import parse_reason
from milepost.slurm.records import AttemptRecord, Row, join
from milepost.slurm.sacct_text import FIELDS, FREE_TEXT
from milepost.slurm.states import TERMINAL, parse_state
from milepost.slurm.witness import LAG_S, SETTLE_S, Answer, Heard, Word, ask, judge, listen

NOW = 1_800_000_000.0
SILENT = ("`sacct …` ended with 1: Connection refused",)


def entry(state: str, *, start: float | None = None, end: float | None = None) -> QueueEntry:
    return QueueEntry(
        *("5", "5", parse_state(state), parse_reason("None"), None),
        *(NOW - 900, start, end, 3600.0, "main", "low", "physics", 1, None, "demo"),
    )


def record(
    state: str, *steps: str, start: float | None = NOW - 800, end: float | None = NOW - 400
) -> AttemptRecord:
    rows = [Row("5", "5", None, parse_state(state), ExitCode(0, 0), NOW - 900, None, start, end)]
    rows += [Row("5", "5", str(i), parse_state(s), None) for i, s in enumerate(steps)]
    (found,) = join(rows)["5"]
    return found


def word(
    listed: QueueEntry | str | None = None,
    *records: AttemptRecord,
    last_sign: float | None = NOW - 1000,
    deadline: float | None = None,
) -> Answer:
    """The answer about job 5; `listed` is "silent" when squeue failed."""
    queue = None if isinstance(listed, str) else {} if listed is None else {"5": listed}
    complaints = SILENT if queue is None else ()
    heard = Heard(NOW, queue, {"5": list(records)} if records else {}, True, complaints)
    return judge(heard, ["5"], last_sign=last_sign, deadline=deadline)


def test_the_words_are_those_of_the_evidence() -> None:
    assert {str(w) for w in Word} == {str(w) for w in Scheduler} - {"none"}


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ("RUNNING", Word.ALIVE),
        ("SUSPENDED", Word.ALIVE),
        ("COMPLETING", Word.ALIVE),
        ("CONFIGURING", Word.ALIVE),
        ("PENDING", Word.PENDING),
        ("REQUEUED", Word.PENDING),
        ("REQUEUE_HOLD", Word.PENDING),
    ],
)
def test_what_the_queue_lists_wins_over_old_records(state: str, expected: Word) -> None:
    for old in ("PREEMPTED", "NODE_FAIL", "COMPLETED", "REQUEUED"):
        assert word(entry(state), record(old)).word is expected


@pytest.mark.parametrize("state", sorted(TERMINAL))
def test_every_end_has_a_word(state: str) -> None:
    expected = {"DEADLINE": "failed", "BOOT_FAIL": "node_fail"}.get(state, state.lower())
    assert str(word(None, record(state)).word) == expected
    assert str(word(entry(state, start=NOW - 800, end=NOW - 400), record(state)).word) == expected


def test_a_preempted_job_that_is_still_listed_waits_for_its_requeue() -> None:
    assert word(entry("PREEMPTED", end=NOW - SETTLE_S / 2)).word is Word.PENDING
    assert word(entry("PREEMPTED", end=NOW - SETTLE_S * 2)).word is Word.PREEMPTED
    assert word(entry(["PREEMPTED", "COMPLETING"][1])).word is Word.ALIVE


def test_the_steps_know_better_than_the_queue() -> None:
    listed = entry("COMPLETED", start=NOW - 800, end=NOW - 400)
    assert word(listed, record("COMPLETED", "OUT_OF_MEMORY")).word is Word.OUT_OF_MEMORY
    answer = word(listed)
    assert answer.word is Word.COMPLETED
    assert "not recorded yet" in answer.said


def test_the_record_of_an_earlier_attempt_says_nothing_about_the_listed_one() -> None:
    listed = entry("FAILED", start=NOW - 100, end=NOW - 50)
    assert word(listed, record("COMPLETED", start=NOW - 800, end=NOW - 400)).word is Word.FAILED


def test_lag_has_a_deadline_that_is_kept() -> None:
    first = word(last_sign=NOW - 10)
    assert first.word is Word.NOT_HEARD
    assert first.deadline == NOW - 10 + LAG_S
    assert word(last_sign=NOW - LAG_S - 1).word is Word.NOT_LISTED
    unseen = word(last_sign=None)
    assert (unseen.word, unseen.deadline) == (Word.NOT_HEARD, NOW + LAG_S)
    again = word(last_sign=None, deadline=NOW - 1)
    assert (again.word, again.deadline) == (Word.NOT_LISTED, None)


def test_a_query_that_failed_never_ends_in_a_verdict() -> None:
    long_ago = NOW - 100 * LAG_S
    answer = word("silent", last_sign=long_ago)
    assert (answer.word, answer.deadline) == (Word.NOT_HEARD, None)
    assert "Connection refused" in answer.said
    heard = Heard(NOW, {}, None, True, SILENT)
    answer = judge(heard, ["5"], last_sign=long_ago, deadline=NOW + 5)
    assert (answer.word, answer.deadline) == (Word.NOT_HEARD, NOW + 5)


def test_without_the_queue_only_an_end_that_is_final_counts() -> None:
    assert word("silent", record("FAILED")).word is Word.FAILED
    assert word("silent", record("COMPLETED", "OUT_OF_MEMORY")).word is Word.OUT_OF_MEMORY
    for may_go_on in ("PREEMPTED", "NODE_FAIL", "BOOT_FAIL", "REQUEUED", "RUNNING", "PENDING"):
        assert word("silent", record(may_go_on)).word is Word.NOT_HEARD


def test_a_record_older_than_the_last_sign_is_of_an_earlier_attempt() -> None:
    old = record("COMPLETED", end=NOW - 400)
    answer = word(None, old, last_sign=NOW - 200)
    assert answer.word is Word.NOT_HEARD
    assert answer.deadline == NOW - 200 + LAG_S
    assert word(None, old, last_sign=NOW - 200, deadline=NOW - 1).word is Word.NOT_LISTED
    assert word(None, old, last_sign=NOW - 390).word is Word.COMPLETED


def test_a_preempted_job_that_nobody_lists_is_preempted_when_the_lag_is_over() -> None:
    assert word(None, record("PREEMPTED", end=NOW - 10)).word is Word.NOT_HEARD
    assert word(None, record("PREEMPTED", end=NOW - LAG_S - 1)).word is Word.PREEMPTED


def test_a_record_that_never_ended_is_not_an_end() -> None:
    running = record("RUNNING", start=NOW - 10_000, end=None)
    answer = word(None, running)
    assert answer.word is Word.NOT_LISTED
    assert "says RUNNING" in answer.said
    assert word(None, record("REQUEUED", end=NOW - 10)).word is Word.NOT_HEARD


def test_the_newest_attempt_decides() -> None:
    first, second = record("PREEMPTED"), record("COMPLETED", start=NOW - 300, end=NOW - 200)
    answer = word(None, first, second)
    assert answer.word is Word.COMPLETED
    assert answer.attempts == (first, second)


def test_an_unknown_state_is_not_understood() -> None:
    assert word(entry("HIBERNATING"), record("COMPLETED")).word is Word.NOT_HEARD
    assert word(entry("REVOKED")).word is Word.NOT_HEARD


def test_an_earlier_job_that_still_runs_is_heard() -> None:
    heard = Heard(NOW, {"4": entry("RUNNING")}, {"5": [record("FAILED")]})
    answer = judge(heard, ["4", "5"], last_sign=NOW - 1000)
    assert (answer.word, answer.job_id) == (Word.ALIVE, "4")
    assert judge(heard, ["5"], last_sign=NOW - 1000).word is Word.FAILED


def test_without_a_job_id_nothing_is_listed() -> None:
    answer = judge(Heard(NOW, {}, {}), [])
    assert (answer.word, answer.job_id) == (Word.NOT_LISTED, None)


def squeue_line(job_id: str, state: str) -> str:
    return SEPARATOR.join(
        [job_id, job_id, state, "None", "", *["N/A"] * 4, "main", "q", "a", "1", "(null)", "x"]
    )


def sacct_text(job_id: str, state: str) -> str:
    names = (*FIELDS, *FREE_TEXT)
    values = {"JobID": job_id, "JobIDRaw": job_id, "State": state, "End": "2026-03-01T10:00:00"}
    lines = [SEPARATOR.join(names), SEPARATOR.join(values.get(name, "") for name in names)]
    return "\n".join(lines) + "\n"


@pytest.fixture(autouse=True)
def version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("milepost.slurm.version._cache", {"sacct": (22, 5)})


def test_listen_spares_the_accounting_jobs_that_live() -> None:
    recorded = Recorded({"squeue": squeue_line("4", "RUNNING"), "sacct": sacct_text("5", "FAILED")})
    with replaced_by(recorded):
        heard = listen(["4", "5"], NOW)
    (asked,) = [argv for argv in recorded.asked if argv[0] == "sacct"]
    assert asked[asked.index("-j") + 1] == "5"
    assert judge(heard, ["4"]).word is Word.ALIVE
    assert judge(heard, ["5"]).word is Word.FAILED


def test_silence_is_noted_and_nothing_is_raised() -> None:
    with replaced_by(Recorded({})):
        heard = listen(["5"], NOW)
        answer = ask(["5"], NOW, last_sign=0.0)
    assert heard.queue is None
    assert heard.history is None
    assert len(heard.complaints) == 2
    assert answer.word is Word.NOT_HEARD


def test_a_cluster_without_accounting_has_only_the_queue() -> None:
    disabled = (1, "", "Slurm accounting storage is disabled")
    with replaced_by(Recorded({"squeue": squeue_line("5", "COMPLETED"), "sacct": disabled})):
        assert ask(["5"], NOW, last_sign=0.0).word is Word.COMPLETED
    with replaced_by(Recorded({"squeue": "", "sacct": disabled})):
        answer = ask(["5"], NOW, last_sign=0.0)
    assert answer.word is Word.NOT_LISTED
    assert "keeps no accounting" in answer.said
