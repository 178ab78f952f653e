"""Which limit a request runs into, in words, and what a cluster allows."""

import math
from typing import Any

import pytest

from helpers.slurm_answers import Recorded
from milepost.errors import ConfigError
from milepost.slurm.command import NotHeard, replaced_by
from milepost.slurm.limits import (
    ClusterLimits,
    SubmitLimits,
    cluster_limits,
    partitions,
    submit_limits,
)
from milepost.slurm.refusals import refusal
from milepost.slurm.request import options, over_partition, over_submit, shown, test_only

CONFIG = """Configuration data as of 2026-03-01T10:00:00
AccountingStorageType   = accounting_storage/slurmdbd
ClusterName             = rack
EnforcePartLimits       = {enforce}
JobRequeue              = 1
KillWait                = 30 sec
MaxArraySize            = 1001
MaxJobCount             = 500
MinJobAge               = 300 sec
OverTimeLimit           = 2 min
PreemptMode             = REQUEUE
SLURM_VERSION           = 23.11.5
"""
PARTITIONS = (
    "PartitionName=main AllowAccounts=ALL AllowQos=ALL Default=YES DefaultTime=01:00:00 GraceTime=0 "
    "MaxNodes=2 MaxTime=1-00:00:00 Nodes=n[1-2] MaxCPUsPerNode=UNLIMITED PreemptMode=REQUEUE "
    "State=UP TotalNodes=2 MaxMemPerNode=UNLIMITED TRES=cpu=12,mem=24000M\n"
    "PartitionName=big AllowAccounts=physics AllowQos=high,low Default=NO DefaultTime=NONE "
    "GraceTime=30 MaxNodes=UNLIMITED MaxTime=UNLIMITED Nodes=n2 MaxCPUsPerNode=4 "
    "PreemptMode=CANCEL State=DRAIN TotalNodes=1 MaxMemPerNode=10000\n"
)
NODES = (
    "NodeName=n1 CPUTot=4 OS=Linux 6.1 #1 SMP RealMemory=8000 Partitions=main  Reason=x y [a@b]\n"
    "NodeName=n2 CPUEfctv=8 CPUTot=9 RealMemory=16000 Partitions=main,big \n"
)
SHOWN = {"scontrol show partition": PARTITIONS, "scontrol show node": NODES}


def test_settings_of_the_cluster() -> None:
    with replaced_by(Recorded({"scontrol show config": CONFIG.format(enforce="ANY")})):
        found = cluster_limits()
    assert (found.cluster, found.version, found.max_array_size) == ("rack", (23, 11), 1001)
    assert (found.min_job_age_s, found.kill_wait_s, found.over_time_limit_s) == (300.0, 30.0, 120.0)
    assert found.can_requeue and found.has_accounting and found.refuses_over_partition
    assert (found.max_job_count, found.max_batch_requeue) == (500, None)
    with replaced_by(Recorded({"scontrol show config": CONFIG.format(enforce="NO")})):
        assert not cluster_limits().refuses_over_partition


def test_partitions_and_their_largest_node() -> None:
    with replaced_by(Recorded(SHOWN)):
        found = partitions()
    main, big = found["main"], found["big"]
    assert (main.is_default, main.max_time_s, main.default_time_s) == (True, 86400.0, 3600.0)
    assert (main.cpus_per_node, main.mem_per_node_bytes, main.max_nodes) == (8, 16000 << 20, 2)
    assert (main.allow_qos, main.allow_accounts) == (None, None)
    assert (big.max_time_s, big.max_nodes, big.default_time_s) == (math.inf, None, None)
    assert (big.cpus_per_node, big.mem_per_node_bytes) == (4, 10000 << 20)
    assert (big.allow_qos, big.allow_accounts) == (("high", "low"), ("physics",))
    assert (big.grace_s, big.preempt_mode, big.state) == (30.0, "CANCEL", "DRAIN")


def test_limits_of_the_user() -> None:
    answers = {
        "sacctmgr -n -P -r show assoc": "physics|100||200|1-00:00:00|low,high|low\n",
        "sacctmgr -n -P -r show qos": "low|2|1||\nother|1|||\n",
    }
    with replaced_by(Recorded(answers)):
        found = submit_limits("ada")
    assert found == [
        SubmitLimits("association", "physics", 100, None, 200, 86400.0, ("low", "high"), "low"),
        SubmitLimits("QOS", "low", 2, 1, None, None),
    ]


def test_no_accounting_has_no_limits_and_silence_is_not_heard() -> None:
    text = " You are not running a supported accounting_storage plugin\n"
    with replaced_by(Recorded({"sacctmgr": (1, "", text)})):
        assert submit_limits("ada") is None
    silent = Recorded({"sacctmgr": (1, "", "error: Connection refused")})
    with replaced_by(silent), pytest.raises(NotHeard):
        submit_limits("ada")


