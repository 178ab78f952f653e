"""Listed, not listed and not heard are three facts; a name or a comment can imitate nothing."""

import pytest

from helpers.slurm_answers import Answer, Recorded
from milepost.errors import SchedulerError
from milepost.slurm import control
from milepost.slurm.command import SEPARATOR, NotHeard, replaced_by
from milepost.slurm.environment import inside_job, job_end_s, node_name, restart_count, step_id
from milepost.slurm.exitcode import ExitCode
from milepost.slurm.queue import job_details, ping, queue

AT = 1772359200.0
"""2026-03-01T10:00:00Z."""
UNKNOWN = (1, "", "slurm_load_jobs error: Invalid job id specified\n")


def line(job_id: str, state: str, reason: str = "None", **more: str) -> str:
    values = {
        "raw": job_id,
        "nodes": "",
        "submit": "2026-03-01T10:00:00",
        "start": "N/A",
        "end": "N/A",
        "limit": "1-00:00:00",
        "dependency": "(null)",
        "name": "demo",
    } | more
    order = ("nodes", "submit", "start", "end", "limit")
    head = [job_id, values["raw"], state, reason, *(values[key] for key in order)]
    return SEPARATOR.join(
        [*head, "main", "low", "physics", "100", values["dependency"], values["name"]]
    )


def listed(answer: Answer, *job_ids: str) -> dict[str, object]:
    with replaced_by(Recorded({"squeue": answer})):
        return dict(queue(job_ids))


def test_an_entry() -> None:
    text = line(
        "5",
        "RUNNING",
        nodes="n[1-2]",
        start="2026-03-01T10:00:10",
        end="2026-03-02T10:00:10",
        name="a|b = c",
    )
    with replaced_by(Recorded({"squeue": text + "\n"})):
        entry = queue(["5", "6"])["5"]
    assert entry.state.is_busy
    assert entry.reason.word is None
    assert (entry.submit, entry.start, entry.end) == (AT, AT + 10, AT + 86410)
    assert (entry.nodes, entry.time_limit_s, entry.priority) == ("n[1-2]", 86400.0, 100)
    assert (entry.partition, entry.qos, entry.account) == ("main", "low", "physics")
    assert (entry.dependency, entry.name, entry.restarts) == (None, "a|b = c", None)


def test_a_job_that_is_not_listed_is_absent() -> None:
    assert list(listed(line("5", "PENDING") + "\n", "5", "6")) == ["5"]
    assert listed("", "6") == {}
    assert listed(UNKNOWN, "6") == {}


@pytest.mark.parametrize(
    "answer",
    [
        (1, "", "slurm_load_jobs error: Unable to contact slurm controller (connect failure)"),
        (1, "", ""),
        TimeoutError(),
        FileNotFoundError(2, "No such file"),
    ],
)
def test_a_silent_queue_is_not_heard(answer: Answer) -> None:
    with pytest.raises(NotHeard):
        listed(answer, "6")


def test_an_unknown_job_is_no_answer_to_a_question_about_a_user() -> None:
    with replaced_by(Recorded({"squeue": UNKNOWN})), pytest.raises(NotHeard):
        queue(user="ada")


@pytest.mark.parametrize(
    ("field", "word", "is_held"),
    [
        ("Priority", "Priority", False),
        ("ReqNodeNotAvail, UnavailableNodes:n[1-4]", "ReqNodeNotAvail", False),
        ("ReqNodeNotAvail, May be reserved for other job", "ReqNodeNotAvail", False),
        ("RaisedSignal:9(Killed)", "RaisedSignal", False),
        ("JobHeldUser", "JobHeldUser", True),
        ("job requeued in held state", "JobHeldUser", True),
        ("None", None, False),
    ],
)
def test_reasons(field: str, word: str | None, is_held: bool) -> None:
    with replaced_by(Recorded({"squeue": line("5", "PENDING", field)})):
        reason = queue(["5"])["5"].reason
    assert (reason.word, reason.is_held) == (word, is_held)


def test_a_launch_that_failed_is_held_with_its_text() -> None:
    field = "launch failed requeued held"
    with replaced_by(Recorded({"squeue": line("5", "PENDING", field)})):
        reason = queue(["5"])["5"].reason
    assert reason.is_held
    assert reason.text == field


def test_array_tasks() -> None:
    text = "\n".join(
        [
            line("7_[5-6%1]", "PENDING", raw="7"),
            line("7_1", "RUNNING", raw="8"),
            line("9+1", "RUNNING", raw="10"),
        ]
    )
    assert list(listed(text, "7", "8", "9")) == ["7_5", "7_6", "7_1", "9+1", "8"]


def test_restarts_are_counted_when_asked_for() -> None:
    answers = {
        "squeue -h -r -t all -j 5 -o": line("5", "PENDING", "BeginTime"),
        "squeue -h -r -t all -j 5 -O": f"{'5':<64}{'2':<16}\n",
    }
    with replaced_by(Recorded(answers)):
        assert queue(["5"], restarts=True)["5"].restarts == 2


