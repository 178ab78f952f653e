"""Why a job waits, where it runs, how it ended: told from recorded answers of Slurm."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from helpers.run_folder import RunFolder, at
from helpers.slurm_answers import Answer, Recorded
from milepost.cli.why import command
from milepost.clock import epoch, utc_now
from milepost.errors import ConfigError, SchedulerError
from milepost.evidence.why import why_job, why_shard
from milepost.evidence.why_json import as_json
from milepost.evidence.why_text import command_lines, told
from milepost.model import Action
from milepost.slurm import version
from milepost.slurm.command import SEPARATOR, replaced_by
from milepost.slurm.reasons import parse_reason
from milepost.slurm.sacct_text import FIELDS, FREE_TEXT

DOWN = (1, "", "slurm_load_jobs error: Unable to contact slurm controller (connect failure)")
GONE = (1, "", "slurm_load_jobs error: Invalid job id specified")
JOB = {
    "JobId": "71",
    "JobName": "b1f0",
    "UserId": "ana(1000)",
    "GroupId": "ana(1000)",
    "Priority": "3333",
    "Account": "physics",
    "QOS": "normal",
    "JobState": "PENDING",
    "Reason": "Resources",
    "Dependency": "(null)",
    "Requeue": "1",
    "Restarts": "0",
    "BatchFlag": "1",
    "ExitCode": "0:0",
    "TimeLimit": "01:00:00",
    "SubmitTime": "2026-03-01T08:00:00",
    "StartTime": "Unknown",
    "EndTime": "Unknown",
    "Partition": "main",
    "NodeList": "(null)",
    "WorkDir": "/home/ana",
    "Comment": "(null)",
    "StdOut": "/nowhere/71.out",
}
VERSION = "slurm 22.05.8"


@pytest.fixture(autouse=True)
def version_is_asked_anew() -> Iterator[None]:
    version._cache.clear()
    yield
    version._cache.clear()


def job(**changes: str) -> str:
    return " ".join(f"{key}={value}" for key, value in (JOB | changes).items()) + "\n"


def records(*rows: dict[str, str]) -> str:
    names = (*FIELDS, *FREE_TEXT)
    lines = [SEPARATOR.join(names)]
    lines += [
        SEPARATOR.join({"JobIDRaw": r["JobID"]}.get(n, r.get(n, "")) for n in names) for r in rows
    ]
    return "\n".join(lines) + "\n"


def ended(**changes: str) -> dict[str, str]:
    return {
        "JobID": "71",
        "State": "FAILED",
        "ExitCode": "1:0",
        "DerivedExitCode": "0:0",
        "Submit": "2026-03-01T08:00:00",
        "Start": "2026-03-01T08:00:04",
        "End": "2026-03-01T08:01:44",
        "ElapsedRaw": "100",
        "TotalCPU": "01:30.000",
        "ReqMem": "1000M",
        "ReqCPUS": "2",
        "AllocCPUS": "2",
        "NodeList": "n3",
        "Partition": "main",
        **changes,
    }


def pending(reason: str, **more: Answer) -> dict[str, Answer]:
    """Answers about a job that waits; the rest of Slurm answers plainly."""
    return {
        "scontrol show job": job(Reason=reason),
        "scontrol -o show partition": "PartitionName=main MaxTime=00:30:00 MaxNodes=4 MinNodes=0\n",
        "sacctmgr": "02:00:00\n",
        "sacct --version": VERSION,
        "sacct -D": records(),
        "sprio": SEPARATOR.join(["main", "3333", "13", "3300", "20", "0", "0", "", "0", "0", "0"]),
        "squeue -h -r -t PD": "9000\n3333\n10\n",
        "sshare": " physics|ana|1|0.250000|0.500000|0.333333\n",
        "squeue --start": f"2099-01-01T00:00:00{SEPARATOR}n[1-4]\n",
        **more,
    }


def tell(answers: dict[str, Answer], tmp_path: Path, job_id: str = "71") -> tuple[str, Any]:
    """The text and the plain data of a job's story."""
    with replaced_by(Recorded(answers)):
        story = why_job(job_id, tmp_path)
    text = told(story)
    assert all(len(line) <= 80 for line in text.splitlines()), text
    plain = as_json(story)
    json.dumps(plain, allow_nan=False)
    return " ".join(text.split()), plain


