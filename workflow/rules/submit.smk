# The launch: only behind the gate, and only once. Later calls extend the table by new rows.


checkpoint submit:
    input:
        contract="results/{run}/contract.json",
        smoke="results/{run}/smoke/smoke.json",
        plan="results/{run}/plan/plan.json",
    output:
        submission="results/{run}/submission.json",
        shards="results/{run}/shards.csv",
    log:
        "results/{run}/logs/submit.log",
    params:
        # new sizes of shards must reach the table, though the contract stays as it is
        sharding=lambda wildcards: str(RUNS[wildcards.run].shards),
    shell:
        # set by the head, when it knows where the shards will go: no parameter of the results
        "exec milepost --log {log} submit {wildcards.run} ${{MILEPOST_SUBMIT_OPTIONS:-}}"