DETAILS = (
    "JobId=5 JobName=my job JobState=FAILED x UserId=ada(1000) GroupId=ada(1000) MCS_label=N/A "
    "Priority=0 Nice=0 Account=physics QOS=low JobState=RUNNING Reason=None Dependency=(null) "
    "Requeue=1 Restarts=2 BatchFlag=1 Reboot=0 ExitCode=0:15 RunTime=00:00:13 "
    "TimeLimit=01:00:00 TimeMin=N/A SubmitTime=2026-03-01T10:00:00 "
    "StartTime=2026-03-01T10:00:10 EndTime=2026-03-01T11:00:10 "
    "PreemptEligibleTime=2026-03-01T10:00:10 PreemptTime={preempt} SuspendTime=None "
    "AllocNode:Sid=head:77 NodeList=n[1-2] CPUs/Task=1 ReqB:S:C:T=0:0:*:* Partition=cancel "
    "Command=/home/ada/a script.sh Partition=x WorkDir=/home/ada/my work "
    "Comment=rule=shard ExitCode=7:0 of it  StdErr=/home/ada/5.out StdOut=/home/ada/5.out Power= \n"
)


def shown(preempt: str = "None") -> Recorded:
    return Recorded({"scontrol show job": DETAILS.format(preempt=preempt)})


def test_a_job_in_full_and_nothing_in_it_lies() -> None:
    with replaced_by(shown()):
        job = job_details("5")
    assert job is not None
    assert job.state.base == "RUNNING"
    assert job.exit_code == ExitCode(0, 15)
    assert (job.restarts, job.is_batch, job.can_requeue) == (2, True, True)
    assert (job.submit, job.start, job.end) == (AT, AT + 10, AT + 3610)
    assert (job.time_limit_s, job.preempt_time) == (3600.0, None)
    assert (job.nodes, job.partition, job.work_dir) == ("n[1-2]", "cancel", "/home/ada/my work")
    assert job.comment == "rule=shard ExitCode=7:0 of it"
    assert job.fields["JobName"] == "my job JobState=FAILED x"
    assert job.fields["Command"] == "/home/ada/a script.sh Partition=x"
    assert job.fields["ReqB:S:C:T"] == "0:0:*:*"
    assert job.fields["AllocNode:Sid"] == "head:77"
    assert job.fields["Power"] == ""


def test_a_job_that_slurmctld_forgot_is_none() -> None:
    with replaced_by(Recorded({"scontrol": UNKNOWN})):
        assert job_details("5") is None
    failure = (1, "", "slurm_load_jobs error: Unable to contact slurm controller")
    with replaced_by(Recorded({"scontrol": failure})), pytest.raises(NotHeard):
        job_details("5")


def test_the_right_task_of_an_array() -> None:
    task = "JobId={raw} ArrayJobId=7 ArrayTaskId={task} JobName=x UserId=a(1) GroupId=a(1) JobState={state}\n"
    text = task.format(raw=8, task=1, state="RUNNING") + task.format(
        raw=7, task="2-3", state="PENDING"
    )
    with replaced_by(Recorded({"scontrol": text})):
        first, rest = job_details("7_1"), job_details("7")
    assert first is not None and first.state.base == "RUNNING"
    assert rest is not None and rest.state.base == "PENDING"


def test_preemption_shows_its_time_and_a_scancel_does_not() -> None:
    with replaced_by(shown("2026-03-01T10:30:00")):
        assert control.preempt_time("5") == AT + 1800
    with replaced_by(shown()):
        assert control.preempt_time("5") is None
    with (
        replaced_by(Recorded({"scontrol": UNKNOWN})),
        pytest.raises(SchedulerError, match="any more"),
    ):
        control.preempt_time("5")


def test_requeue_of_a_job_that_waits_already_is_no_failure() -> None:
    with replaced_by(Recorded({"scontrol requeue": ""})):
        assert control.requeue("5")
    pending = (1, "", "Job is pending execution for job 5\n")
    with replaced_by(Recorded({"scontrol requeue": pending})):
        assert not control.requeue("5")
    with (
        replaced_by(Recorded({"scontrol requeue": UNKNOWN})),
        pytest.raises(NotHeard, match="Invalid"),
    ):
        control.requeue("5")


def test_commands_of_control() -> None:
    recorded = Recorded({"scontrol": "", "scancel": ""})
    with replaced_by(recorded):
        control.hold("5")
        control.release("5")
        control.cancel("5")
        control.update_memory("5", 1500)
    assert recorded.asked == [
        ("scontrol", "hold", "5"),
        ("scontrol", "release", "5"),
        ("scancel", "5"),
        ("scontrol", "update", "JobId=5", "MinMemoryNode=1500"),
    ]
    with replaced_by(recorded), pytest.raises(SchedulerError, match="is not a Slurm job id"):
        control.cancel("5 6")


def test_ping() -> None:
    with replaced_by(Recorded({"scontrol ping": "Slurmctld(primary) at head is UP\n"})):
        assert ping()
    with replaced_by(Recorded({"scontrol ping": "Slurmctld(primary) at head is DOWN\n"})):
        assert not ping()


def test_what_the_environment_tells() -> None:
    environ = {"SLURM_JOB_ID": "5", "SLURM_STEP_ID": "1", "SLURM_JOB_END_TIME": "1772362810"}
    assert inside_job(environ) == "5"
    assert inside_job({"SLURM_JOBID": "6"}) == "6"
    assert inside_job({}) is None
    assert inside_job({"SLURM_JOB_ID": ""}) is None
    assert step_id(environ) == "1"
    assert job_end_s(environ) == 1772362810.0
    assert job_end_s({}) is None
    assert restart_count({"SLURM_RESTART_COUNT": "2"}) == 2
    assert restart_count({}) is None
    assert node_name({"SLURMD_NODENAME": "n1"}) == "n1"
