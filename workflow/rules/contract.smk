# Validate what the user wrote, resolve it, freeze it. After the launch a change that decides
# results is refused here, before anything runs.


rule contract:
    input:
        lambda wildcards: contract_inputs(wildcards.run),
    output:
        "results/{run}/contract.json",
    log:
        "results/{run}/logs/contract.log",
    params:
        # a change of the run's block in the config, and of nothing else, runs this rule again
        spec=lambda wildcards: spec_digest(RUNS[wildcards.run]),
        options=CONFIG_OPTIONS,
    shell:
        "exec milepost --log {log} contract {wildcards.run} {params.options}"
