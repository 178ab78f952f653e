# Proof, by size and digest, that what must outlive the node is in its tier.


rule checkpoint_upload:
    input:
        "results/{run}/shards/{shard}/journal.csv",
    output:
        "results/{run}/shards/{shard}/upload.json",
    log:
        "results/{run}/logs/checkpoint_upload/{shard}.log",
    shell:
        "exec milepost --log {log} upload {wildcards.run} {wildcards.shard}"
