# The work. The marker exists only when every task is done and every artifact verifies; the live
# journal and the checkpoints are no outputs, because Snakemake deletes outputs of failed jobs.


rule shard:
    input:
        # ancient: a submission that was written again has not changed this shard's tasks
        ancient("results/{run}/submission.json"),
    output:
        "results/{run}/shards/{shard}/journal.csv",
    log:
        "results/{run}/logs/shard/{shard}.log",
    benchmark:
        "results/{run}/benchmarks/shard/{shard}.tsv"
    threads: cpus_of
    resources:
        **shard_resources(),
    shell:
        "exec milepost --log {log} shard {wildcards.run} {wildcards.shard}"
        " --automatic {resources.retry}"


rule failed:
    # Only what is not done, of runs that were launched; no new launch, no closeout.
    input:
        *[
            lambda wildcards, run=run: unfinished_markers(run)
            for run in launched_runs()
            if run in current_runs()
        ],
