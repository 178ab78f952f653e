# What the Slurm executor gets wrong about a job that somebody cancelled. sacct prints
# `CANCELLED by 1000`; the executor (2.8) knows the bare word only, takes every other one for a
# job that still runs, and its head would wait for ever.

if (slurm_executor := sys.modules.get("snakemake_executor_plugin_slurm")) is not None:
    ask_for_states = slurm_executor.query_job_status

    async def ask_for_plain_states(command, logger):
        states, seconds = await ask_for_states(command, logger)
        if states is None:
            return None, None
        return {job: state.split(" ")[0] for job, state in states.items()}, seconds

    slurm_executor.query_job_status = ask_for_plain_states
