"""The simulator: interruptions played in a second of processor time, beside plain Python and SimPy.

All peers play the same job with failures at a constant rate. A run counts only when its mean
overhead is within three per cent of the exact formula. The clock is processor time, so that what
else the machine does is not counted.
"""

from __future__ import annotations

import importlib
import importlib.util
import math
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bench.event_loop import Run
from bench.measure import Sample, Summary, alternate, ratio, summarise
from bench.part import Bar, Options, bars_table
from milepost.planner.simulate import simulate
from milepost.planner.simulation.failures import Exponential, Failures, Replay, Weibull
from milepost.planner.simulation.job import FarTier, Job, Preemption, Walltime
from milepost.planner.simulation.policies import Adaptive, EvenSplit, Every, Policy
from milepost.planner.theory import exact_interval, exact_overhead

TITLE = "Simulator"
OURS = "milepost"
MTBF_S, T_CKPT_S, RESTORE_S, DOWNTIME_S = 6 * 3600.0, 60.0, 60.0, 60.0
INTERVAL_S = exact_interval(T_CKPT_S, MTBF_S)
JOB = Job(100 * MTBF_S, T_CKPT_S, RESTORE_S, DOWNTIME_S)
EXPECTED = exact_overhead(INTERVAL_S, T_CKPT_S, MTBF_S, RESTORE_S, DOWNTIME_S)
NEAR = 0.03
LEAST = 1e6
"""Failures a second that we hold ourselves to."""


@dataclass(frozen=True)
class Played:
    """What a peer played: interruptions, and the mean overhead of its jobs."""

    events: int
    overhead: float


@dataclass(frozen=True)
class Player:
    """`play(jobs)` plays so many jobs; `jobs` of them take a second or so."""

    name: str
    how: str
    jobs: int
    play: Callable[[int], Played]
    needs: str | None = None

    def is_here(self) -> bool:
        return self.needs is None or importlib.util.find_spec(self.needs) is not None


def play_ours(jobs: int) -> Played:
    return _vectorised(JOB, Exponential(MTBF_S), Every(INTERVAL_S))(jobs)


def _vectorised(job: Job, failures: Failures, policy: Policy) -> Callable[[int], Played]:
    def play(jobs: int) -> Played:
        runs = simulate(job, failures, policy, jobs)
        return Played(runs.events, float(runs.overhead.mean()))

    return play


