# From the measurements: checkpoint interval, shard size, walltime, overhead, cost.


rule plan_run:
    input:
        contract="results/{run}/contract.json",
        smoke="results/{run}/smoke/smoke.json",
        profiles=lambda wildcards: RUNS[wildcards.run].planner.profiles or [],
    output:
        plan="results/{run}/plan/plan.json",
        report=report(
            "results/{run}/plan/report.html",
            caption="../report/plan.rst",
            category="{run}",
            labels={"step": "plan"},
        ),
    log:
        "results/{run}/logs/plan.log",
    shell:
        "exec milepost --log {log} plan {wildcards.run}"


rule plan:
    input:
        lambda wildcards: expand("results/{run}/plan/plan.json", run=ready_runs()),
