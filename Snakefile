# Entry point, so that a plain `snakemake -c2` works in the folder of the project.


include: "workflow/Snakefile"


workflow.default_target = "all"