def test_waiting_for_resources(tmp_path: Path) -> None:
    text, plain = tell(pending("Resources"), tmp_path)
    assert text.startswith("job 71: PENDING where partition main, account physics, QOS normal")
    assert "why Resources: it is first in line" in text
    assert "waiting helps: it passes by itself" in text
    assert "$ squeue --start -j 71" in text
    assert "3333 = age 13 + fair share 3300 + job size 20; 1 waiting ahead of it" in text
    assert "25.0 % is yours of it, 50.0 % of all use was yours, factor 0.333" in text
    assert "about 2099-01-01T00:00:00Z" in text and "on n[1-4]" in text
    assert plain["waiting"]["reason"]["helps_waiting"] is True
    assert plain["not_heard"] == [] and plain["next"] is None


def test_time_limit_of_the_partition_is_filled_in(tmp_path: Path) -> None:
    text, plain = tell(pending("PartitionTimeLimit"), tmp_path)
    assert "more time than its partition allows (00:30:00)" in text
    assert "$ scontrol update jobid=71 timelimit=00:30:00" in text
    assert plain["waiting"]["reason"]["helps_waiting"] is False


def test_time_limit_of_the_qos_is_asked_for(tmp_path: Path) -> None:
    text, _ = tell(pending("QOSMaxWallDurationPerJobLimit"), tmp_path)
    assert "scontrol update jobid=71 timelimit=02:00:00" in text


def test_dependency_is_shown(tmp_path: Path) -> None:
    answers = pending("DependencyNeverSatisfied")
    answers["scontrol show job"] = job(
        Reason="DependencyNeverSatisfied", Dependency="afterok:70(failed)"
    )
    text, _ = tell(answers, tmp_path)
    assert "why DependencyNeverSatisfied (afterok:70(failed)):" in text
    assert "$ scancel 71" in text and "can never start" in text


def test_what_cannot_be_heard_is_said_and_is_never_zero(tmp_path: Path) -> None:
    away = pending("Priority", sprio=DOWN, sshare=DOWN, **{"squeue --start": DOWN})
    away["sacct -D"] = (1, "", "sacct: error: Problem talking to the database: Connection refused")
    text, plain = tell(away, tmp_path)
    assert "why Priority:" in text
    assert text.count("n/a: not heard, see below") == 3
    assert "accounting (sacct) not heard:" in text and "Connection refused" in text
    waiting = plain["waiting"]
    assert (waiting["priority"], waiting["fair_share"], waiting["forecast"]) == (None, None, None)
    assert len(plain["not_heard"]) == 4


def test_empty_answers_are_no_numbers(tmp_path: Path) -> None:
    answers = pending(
        "JobHeldUser",
        sprio="Unable to find jobs matching user/id(s) specified\n",
        sshare="",
        **{"squeue --start": f"N/A{SEPARATOR}(null)\n"},
    )
    text, plain = tell(answers, tmp_path)
    assert "n/a: sprio shows none" in text and "n/a: sshare shows none" in text
    assert "no forecast" in text
    assert "$ scontrol release 71" in text
    assert plain["not_heard"] == []


def test_no_slurm_at_all(tmp_path: Path) -> None:
    text, plain = tell({}, tmp_path)
    assert text.startswith("job 71: nothing is known")
    assert "scheduler (slurmctld) not heard" in text and "accounting (sacct) not heard" in text
    assert plain["state"] is None and plain["attempts"] == []


def test_running_job(tmp_path: Path) -> None:
    started = utc_now()[:19]
    answers = pending("None")
    answers["scontrol show job"] = job(
        JobState="RUNNING", Reason="None", StartTime=started, NodeList="n2"
    )
    answers["sacct -D"] = records(
        ended(State="RUNNING", End="Unknown", Start=started, NodeList="n2")
    )
    text, plain = tell(answers, tmp_path)
    assert f"running n2 since {started}Z" in text
    assert "of 60 min" in text and "nothing: it works" in text
    assert 3500 < plain["running"]["left_s"] <= 3600
    assert plain["attempts"][0]["is_open"] and plain["attempts"][0]["exit"] is None


