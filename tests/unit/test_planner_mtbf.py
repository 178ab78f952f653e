"""The MTBF to plan with: which source wins, what the default says, bursts, windows, preemption."""

from __future__ import annotations

import numpy as np
import pytest

from milepost.planner import mtbf
from milepost.planner.exposure import End, Span, clip
from milepost.planner.history import History, Source, gives_way, tally
from milepost.planner.rate import zero_failure_bound

HOUR = 3600.0
DAY = 24 * HOUR


def history(*spans: Span, name: str = "attempts") -> History:
    places = {span.place for span in spans if span.end is End.PREEMPTION}
    return History((Source(name, "made here", tally(spans, places), spans),))


def ended(failures: int, hours: float, end: End = End.FAILURE) -> History:
    """So many equal executions that ended so, one after the other, and hours in all."""
    each = hours * HOUR / max(1, failures)
    how = end if failures else End.CENSORED
    return history(*(Span(i * each, (i + 1) * each, end=how) for i in range(max(1, failures))))


def test_a_stated_value_wins_and_has_no_interval() -> None:
    found = mtbf.estimate(6.0, ended(3, 100), 50.0)
    assert (found.value_s, found.low_s, found.high_s) == (6 * HOUR, None, None)
    assert found.source == "stated in the config (planner.mtbf_h)"


def test_own_failures_win_over_the_default() -> None:
    found = mtbf.estimate(None, ended(2, 1000), None)
    assert found.value_s == pytest.approx(400 * HOUR)
    assert found.low_s == pytest.approx(181 * HOUR, rel=0.01)
    assert found.source == "2 failures in 1e+03 node h of the run's attempts"
    assert found.is_known


def test_a_profile_is_worth_one_failure() -> None:
    found = mtbf.estimate(None, ended(1, 100), 50.0)
    assert found.value_s == pytest.approx((50 + 100) / 2 * HOUR)
    assert found.source.endswith(", and the profile's value")
    alone = mtbf.estimate(None, History(), 50.0)
    assert alone.value_s == pytest.approx(50 * HOUR)
    assert alone.source == "stated in the profile"
    assert alone.low_s is not None and alone.high_s is not None
    assert alone.low_s < alone.value_s < alone.high_s


def test_both_sources_are_added_up_and_named() -> None:
    own = Source("attempts", "", tally((Span(0, HOUR, end=End.FAILURE),), ()))
    past = Source("accounting", "", tally((Span(0, 99 * HOUR, end=End.FAILURE),), ()))
    found = mtbf.estimate(None, History((past, own)), None)
    assert found.value_s == pytest.approx(100 * HOUR / 2.5)
    assert found.source == "2 failures in 100 node h of Slurm's accounting and the run's attempts"


def test_nothing_known_is_a_default_that_says_so() -> None:
    found = mtbf.estimate(None, History(), None)
    assert (found.value_s, found.source, found.is_known) == (mtbf.DEFAULT_MTBF_S, "default", False)
    assert found.low_s is not None and found.high_s is not None


def test_a_little_quiet_time_is_a_bound_and_no_knowledge() -> None:
    found = mtbf.estimate(None, ended(0, 3), None)
    assert (found.value_s, found.is_known) == (mtbf.DEFAULT_MTBF_S, False)
    assert found.bound_s == pytest.approx(zero_failure_bound(3 * HOUR))
    assert found.source == (
        "default; 0 failures in 3 node h of the run's attempts bound it to at least 1 h (95 %)"
    )


def test_much_quiet_time_is_knowledge_and_not_infinity() -> None:
    found = mtbf.estimate(None, ended(0, 1000), None)
    assert found.is_known
    assert found.value_s == pytest.approx(2000 * HOUR)
    assert found.low_s == pytest.approx(521 * HOUR, rel=0.01)
    assert found.high_s == pytest.approx(508629 * HOUR, rel=1e-3)
    assert found.bound_s == pytest.approx(333.8 * HOUR, rel=1e-3)


def test_quiet_time_beside_a_stated_value() -> None:
    found = mtbf.estimate(None, ended(0, 150), 50.0)
    assert found.value_s == pytest.approx(200 * HOUR)


def test_a_job_of_more_nodes_fails_more_often_and_says_what_is_assumed() -> None:
    spans = [Span(0, 10 * HOUR, nodes=16, end=End.FAILURE) for _ in range(3)]
    small = mtbf.estimate(None, history(*spans), None, nodes=1)
    same = mtbf.estimate(None, history(*spans), None, nodes=16)
    large = mtbf.estimate(None, history(*spans), None, nodes=64)
    assert small.value_s > same.value_s > large.value_s
    assert same.value_s == pytest.approx(30 * HOUR / 3.5)
    assert "3 failures do not tell whether failures grow with the nodes" in small.notes[0]
    assert same.notes == ()
    assert small.share == pytest.approx(0.5)


