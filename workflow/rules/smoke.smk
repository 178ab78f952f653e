# The gate: a small slice is killed, resumed and compared; what it took calibrates the plan.


rule smoke_test_run:
    input:
        "results/{run}/contract.json",
    output:
        report(
            "results/{run}/smoke/smoke.json",
            caption="../report/smoke.rst",
            category="{run}",
            labels={"step": "smoke test"},
        ),
    log:
        "results/{run}/logs/smoke_test.log",
    benchmark:
        "results/{run}/benchmarks/smoke_test.tsv"
    threads: cpus_of
    resources:
        **site_resources(),
        mem_mb=lambda wildcards: RUNS[wildcards.run].resources.mem_mb,
        # a slice is smaller than a shard, and must fit where the shards do
        runtime=lambda wildcards: math.ceil(
            RUNS[wildcards.run].resources.runtime_s / 60
        ),
    shell:
        "exec milepost --log {log} smoke {wildcards.run}"


rule smoke_test:
    input:
        lambda wildcards: expand("results/{run}/smoke/smoke.json", run=ready_runs()),