def test_failed_job_names_cause_memory_and_cpu(tmp_path: Path) -> None:
    log = tmp_path / "71.out"
    log.write_text("OSError: [Errno 28] No space left on device\n")
    details = job(
        JobState="FAILED", ExitCode="1:0", StartTime="2026-03-01T08:00:04",
        EndTime="2026-03-01T08:01:44", NodeList="n3", StdOut=str(log),
    )  # fmt: skip
    steps = ended(JobID="71.batch", MaxRSS="512000K", ReqMem="")
    text, plain = tell(
        {
            "scontrol show job": details,
            "sacct --version": VERSION,
            "sacct -D": records(ended(), steps),
        },
        tmp_path,
    )
    assert "on n3, job 71" in text
    assert "exit 1:0 (the program said that it failed)" in text
    assert "memory 500 MiB of 1000 MiB (50 %), CPU 90 s of 2 x 100 s (45 %)" in text
    assert "storage/no_space_left" in text and "| OSError: [Errno 28]" in text
    assert "mend what is named above" in text
    assert plain["attempts"][0]["finding"]["action"] == "fix_no_retry"


def test_killed_for_memory_asks_for_more(tmp_path: Path) -> None:
    row = ended(State="OUT_OF_MEMORY", ExitCode="0:125")
    answers: dict[str, Answer] = {
        "scontrol show job": GONE,
        "sacct --version": VERSION,
        "sacct -D": records(row, {**row, "JobID": "71.batch", "MaxRSS": "900M", "ReqMem": ""}),
    }
    text, plain = tell(answers, tmp_path)
    assert text.startswith("job 71: OUT_OF_MEMORY")
    assert "killed for using more memory than it had asked for" in text
    assert "1500 MB: --mem" in text
    assert plain["attempts"][0]["finding"]["action"] == "retry_more_memory"


def test_step_killed_for_memory_while_the_script_goes_on(tmp_path: Path) -> None:
    good = {"State": "COMPLETED", "ExitCode": "0:0"}
    step = ended(JobID="71.0", State="OUT_OF_MEMORY", ExitCode="0:125")
    answers: dict[str, Answer] = {
        "scontrol show job": GONE,
        "sacct --version": VERSION,
        "sacct -D": records(ended(**good), ended(JobID="71.batch", **good), step),
    }
    text, _ = tell(answers, tmp_path)
    assert "but its step 0 was killed for memory (0:125)" in text
    assert "runtime/host_oom" in text


def test_log_that_could_not_be_opened(tmp_path: Path) -> None:
    row = ended(ExitCode="0:53", End="2026-03-01T08:00:04", ElapsedRaw="0", TotalCPU="00:00:00")
    text, _ = tell(
        {"scontrol show job": GONE, "sacct --version": VERSION, "sacct -D": records(row)}, tmp_path
    )
    assert "its output file could not be opened" in text and "slurmd error 4021" in text


@pytest.mark.parametrize(
    ("slurm", "printed", "words"),
    [
        ("22.05.8", "9:0", "or 137 (ended by signal KILL), as Slurm before 25.11 takes 128 off"),
        ("25.11.0", "137:0", "128 + 9: a process was ended by signal KILL"),
        ("25.11.0", "9:0", "exit 9:0 (the program said that it failed)"),
        ("24.11.1", "127:0", "the command was not found; or 255"),
    ],
)
def test_exit_codes_by_version(slurm: str, printed: str, words: str, tmp_path: Path) -> None:
    table = records(ended(ExitCode=printed))
    if slurm >= "24.11":
        table = "\n".join(
            line + SEPARATOR.join(["", name, name]) if line else ""
            for line, name in zip(table.split("\n"), ("Restarts", "", ""), strict=False)
        )
        names = (*FIELDS, "Restarts", "SLUID", *FREE_TEXT)
        row = ended(ExitCode=printed)
        table = SEPARATOR.join(names) + "\n" + SEPARATOR.join(row.get(n, "") for n in names) + "\n"
    answers: dict[str, Answer] = {
        "scontrol show job": GONE, "sacct --version": f"slurm {slurm}", "sacct -D": table,
    }  # fmt: skip
    text, _ = tell(answers, tmp_path)
    assert words in text


