# What all rules share: the runs, their names, and what a restarted head must know.

import json
import math
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from milepost.config.inputs import find_inputs
from milepost.config.load import parse_config, spec_digest
from milepost.config.needs import is_accepted, is_closed, is_given, record_of
from milepost.errors import MilepostError
from milepost.evidence.superseded import read_superseded
from milepost.launch.attend import Attendant
from milepost.launch.heads import enter_head, only_looks
from milepost.launch.request import most_mem_mb, placed_spec, request_of
from milepost.paths import RunPaths
from milepost.placement import record_of_shard
from milepost.launch.profilefile import read_profile_file
from milepost.planner.profiles import named_on_slurm
from milepost.shardtable import shard_names


wildcard_constraints:
    run=r"[a-z0-9][a-z0-9-]*",
    shard=r"[0-9]{4}[0-9]*",


try:
    RUNS = parse_config(config, "config").runs
    # what the profiles' places are called on a cluster: partition, qos, gpu_model, …
    PLACES_NAME = named_on_slurm(
        read_profile_file(run.planner.profiles, Path("."))
        for run in RUNS.values()
        if run.planner.profiles
    )
except MilepostError as error:
    raise WorkflowError(str(error))

# Only the head asks Slurm; the Snakemake inside a job has been told.
IS_NEAR_SLURM = workflow.is_main_process and shutil.which("squeue") is not None

# A head that was killed leaves a lock and marks behind; the same command simply goes on.
if workflow.is_main_process and not only_looks(sys.argv[1:]):
    for note in enter_head():
        print(note, file=sys.stderr)
    if IS_NEAR_SLURM:
        # its jobs run on: wait for them instead of submitting them a second time
        Attendant(
            Path("."), lambda text: print(f"milepost: {text}", file=sys.stderr)
        ).wait_for_jobs()


# Files come first and options of the command line over them, as Snakemake merges them.
CONFIG_OPTIONS = " ".join(
    f"--config {shlex.quote(str(path))}" for path in workflow.configfiles
)
if workflow.config_settings.config:
    CONFIG_OPTIONS += " --override " + shlex.quote(
        json.dumps(workflow.config_settings.config)
    )


def contract_inputs(run):
    """The task table and every file whose content the contract freezes; for what other runs
    give, their shards and the records of their closeouts."""
    spec = RUNS[run]
    own = [proof.path for proof in find_inputs(spec, Path("."), only_own=True)]
    if not is_given(spec.work.table, spec.needs):
        own.append(spec.work.table)
    # who accepted what failed in a needed run does not want it tried again first
    awaited = [needed for needed in spec.needs if not is_accepted(needed, Path("."))]
    # the shards as well, because a record of an unfinished run may exist already
    shards = [upload for needed in awaited for upload in uploads_of(needed)]
    return [*own, *shards, *(str(record_of(needed, Path("."))) for needed in awaited)]


def current_runs():
    """The runs that are worked on: those whose place another run took are left alone."""
    return [run for run in RUNS if read_superseded(RunPaths(run)) is None]


def ready_runs(wildcards=None):
    """Runs that wait for no other run."""
    return [
        run
        for run in current_runs()
        if all(is_closed(n, Path(".")) for n in RUNS[run].needs)
    ]


def cpus_of(wildcards):
    return RUNS[wildcards.run].resources.cpus


def shard_resources():
    """Functions of wildcards and attempt: a retry asks for more of what was lacking, and every
    shard for what the plan says about its place."""

    def spec_of(wildcards):
        record = record_of_shard(RunPaths(wildcards.run), wildcards.shard)
        return placed_spec(RUNS[wildcards.run], record)

    def asked(wildcards):
        spec = spec_of(wildcards)
        most = most_mem_mb(spec.slurm.partition) if IS_NEAR_SLURM else None
        return request_of(spec, RunPaths(wildcards.run), wildcards.shard, most)

    def extra(wildcards, attempt):
        spec = spec_of(wildcards)
        options = [f"--signal={spec.checkpoint.signal}@{asked(wildcards).notice_s}"]
        if spec.slurm.reservation:
            options.append(f"--reservation={spec.slurm.reservation}")
        return " ".join(options)

    return {
        "mem_mb": lambda wildcards, attempt: asked(wildcards).mem_mb,
        "runtime": lambda wildcards, attempt: math.ceil(
            asked(wildcards).runtime_s / 60
        ),
        # how often this job was retried unasked: such a retry leaves alone what it cannot mend
        "retry": lambda wildcards, attempt: attempt - 1,
        "slurm_extra": extra,
        **site_resources(spec_of),
        **(
            {"gpu_model": lambda wildcards, attempt: asked(wildcards).gpu_model}
            if "gpu_model" in PLACES_NAME
            else {}
        ),
    }


def site_resources(spec_of=lambda wildcards: RUNS[wildcards.run]):
    """Account, partition, QOS, constraint and GPUs, where configuration or profiles name them."""
    names = {"slurm_account": "account", "slurm_partition": "partition"}
    names |= {"qos": "qos", "constraint": "constraint"}
    wanted = {
        resource: (lambda wildcards, key=key: getattr(spec_of(wildcards).slurm, key))
        for resource, key in names.items()
        if key in PLACES_NAME or any(getattr(spec.slurm, key) for spec in RUNS.values())
    }
    if any(spec.resources.gpus for spec in RUNS.values()):
        wanted["gpu"] = lambda wildcards: RUNS[wildcards.run].resources.gpus
    return wanted


def uploads_of(run):
    """Asks for every shard of a run, once the submission has named them."""
    table = checkpoints.submit.get(run=run).output.shards
    return [
        f"results/{run}/shards/{shard}/upload.json"
        for shard in shard_names(Path(table))
    ]


def uploads_of_run(wildcards):
    return uploads_of(wildcards.run)


def unfinished_markers(run):
    """Markers that are missing, of a launched run; of the shards that its newest table has."""
    return [
        str(marker)
        for shard in shard_names(Path(checkpoints.submit.get(run=run).output.shards))
        if not (marker := RunPaths(run).shard(shard).marker).exists()
    ]


def launched_runs(wildcards=None):
    return [run for run in RUNS if RunPaths(run).frozen_submission.exists()]


def close_out_after_failure():
    """A run that failed gets its report, too; all of it on the screen would hide the error."""
    for run in launched_runs():
        shell("milepost closeout {run} --partial | grep '^run {run}: ' || true")
    shell("milepost status || true")


def is_for_slurm():
    """Do the jobs of this head go to Slurm? Known once it starts."""
    return workflow.executor_plugin.name == "slurm"


def attend_jobs():
    """On a cluster a process beside the head looks after jobs that the executor gives up on."""
    if is_for_slurm():
        subprocess.Popen(["milepost", "attend", "--with-parent"])


def tell_submit():
    """Where the shards will go, for the step that asks the scheduler before the launch."""
    if is_for_slurm():
        jobs = workflow.resource_settings.nodes
        at_most = f" --jobs {jobs}" if isinstance(jobs, int) else ""
        os.environ.update(MILEPOST_SUBMIT_OPTIONS=f"--scheduler slurm{at_most}")
