"""The one next step for a job or a shard, by how it stands and by how its last attempt ended."""

from __future__ import annotations

from typing import TYPE_CHECKING

from milepost.model import Action

if TYPE_CHECKING:
    from milepost.evidence.why import Story
    from milepost.evidence.why_attempts import AttemptStory

MORE = 1.5
"""Memory is raised by this factor after a kill for memory."""

Step = tuple[str, tuple[str, ...]]
"""A sentence, and commands."""


def next_step(story: Story) -> Step | None:
    """What to do next; None when there is nothing to do, or the reason already says it."""
    if story.is_complete or story.waiting is not None:
        return None
    if story.running is not None:
        return "nothing: it works", ()
    last = story.attempts[-1] if story.attempts else None
    if last is None:
        return _start(story)
    if last.is_open:
        return "nothing: it works", ()
    if last.finding is None:
        return _after_success(story, last)
    return _by_action(story, last, last.finding.action)


def _start(story: Story) -> Step:
    if story.shard is not None:
        return "it has not been started", (run_command(story),)
    return (
        "Slurm does not tell of this job: look whether the id is right and of this cluster",
        (f"sacct -D -j {story.job_id} -S 1970-01-01",),
    )


def _after_success(story: Story, last: AttemptStory) -> Step | None:
    if story.run is not None:
        return "ask all three witnesses about the shard", (f"milepost reconcile {story.run}",)
    if last.state is None:
        return None
    return "look at what it wrote: a state of COMPLETED proves no result", ()


def _by_action(story: Story, last: AttemptStory, action: Action) -> Step:
    again = (run_command(story),) if story.shard is not None else ()
    if action is Action.WAIT:
        return "wait; it passes by itself, or the site has to act", ()
    if action is Action.RETRY_MORE_MEMORY:
        return _memory(story, last), again
    if action is Action.LONGER_WALLTIME:
        setting = f"resources.runtime_s of run {story.run}" if story.run else "--time"
        return f"raise {setting}, if its CPUs were busy to the end; then start it again", again
    if action is Action.RESUME_FROM_CHECKPOINT:
        return "start it again: it goes on from where it stopped", again
    if action is Action.FIX_NO_RETRY:
        return "mend what is named above: the same would happen again; then start it", again
    if action is Action.RETRY_SAME:
        return "start it again", again
    return "nothing", ()


def _memory(story: Story, last: AttemptStory) -> str:
    asked = last.asked_bytes
    wanted = "half as much again" if asked is None else f"{round(MORE * asked / 2**20)} MB"
    if story.run is not None:
        return (
            f"it needs more memory: a retry by Snakemake asks for {wanted}; where that is not "
            f"enough raise resources.mem_mb of run {story.run}"
        )
    return f"ask for more memory ({wanted}: --mem) and submit it again"


def run_command(story: Story) -> str:
    """The command that runs the shard, by the scheduler where it had one."""
    on_slurm = story.job_id is not None
    snakemake = "snakemake --profile slurm" if on_slurm else "snakemake -c2"
    return f"{snakemake} results/{story.run}/shards/{story.shard}/journal.csv"
