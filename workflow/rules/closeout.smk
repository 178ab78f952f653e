# The end: a report and records that say what happened. As a step it needs every shard; the
# target `closeout` reports whatever there is.


rule closeout_run:
    input:
        "results/{run}/reconcile.csv",
    output:
        report(
            "results/{run}/closeout/report.html",
            caption="../report/closeout.rst",
            category="{run}",
            labels={"step": "closeout"},
        ),
        report(
            "results/{run}/closeout/record.json",
            caption="../report/record.rst",
            category="{run}",
            labels={"step": "record"},
        ),
        "results/{run}/closeout/public.json",
        "results/{run}/closeout/public.md",
        "results/{run}/closeout/ro-crate-metadata.json",
        report(
            "results/{run}/results.csv",
            caption="../report/results.rst",
            category="{run}",
            labels={"step": "results"},
        ),
    log:
        "results/{run}/logs/closeout.log",
    shell:
        "exec milepost --log {log} closeout {wildcards.run}"


rule closeout:
    params:
        runs=launched_runs,
    shell:
        "set -- {params.runs}; [ $# -gt 0 ] || echo 'no run is launched yet; next: snakemake -c2';"
        " for run; do milepost closeout $run --partial; done"
