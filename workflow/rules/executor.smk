# What the Slurm executor (2.8) does not see, so that its head would wait for ever:
# * sacct prints `CANCELLED by 1000`; the executor knows the bare word only and takes every other
#   one for a job that still runs;
# * sacct, asked for a span of time, leaves out a job that was cancelled while it was held: squeue
#   still lists it;
# * a job at its time limit is recorded as TIMEOUT while its attempt still has KillWait to save and
#   to requeue the job: until the queue says that it is over, another job would be one too many.

if (slurm_executor := sys.modules.get("snakemake_executor_plugin_slurm")) is not None:
    IS_NOT_OVER = {"COMPLETING", "PENDING", "CONFIGURING", "RUNNING"}
    ask_for_states = slurm_executor.query_job_status

    async def ask_for_plain_states(command, logger):
        """States in one word; of jobs that the accounting does not list, those of the queue."""
        recorded, seconds = await ask_for_states(command, logger)
        if recorded is None:
            return None, None
        head = command.rsplit("--name", 1)[-1].strip()
        queue = slurm_executor.query_job_status_squeue(head)
        listed, _ = await ask_for_states(queue, logger)
        listed = listed or {}
        states = {**listed, **recorded}
        states |= {
            job: listed[job]
            for job, state in recorded.items()
            if state == "TIMEOUT" and listed.get(job) in IS_NOT_OVER
        }
        return {job: state.split(" ")[0] for job, state in states.items()}, seconds

    slurm_executor.query_job_status = ask_for_plain_states