def test_scontrol_settles_what_sacct_took_off(tmp_path: Path) -> None:
    details = job(
        JobState="FAILED", ExitCode="137:0", StartTime="2026-03-01T08:00:04",
        EndTime="2026-03-01T08:01:44", NodeList="n3",
    )  # fmt: skip
    answers: dict[str, Answer] = {
        "scontrol show job": details, "sacct --version": VERSION,
        "sacct -D": records(ended(ExitCode="9:0")),
    }  # fmt: skip
    text, _ = tell(answers, tmp_path)
    assert "137 in truth" in text and "128 + 9" in text


def test_attempts_of_a_requeued_job_are_all_told(tmp_path: Path) -> None:
    first = ended(State="PREEMPTED", ExitCode="0:0")
    second = ended(
        Submit="2026-03-01T08:01:44", Start="2026-03-01T08:02:00", End="2026-03-01T08:05:00",
        State="COMPLETED", ExitCode="0:0", NodeList="n1",
    )  # fmt: skip
    text, plain = tell(
        {"scontrol show job": GONE, "sacct --version": VERSION, "sacct -D": records(first, second)},
        tmp_path,
    )
    assert [a["state"] for a in plain["attempts"]] == ["PREEMPTED", "COMPLETED"]
    assert "scheduler/preempted" in text
    assert "PREEMPTED, exit 0:0 memory" in text
    assert plain["attempts"][1]["finding"] is None


def test_accounting_that_lags_is_filled_in_by_scontrol(tmp_path: Path) -> None:
    details = job(
        JobState="FAILED", ExitCode="3:0", StartTime="2026-03-01T08:00:04",
        EndTime="2026-03-01T08:01:44", NodeList="n3",
    )  # fmt: skip
    text, plain = tell(
        {"scontrol show job": details, "sacct --version": VERSION, "sacct -D": records()}, tmp_path
    )
    assert "exit 3:0" in text and "on n3, job 71" in text
    assert plain["attempts"][0]["max_rss_bytes"] is None and "memory n/a" in text


def test_record_that_is_not_whole_yet_is_completed_by_scontrol(tmp_path: Path) -> None:
    details = job(
        JobState="FAILED", ExitCode="1:0", StartTime="2026-03-01T08:00:04",
        EndTime="2026-03-01T08:01:44", NodeList="n3", TRES="cpu=2,mem=200M,node=1,billing=2",
    )  # fmt: skip
    row = ended(ReqMem="16?", ReqCPUS="0", AllocCPUS="0")
    answers: dict[str, Answer] = {
        "scontrol show job": details, "sacct --version": VERSION, "sacct -D": records(row),
    }  # fmt: skip
    _, plain = tell(answers, tmp_path)
    (attempt,) = plain["attempts"]
    assert (attempt["asked_bytes"], attempt["cpus"]) == (200 << 20, 2)


def test_job_that_nobody_knows(tmp_path: Path) -> None:
    text, plain = tell(
        {"scontrol show job": GONE, "sacct --version": VERSION, "sacct -D": records()}, tmp_path
    )
    assert "nothing is known" in text
    assert "sacct -D -j 71 -S 1970-01-01" in text
    assert "has no record of 71" in plain["not_heard"][0]


def test_not_a_job_id_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SchedulerError, match="not a Slurm job id"):
        why_job("7;rm", tmp_path)


def shard_folder(root: Path) -> RunFolder:
    folder = RunFolder(root).contract().table({"0001": {"a": {"C": 1}, "b": {"C": 2}}})
    folder.done("0001", "a", {"accuracy": 0.5})
    return folder


