"""The table of pending reasons is complete and consistent, and every trap of the field is read."""

import re
from pathlib import Path

import pytest

from milepost.resources import load_yaml
from milepost.slurm.reasons import Category, all_reasons, find_reason, nodes_of, parse_reason

LISTED = Path(__file__).parents[1] / "data" / "pending_reasons.txt"
"""`name category` of every reason of Slurm 20.11 to 26.05."""

NAMES = dict(line.split() for line in LISTED.read_text(encoding="utf-8").splitlines())
FIELDS = {"job", "user", "account", "partition", "qos", "reservation", "nodes", "limit"}
KNOWN = {field: f"my-{field}" for field in FIELDS}


def test_the_table_has_every_name_once_and_no_other() -> None:
    table = load_yaml("policies", "pending_reasons.yaml")
    names = [entry["name"] for entry in table["reasons"]]
    names += [name for family in table["families"] for name in family["names"]]
    assert len(NAMES) == 222
    assert sorted(names) == sorted(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_every_name_is_explained_and_has_a_remedy(name: str) -> None:
    reason = parse_reason(name)
    assert (reason.name, str(reason.category), reason.is_known) == (name, NAMES[name], True)
    assert reason.detail is None
    assert {*re.findall(r"\{(\w+)\}", reason.meaning + reason.advice + reason.remedy)} <= FIELDS
    filled = reason.filled(KNOWN)
    for text in (filled.meaning, filled.advice, filled.remedy):
        assert len(text) > 3 and not re.search(r"[{}]", text)
    assert len(filled.meaning.split()) >= 4
    assert re.match(r"(s\w+|milepost|sshare|sprio) ", filled.remedy)


@pytest.mark.parametrize("name", NAMES)
def test_no_entry_contradicts_its_category(name: str) -> None:
    reason = parse_reason(name)
    helps = {Category.WAIT: True, Category.WAIT_OR_FIX: None}.get(reason.category, False)
    assert reason.helps_waiting is helps
    changes = re.search(r"scontrol (update|release)|scancel|ask the site", reason.remedy)
    if reason.category in (Category.FIX, Category.NEVER):
        assert changes and not reason.advice.startswith("wait")
    if reason.category is Category.HELD and name != "JobHeldAdmin":
        assert "scontrol release {job}" in reason.remedy
    if reason.category is Category.WAIT:
        assert "scancel" not in reason.remedy and "release" not in reason.remedy


def test_every_name_belongs_to_at_most_one_family() -> None:
    families = load_yaml("policies", "pending_reasons.yaml")["families"]
    for name in NAMES:
        fits = [f["pattern"] for f in families if re.fullmatch(f["pattern"], name)]
        assert fits == [f["pattern"] for f in families if name in f["names"]]


def test_members_of_a_family_speak_of_their_own_resource() -> None:
    cpu, memory = parse_reason("AssocMaxCpuPerJobLimit"), parse_reason("QOSMaxMemoryPerJob")
    assert "CPUs" in cpu.meaning and "account {account}" in cpu.meaning
    assert "memory" in memory.meaning and "QOS {qos}" in memory.meaning
    assert "numcpus" in cpu.remedy and "minmemorynode" in memory.remedy


def test_versions_are_known() -> None:
    reasons = all_reasons()
    assert reasons["Priority"].since == "20.11" and reasons["Priority"].until == "26.05"
    assert reasons["NvidiaImexChannels"].since == "25.11"
    assert reasons["BlockMaxError"].until == "22.05"
    assert reasons["QOSMaxBBMinutesPerJob"].since is None
    assert sum(r.since == "24.05" for r in reasons.values()) == 20


@pytest.mark.parametrize(
    ("text", "name", "detail"),
    [
        ("(launch failed requeued held)", "JobHeldUser", "launch failed requeued held"),
        ("launch_failed_requeued_held", "JobHeldUser", "launch failed requeued held"),
        (
            "(launch failure limit exceeded requeued held)",
            "JobHoldMaxRequeue",
            "launch failure limit exceeded requeued held",
        ),
        (
            "user_env_retrieval_failed_requeued_held",
            "JobHeldUser",
            "user env retrieval failed requeued held",
        ),
        ("(job requeued in held state)", "JobHeldUser", "job requeued in held state"),
        (
            "job_requeued_in_special_exit_state",
            "JobHeldUser",
            "job requeued in special exit state",
        ),
        (
            "ReqNodeNotAvail, UnavailableNodes:node[1-4]",
            "ReqNodeNotAvail",
            "UnavailableNodes:node[1-4]",
        ),
        ("ReqNodeNotAvail,_UnavailableNodes:n4", "ReqNodeNotAvail", "UnavailableNodes:n4"),
        (
            "(ReqNodeNotAvail, May be reserved for other job)",
            "ReqNodeNotAvail",
            "May be reserved for other job",
        ),
        ("(ReqNodeNotAvail)", "ReqNodeNotAvail", None),
        ("RaisedSignal:9(Killed)", "RaisedSignal", "9(Killed)"),
        ("RaisedSignal:53(Real-time_signal_19)", "RaisedSignal", "53(Real-time signal 19)"),
        ("(Resources)", "Resources", None),
        (
            "Nodes_required_for_job_are_DOWN,_DRAINED_or_reserved_for_jobs_in_higher_priority_"
            "partitions",
            "Resources",
            "Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority "
            "partitions",
        ),
        (
            "burst_buffer/lua: stage-in failed",
            "BurstBufferOperation",
            "burst_buffer/lua: stage-in failed",
        ),
        ("(null)", "None", None),
        ("", "None", None),
        ("  None ", "None", None),
    ],
)
def test_traps_of_the_field(text: str, name: str, detail: str | None) -> None:
    reason = parse_reason(text)
    assert (reason.name, reason.detail, reason.is_known) == (name, detail, True)


def test_held_free_text_says_more_than_the_word_beneath() -> None:
    held, failed = parse_reason("JobHeldUser"), parse_reason("(launch failed requeued held)")
    assert failed.category is held.category is Category.HELD
    assert failed.meaning != held.meaning
    assert "excnodelist" in failed.remedy


def test_unavailable_nodes_are_named() -> None:
    assert nodes_of(parse_reason("ReqNodeNotAvail,_UnavailableNodes:n[1-4],n7")) == "n[1-4],n7"
    assert nodes_of(parse_reason("Resources")) is None


def test_a_name_of_a_later_slurm_is_explained_by_its_family() -> None:
    reason = parse_reason("QOSMaxFpgaPerUser")
    assert (reason.category, reason.helps_waiting) == (Category.WAIT, True)
    assert "Fpga" in reason.meaning
    assert (reason.is_known, reason.since) == (False, None)


def test_an_unknown_word_is_said_to_be_unknown() -> None:
    reason = parse_reason("SomethingNew")
    assert (reason.name, reason.category, reason.is_known) == (
        "SomethingNew",
        Category.UNKNOWN,
        False,
    )
    assert reason.helps_waiting is None
    assert "not in milepost's table" in reason.meaning
    assert find_reason("SomethingNew") is None


def test_fields_that_are_not_known_become_words_in_capitals() -> None:
    filled = parse_reason("PartitionTimeLimit").filled({"job": "7", "limit": None})
    assert filled.remedy == "scontrol update jobid=7 timelimit=LIMIT"
    assert filled.as_json()["command"] == filled.remedy
