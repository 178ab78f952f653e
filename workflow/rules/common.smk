# What all rules share: the runs, their names, and what a restarted head must know.

import json
import math
import shlex
from pathlib import Path

from milepost.config.inputs import find_inputs
from milepost.config.load import parse_config, spec_digest
from milepost.errors import MilepostError
from milepost.launch.heads import enter_head
from milepost.paths import RunPaths
from milepost.shardtable import shard_names

wildcard_constraints:
    run=r"[a-z0-9][a-z0-9-]*",
    shard=r"[0-9]{4}[0-9]*",


try:
    RUNS = parse_config(config, "config").runs
except MilepostError as error:
    raise WorkflowError(str(error))

# A head that was killed leaves a lock and marks behind; the same command simply goes on.
if workflow.is_main_process:
    for note in enter_head():
        print(note, file=sys.stderr)


# Files come first and options of the command line over them, as Snakemake merges them.
CONFIG_OPTIONS = " ".join(f"--config {shlex.quote(str(path))}" for path in workflow.configfiles)
if workflow.config_settings.config:
    CONFIG_OPTIONS += " --override " + shlex.quote(json.dumps(workflow.config_settings.config))


def contract_inputs(run):
    """The task table and every file whose content the contract freezes."""
    spec = RUNS[run]
    return [spec.work.table, *(proof.path for proof in find_inputs(spec, Path(".")))]


def cpus_of(wildcards):
    return RUNS[wildcards.run].resources.cpus


def runtime_min(run):
    """Walltime of a shard in minutes, as the contract's resources ask for it."""
    return math.ceil(RUNS[run].resources.runtime_s / 60)


def uploads_of(run):
    """Asks for every shard of a run, once the submission has named them."""
    table = checkpoints.submit.get(run=run).output.shards
    return [f"results/{run}/shards/{shard}/upload.json" for shard in shard_names(Path(table))]


def uploads_of_run(wildcards):
    return uploads_of(wildcards.run)


def uploads_of_all_runs(wildcards):
    return [upload for run in RUNS for upload in uploads_of(run)]


def unfinished_markers():
    """Markers that are missing, of all launched runs."""
    return [
        str(marker)
        for run in launched_runs()
        for shard in shard_names(RunPaths(run).frozen_shards)
        if not (marker := RunPaths(run).shard(shard).marker).exists()
    ]


def launched_runs(wildcards=None):
    return [run for run in RUNS if RunPaths(run).frozen_submission.exists()]


def close_out_after_failure():
    """A run that failed gets its report, too."""
    for run in launched_runs():
        shell("milepost closeout {run} --partial || true")