def test_shard_joins_its_attempts_with_the_scheduler(tmp_path: Path) -> None:
    folder = shard_folder(tmp_path)
    folder.attempt("0001", 1, slurm_job_id="71", started=at(5), ended=at(100), stop="walltime",
                   exit_code=75, host="n3.cluster")  # fmt: skip
    folder.attempt("0001", 2, slurm_job_id="71", started=at(130), ended=None, exit_code=None,
                   stop=None, max_rss_bytes=None, cpu_s=None)  # fmt: skip
    second = ended(
        Submit="2026-03-01T08:01:44", Start="2026-03-01T08:02:00", End="2026-03-01T08:05:00",
        State="OUT_OF_MEMORY", ExitCode="0:125", NodeList="n1",
    )  # fmt: skip
    answers: dict[str, Answer] = {
        "squeue -h -r -t all": "",
        "scontrol show job": GONE,
        "sacct --version": VERSION,
        "sacct -D": records(ended(State="REQUEUED", ExitCode="0:0"), second),
    }
    with replaced_by(Recorded(answers)):
        story = why_shard(folder.paths, "0001")
    one, two = story.attempts
    assert (one.number, one.state, one.stop, one.where) == (1, "REQUEUED", "walltime", "n3")
    assert one.finding is not None and one.finding.action is Action.RESUME_FROM_CHECKPOINT
    assert (two.number, two.state, two.where, two.is_open) == (2, "OUT_OF_MEMORY", "n1", False)
    assert two.finding is not None and two.finding.action is Action.RETRY_MORE_MEMORY
    assert story.progress is not None
    assert (story.progress.done, story.progress.tasks) == (1, 2)
    text = " ".join(told(story).split())
    assert "job 71 of shard sweep/0001: OUT_OF_MEMORY" in text
    assert "$ snakemake --profile slurm results/sweep/shards/0001/journal.csv" in text
    assert "asks for 1500 MB" in text


def test_shard_waiting_in_the_queue_is_found_by_its_comment(tmp_path: Path) -> None:
    folder = shard_folder(tmp_path)
    answers = pending("Priority")
    here, elsewhere = str(tmp_path), str(tmp_path.parent)
    queue = [(70, here, "0002"), (71, here, "0001"), (72, elsewhere, "0001")]
    answers["squeue -h -r -t all"] = "".join(
        f"{number}{SEPARATOR}{place}{SEPARATOR}rule_shard_wildcards_sweep_{shard}\n"
        for number, place, shard in queue
    )
    with replaced_by(Recorded(answers)):
        story = why_shard(folder.paths, "0001")
    assert (story.job_id, story.waiting is not None) == ("71", True)
    assert "job 71 of shard sweep/0001: PENDING" in told(story)


def test_job_tells_of_its_shard(tmp_path: Path) -> None:
    folder = shard_folder(tmp_path)
    folder.attempt("0001", 1, slurm_job_id="71", started=at(5), ended=at(100), stop="failed",
                   exit_code=12)  # fmt: skip
    answers: dict[str, Answer] = {
        "scontrol show job": GONE, "sacct --version": VERSION,
        "sacct -D": records(ended(ExitCode="12:0")),
    }  # fmt: skip
    with replaced_by(Recorded(answers)):
        by_record = why_job("71", tmp_path)
        answers["scontrol show job"] = job(Comment="rule_shard_wildcards_sweep_0001")
        by_comment = why_job("71", tmp_path)
    for story in (by_record, by_comment):
        assert (story.run, story.shard) == ("sweep", "0001")
    assert by_record.attempts[0].exit_words is not None
    assert by_record.attempts[0].exit_words.startswith("milepost: data")


def test_shard_of_a_laptop_needs_no_slurm(tmp_path: Path) -> None:
    folder = shard_folder(tmp_path)
    folder.attempt("0001", 1, ended=None, exit_code=None, stop=None)
    with replaced_by(Recorded({})):
        story = why_shard(folder.paths, "0001")
    text = told(story)
    assert story.silences == ()
    assert "ended without a word" in text
    assert "$ snakemake -c2 results/sweep/shards/0001/journal.csv" in text