def test_an_old_bad_month_does_not_decide_for_ever() -> None:
    bad = [Span(i * HOUR, i * HOUR + HOUR, end=End.FAILURE) for i in range(60)]
    quiet = [Span((30 + i) * DAY, (31 + i) * DAY) for i in range(90)]
    whole = mtbf.estimate(None, history(*bad, *quiet), None)
    window = mtbf.estimate(None, history(*clip((*bad, *quiet), 30 * DAY)), None)
    assert whole.value_s < 2 * DAY
    assert window.value_s == pytest.approx(180 * DAY)


def one_by_one(gaps_s: list[float]) -> History:
    """A machine that is always busy and fails after such gaps."""
    ends = np.cumsum(gaps_s)
    starts = [0.0, *ends[:-1]]
    pairs = zip(starts, ends, strict=True)
    return history(*(Span(float(a), float(b), end=End.FAILURE) for a, b in pairs))


def test_bursts_are_reported_and_widen_the_interval() -> None:
    even = mtbf.estimate(None, one_by_one([HOUR] * 12), None)
    burst = mtbf.estimate(None, one_by_one([0.01 * HOUR] * 9 + [3.97 * HOUR] * 3), None)
    assert even.value_s == pytest.approx(burst.value_s)
    assert (even.c2, burst.c2) == (pytest.approx(0.0, abs=1e-9), pytest.approx(3.2, abs=0.1))
    assert even.low_s and even.high_s and burst.low_s and burst.high_s
    assert burst.low_s < 0.8 * even.low_s
    assert burst.high_s > 1.5 * even.high_s
    assert burst.shape is None  # too few


def test_the_shape_of_the_gaps_with_many_failures() -> None:
    gaps_s = [float(x) for x in HOUR * np.random.default_rng(2).weibull(0.6, 400)]
    found = mtbf.estimate(None, one_by_one(gaps_s), None)
    assert found.shape == pytest.approx(0.6, abs=0.06)
    assert found.c2 is not None and found.c2 > 2


def preempted_s(known: History, stated_h: float | None) -> float:
    found = mtbf.estimate_preemption(known, stated_h)
    assert found is not None
    return found.value_s


def test_preemptions_are_apart() -> None:
    assert mtbf.estimate_preemption(History(), None) is None
    assert preempted_s(History(), 4.0) == pytest.approx(4 * HOUR)
    seen = ended(2, 1000, End.PREEMPTION)
    assert preempted_s(seen, None) == pytest.approx(400 * HOUR)
    assert preempted_s(ended(1, 4, End.PREEMPTION), 4.0) == pytest.approx(4 * HOUR)
    failures = mtbf.estimate(None, seen, None)
    assert failures.failures == 0 and failures.value_s == pytest.approx(2000 * HOUR)
    assert mtbf.estimate_preemption(ended(5, 10), None) is None


def test_only_where_somebody_was_preempted_is_one_at_risk_of_it() -> None:
    spans = (
        Span(0, 10 * HOUR, end=End.PREEMPTION, place="spare/low"),
        Span(0, 30 * HOUR, nodes=7, place="spare/low"),
        Span(0, 1000 * HOUR, place="main/normal"),
    )
    found = mtbf.estimate_preemption(history(*spans, name="accounting"), None)
    assert found is not None
    assert found.value_s == pytest.approx(40 * HOUR / 1.5)
    assert found.low_s is not None and found.high_s is not None
    assert found.low_s < found.value_s < found.high_s
    assert found.source == "1 preemption in 40 h of Slurm's accounting"


def test_a_run_that_does_not_give_way_hears_of_its_own_preemptions_alone() -> None:
    """Preemptions in somebody else's partition are no hazard of on-demand nodes."""
    gone = Span(0, 10 * HOUR, end=End.PREEMPTION, place="spare/low")
    past = Source("accounting", "", tally((gone,), {"spare/low"}), (gone,))
    quiet = Source("attempts", "", tally((Span(0, HOUR),), ()), (Span(0, HOUR),))
    known = History((past, quiet))
    assert mtbf.estimate_preemption(known, None, is_exposed=False) is None
    assert preempted_s(known, None) == pytest.approx(10 * HOUR / 1.5)
    own = Span(0, HOUR, end=End.PREEMPTION)
    told = History((past, Source("attempts", "", tally((own,), {""}), (own,))))
    found = mtbf.estimate_preemption(told, None, is_exposed=False)
    assert found is not None
    assert found.value_s == pytest.approx(HOUR / 1.5)


def test_the_partition_or_qos_of_a_run_tells_whether_it_gives_way() -> None:
    known = history(Span(0, HOUR, end=End.PREEMPTION, place="spare/low"))
    assert gives_way(known, "spare", None) and gives_way(known, None, "low")
    assert not gives_way(known, "main", "normal") and not gives_way(known, None, None)
    assert not gives_way(history(Span(0, HOUR, place="spare/low")), "spare", "low")
