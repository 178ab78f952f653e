# Evidence and verdict of every shard. As a step it follows the shards; the target `reconcile`
# never waits for anything: it says what is true now.


rule reconcile_run:
    input:
        uploads_of_run,
    output:
        report(
            "results/{run}/reconcile.csv",
            caption="../report/reconcile.rst",
            category="{run}",
            labels={"step": "reconcile"},
        ),
    log:
        "results/{run}/logs/reconcile.log",
    shell:
        "exec milepost --log {log} reconcile {wildcards.run}"


rule reconcile:
    params:
        runs=launched_runs,
    shell:
        "set -- {params.runs}; [ $# -gt 0 ] || echo 'no run is launched yet; next: snakemake -c2';"
        " for run; do milepost reconcile $run; done"