def test_finished_shard_needs_nothing(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path).contract().table({"0001": {"a": {"C": 1}}})
    folder.done("0001", "a", {"accuracy": 0.5})
    folder.attempt("0001", 1)
    folder.marker("0001")
    with replaced_by(Recorded({})):
        story = why_shard(folder.paths, "0001")
    assert told(story).startswith("shard sweep/0001: done, every artifact verified")
    assert as_json(story)["next"] is None


def test_damaged_attempt_record_is_said(tmp_path: Path) -> None:
    folder = shard_folder(tmp_path)
    folder.attempt("0001", 1)
    folder.paths.shard("0001").attempt(2).write_text("{not json")
    with replaced_by(Recorded({})):
        story = why_shard(folder.paths, "0001")
    assert len(story.attempts) == 1
    assert any("2.json" in silence for silence in story.silences)


def test_checkpoints_of_a_shard_are_told(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path, "ising", "resumable").table({"0001": {"m": {}}})
    folder.checkpoint("0001", "000003", time=15)
    with replaced_by(Recorded({})):
        story = why_shard(folder.paths, "0001")
    assert story.progress is not None
    assert story.progress.checkpoint == f"000003 at step 15 {at(15)}"


def test_unknown_shard_is_an_error(tmp_path: Path) -> None:
    folder = shard_folder(tmp_path)
    with pytest.raises(ConfigError, match="no shard '0009'"):
        why_shard(folder.paths, "0009")


@pytest.mark.parametrize("words", [["sweep/0001"], ["sweep", "0001"], ["0001"]])
def test_command_takes_a_shard_in_three_ways(words: list[str], tmp_path: Path) -> None:
    shard_folder(tmp_path).attempt("0001", 1)
    with replaced_by(Recorded({})):
        result = CliRunner().invoke(command, [*words, "--root", str(tmp_path), "--json"])
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["shard"] == "0001"


@pytest.mark.parametrize("words", [["sweep"], ["a", "b", "c"], ["0007"]])
def test_command_refuses_what_is_neither(words: list[str], tmp_path: Path) -> None:
    result = CliRunner().invoke(command, [*words, "--root", str(tmp_path)])
    assert isinstance(result.exception, ConfigError)


def test_long_commands_go_on_after_a_backslash_and_never_inside_quotes() -> None:
    long = "sinfo -p a-partition-of-a-long-name -o '%20N %10T %c %m %G %f' --and --more --options"
    lines = list(command_lines(f"scancel 1; {long}", width=60))
    assert lines[0] == "$ scancel 1"
    assert all(len(line) <= 60 for line in lines)
    joined = "".join(line.removesuffix("\\") for line in lines[1:])
    assert joined.split("'")[1] == "%20N %10T %c %m %G %f"
    assert joined.removeprefix("$ ").split() == long.split()


def test_time_left_is_never_below_nothing(tmp_path: Path) -> None:
    answers = pending("None")
    answers["scontrol show job"] = job(
        JobState="RUNNING", StartTime="2026-03-01T08:00:00", NodeList="n2"
    )
    with replaced_by(Recorded(answers)):
        story = why_job("71", tmp_path)
    text = told(replace(story, now=epoch("2026-03-01T10:00:00Z")))
    assert "time left  0 s of 60 min" in text


def test_the_page_names_every_category_and_no_other() -> None:
    page = (Path(__file__).parents[2] / "docs" / "why.md").read_text(encoding="utf-8")
    kinds = page.split("| kind |")[1].split("\n\n")[0]
    rows = [
        line.split("|")[1].strip().replace(" the ", "_").replace(" ", "_")
        for line in kinds.splitlines()[2:]
    ]
    assert rows == ["wait", "wait_or_fix", "fix", "never", "held", "after_end"]
    for line in kinds.splitlines()[2:]:
        names = [n.strip() for n in line.split("|")[2].split(",")]
        category = line.split("|")[1].strip().replace(" the ", "_").replace(" ", "_")
        assert {str(parse_reason(n.strip("`")).category) for n in names} == {category}