def play_by_failure(jobs: int) -> Played:
    """The simulator's own idea, one job and one failure after the other."""
    draw, period_s = random.Random(1).expovariate, INTERVAL_S + T_CKPT_S
    events, total_s = 0, 0.0
    chunks = math.ceil(JOB.work_s / INTERVAL_S)
    tail_s = JOB.work_s - (chunks - 1) * INTERVAL_S + T_CKPT_S
    for _ in range(jobs):
        now_s, done, restore_s = 0.0, 0, 0.0
        while True:
            alive_s = draw(1.0 / MTBF_S)
            needed_s = restore_s + (chunks - 1 - done) * period_s + tail_s
            if alive_s >= needed_s:
                break
            now_s += alive_s + DOWNTIME_S
            done += max(0, int((alive_s - restore_s) // period_s))
            restore_s = RESTORE_S
            events += 1
        total_s += now_s + needed_s
    return Played(events, total_s / (jobs * JOB.work_s) - 1.0)


def play_by_checkpoint(jobs: int) -> Played:
    """Every piece of work and every checkpoint as an event of its own."""
    draw = random.Random(1).expovariate
    events, total_s = 0, 0.0
    for _ in range(jobs):
        run = Run(
            JOB, lambda now_s: now_s + draw(1.0 / MTBF_S), lambda _: math.inf, lambda _: INTERVAL_S
        )
        played = run.play()
        events += played.failures
        total_s += played.wall_s
    return Played(events, total_s / (jobs * JOB.work_s) - 1.0)


def play_simpy(jobs: int) -> Played:
    """The job as a SimPy process that a second process interrupts."""
    simpy: Any = importlib.import_module("simpy")
    draw = random.Random(1).expovariate
    events, total_s = 0, 0.0

    def job(env: Any, failed: list[int]) -> Iterator[Any]:
        saved_s = restore_s = 0.0
        while saved_s < JOB.work_s:
            try:
                yield env.timeout(restore_s)
                while saved_s < JOB.work_s:
                    piece_s = min(INTERVAL_S, JOB.work_s - saved_s)
                    yield env.timeout(piece_s)
                    yield env.timeout(T_CKPT_S)
                    saved_s += piece_s
            except simpy.Interrupt:
                failed[0] += 1
                yield env.timeout(DOWNTIME_S)
                env.process(fail(env, env.active_process))
                restore_s = RESTORE_S

    def fail(env: Any, victim: Any) -> Iterator[Any]:
        yield env.timeout(draw(1.0 / MTBF_S))
        if victim.is_alive:
            victim.interrupt()

    for _ in range(jobs):
        env, failed = simpy.Environment(), [0]
        victim = env.process(job(env, failed))
        env.process(fail(env, victim))
        env.run(until=victim)
        events += failed[0]
        total_s += env.now
    return Played(events, total_s / (jobs * JOB.work_s) - 1.0)


PLAYERS = (
    Player(OURS, "all jobs at once, from failure to failure", 20_000, play_ours),
    Player("plain Python", "job by job, from failure to failure", 4_000, play_by_failure),
    Player("plain Python loop", "job by job, every checkpoint an event", 100, play_by_checkpoint),
    Player("SimPy", "job by job, every checkpoint an event", 100, play_simpy, "simpy"),
)


def others() -> tuple[Player, ...]:
    """milepost alone, with what else it can play."""
    gaps = np.random.default_rng(1).weibull(0.7, 5000) * MTBF_S
    record = Replay(np.cumsum(gaps), float(gaps.sum()) + MTBF_S)
    adaptive = EvenSplit(Adaptive(T_CKPT_S, MTBF_S), T_CKPT_S)
    full = replace(
        JOB,
        lag_s=30.0,
        walltime=Walltime(24 * 3600.0, 600.0, 120.0),
        preemption=Preemption(12 * 3600.0, 120.0, T_CKPT_S, 2 * T_CKPT_S, 1.0, 300.0),
        far=FarTier(3, 0.0, 120.0, 0.3, 300.0),
    )
    every = Every(INTERVAL_S)
    kinds = (
        ("Weibull", "shape 0.7", JOB, Weibull(MTBF_S, 0.7), every),
        ("trace", "5,000 recorded failures", JOB, record, every),
        ("adaptive", "the interval estimated anew at each start", JOB, Exponential(MTBF_S),
         Adaptive(T_CKPT_S, MTBF_S)),
        ("everything", "Weibull, preemption, walltime, uploads, two tiers, adaptive", full,
         Weibull(MTBF_S, 0.7), adaptive),
    )  # fmt: skip
    return tuple(
        Player(name, how, 20_000, _vectorised(job, failures, policy))
        for name, how, job, failures, policy in kinds
    )


def measure(
    players: Sequence[Player], options: Options, rounds: int, is_checked: bool
) -> list[Sample]:
    """Seconds of processor time for each interruption, players alternating."""
    here = [player for player in players if player.is_here()]
    for player in set(players) - set(here):
        options.say(f"{player.name} is not installed and is left out")
    samples = []
    for player in alternate(here, rounds):
        jobs = player.jobs // 10 if options.size == "quick" else player.jobs
        begin_s = time.process_time()
        played = player.play(jobs)
        seconds = time.process_time() - begin_s
        if is_checked and abs(played.overhead / EXPECTED - 1.0) > NEAR:
            raise SystemExit(
                f"bench: {player.name} comes to {played.overhead:.4f}, the formula to {EXPECTED:.4f}"
            )
        options.say(f"{player.name:<18} {played.events / seconds:12,.0f} interruptions/s")
        samples.append(Sample("simulate", player.name, 1, seconds / played.events))
    return samples


def section(options: Options) -> Iterator[str]:
    """The lines below the heading: bars, what was done, the tables."""
    rounds = options.rounds(5)
    compared = summarise(measure(PLAYERS, options, rounds, is_checked=True))
    alone = summarise(measure(others(), options, rounds, is_checked=False))
    yield from bars_table(list(bars(compared, alone)))
    yield (
        f"A job of {JOB.work_s / MTBF_S:g} times its MTBF of 6 h, a checkpoint of 60 s every "
        f"{INTERVAL_S / 60:.1f} min, restore and downtime of a minute. Interruptions played in a second "
        "of processor time, one core; medians with the least and the greatest. Each peer's mean "
        "overhead is within 3 % of the formula, else its run does not count."
    )
    yield ""
    yield from table(compared, PLAYERS)
    yield "The same with what else can be simulated, milepost alone:"
    yield ""
    yield from table(alone, others())


def bars(compared: Sequence[Summary], alone: Sequence[Summary]) -> Iterator[Bar]:
    ours = next(one for one in compared if one.name == OURS)
    slowest = max(one.median_s for one in (ours, *alone))
    yield Bar("failures a second, one core", 1.0 / ours.median_s, LEAST, at_least=True)
    yield Bar("the same in the slowest mixture below", 1.0 / slowest, LEAST, at_least=True)


def table(rows: Sequence[Summary], players: Sequence[Player]) -> Iterator[str]:
    how = {player.name: player.how for player in players}
    yield "| what | how | interruptions/s | range | of milepost's |"
    yield "|---|---|--:|--:|--:|"
    for row in sorted(rows, key=lambda one: one.median_s):
        share = ratio(rows, row, OURS)
        share_text = "n/a" if share is None else f"{1.0 / share:.2g}"
        yield (
            f"| {row.name} | {how[row.name]} | {1.0 / row.median_s:,.0f} | "
            f"{1.0 / row.greatest_s:,.0f} - {1.0 / row.least_s:,.0f} | {share_text} |"
        )
    yield ""