REFUSED = {
    "sbatch: error: invalid partition specified: x\nallocation failure: Invalid partition name "
    "specified": "partition",
    "allocation failure: Invalid account or account/partition combination specified": "account",
    "allocation failure: Invalid qos specification": "QOS",
    "allocation failure: Requested time limit is invalid (missing or exceeds some limit)": "time limit",
    "allocation failure: Requested node configuration is not available": "nodes",
    "allocation failure: Memory specification can not be satisfied": "memory",
    "allocation failure: Invalid job array specification": "array",
    "allocation failure: Requested reservation is invalid": "reservation",
    "allocation failure: Invalid feature specification": "constraint",
    "allocation failure: Invalid generic resource (gres) specification": "GPUs",
    "allocation failure: Required partition not available (inactive or drain)": "partition",
    "allocation failure: Job violates accounting/QOS policy (job submit limit, user's size and/or "
    "time limits)": "submit limit",
    "sbatch: error: QOSMaxSubmitJobPerUserLimit\nallocation failure: Job violates accounting/QOS "
    "policy (job submit limit, user's size and/or time limits)": "QOSMaxSubmitJobPerUserLimit",
    "sbatch: error: AssocMaxSubmitJobLimit\nallocation failure: …": "AssocMaxSubmitJobLimit",
    "sbatch: error: Please name a project (--comment)": "site rule",
}


@pytest.mark.parametrize("message", REFUSED)
def test_refusals_name_the_limit_and_the_remedy(message: str) -> None:
    binding = refusal(message)
    assert binding.limit == REFUSED[message]
    assert binding.meaning and binding.remedy
    assert binding.limit in str(binding)


def trial(answer: Any, **request: Any) -> Any:
    recorded = Recorded({**SHOWN, "sbatch --test-only": answer})
    with replaced_by(recorded):
        return test_only(request)


def test_a_request_that_is_taken() -> None:
    text = "sbatch: Job 5 to start at 2026-03-01T10:00:00 using 1 processors on nodes n1 in partition main\n"
    result = trial((0, "", text), cpus=2, runtime_s=60)
    assert result.ok
    assert result.start_estimate == 1772359200.0
    assert result.binds == ()
    assert "to start at" in result.message


def test_a_request_that_is_taken_and_would_wait_for_ever() -> None:
    text = "sbatch: Job 5 to start at 2026-03-01T10:00:00 using 1 processors\n"
    result = trial((0, "", text), runtime_s=2 * 86400)
    assert not result.ok
    assert result.binds[0].limit == "partition main, MaxTime"
    assert "172800 is more than 86400" in result.binds[0].meaning


def test_a_refusal_is_explained_by_the_partition_first() -> None:
    text = "allocation failure: Requested node configuration is not available\n"
    result = trial((1, "", text), mem_mb=20000)
    assert not result.ok
    assert [one.limit for one in result.binds] == ["partition main, memory of a node", "nodes"]


@pytest.mark.parametrize(
    "text",
    [
        "sbatch: error: Unable to contact slurm controller (connect failure)",
        "allocation failure: Socket timed out on send/recv operation",
        "allocation failure: Zero Bytes were transmitted or received",
        "allocation failure: Protocol authentication error",
    ],
)
def test_a_silent_controller_is_no_refusal(text: str) -> None:
    with pytest.raises(NotHeard):
        trial((1, "", text))


def test_options_of_sbatch() -> None:
    request = {"partition": "main", "mem_mb": 500, "runtime_s": 61, "gpus": None, "cpus": 2}
    assert options(request) == ["--partition=main", "--mem=500M", "--time=2", "--cpus-per-task=2"]
    assert shown({"constraint": "a&b"}) == "sbatch --test-only '--constraint=a&b' --wrap true"
    with pytest.raises(ConfigError, match="'memory' is not a resource"):
        options({"memory": 5})


@pytest.mark.parametrize(
    ("request_", "limits"),
    [
        ({"cpus": 8, "mem_mb": 16000, "runtime_s": 86400, "nodes": 2}, []),
        ({"cpus": 9}, ["partition main, CPUs of a node"]),
        ({"nodes": 3}, ["partition main, MaxNodes"]),
        (
            {"partition": "big", "qos": "normal", "account": "chemistry"},
            ["partition big", "partition big, qos", "partition big, account"],
        ),
        ({"partition": "big,main", "cpus": 8}, []),
        ({"partition": "nowhere", "cpus": 800}, []),
    ],
)
def test_limits_of_partitions(request_: dict[str, Any], limits: list[str]) -> None:
    with replaced_by(Recorded(SHOWN)):
        known = partitions()
    assert [one.limit for one in over_partition(request_, known)] == limits


def test_limits_on_the_number_of_jobs() -> None:
    cluster = ClusterLimits(
        *("rack", None, 1001, 500, None, None, None, None, True, "OFF", True, False)
    )
    limits = [
        SubmitLimits("association", "physics", 100, None, 200, None),
        SubmitLimits("QOS", "low", 2, 1, None, None),
        SubmitLimits("QOS", "high", 1, 1, None, None),
    ]
    bound = over_submit(150, cluster, limits, account="physics", qos="low")
    assert [one.limit for one in bound] == [
        "MaxSubmitJobs of association physics",
        "MaxSubmitJobs of QOS low",
    ]
    assert "--jobs" in bound[0].remedy
    assert over_submit(2, cluster, limits, account="physics", qos="low") == ()
