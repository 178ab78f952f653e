"""The only place that reads SLURM_* or calls Slurm's commands.

Three different facts are kept apart everywhere: a job that is listed, a job that is not listed
(absent from the answer), and a scheduler that was not heard (SchedulerError).
"""
