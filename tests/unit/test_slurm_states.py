"""Every spelling of a state, and what follows from it."""

import pytest

from milepost.slurm.states import ACTIVE, BUSY_FLAGS, TERMINAL, WAITING_FLAGS, parse_state


@pytest.mark.parametrize(
    ("text", "base"),
    [
        ("PENDING", "PENDING"),
        ("PD", "PENDING"),
        ("R", "RUNNING"),
        ("CD", "COMPLETED"),
        ("CA", "CANCELLED"),
        ("F", "FAILED"),
        ("TO", "TIMEOUT"),
        ("NF", "NODE_FAIL"),
        ("PR", "PREEMPTED"),
        ("OOM", "OUT_OF_MEMORY"),
        ("DL", "DEADLINE"),
        ("BF", "BOOT_FAIL"),
        ("S", "SUSPENDED"),
        ("completed", "COMPLETED"),
        ("COMPLETED+", "COMPLETED"),
        ("OUT_OF_ME+", "OUT_OF_MEMORY"),
        ("CANCELLED+", "CANCELLED"),
    ],
)
def test_words(text: str, base: str) -> None:
    assert parse_state(text).base == base


def test_who_cancelled() -> None:
    assert parse_state("CANCELLED by 1000").cancelled_by == 1000
    assert parse_state("CANCELLED by 0").cancelled_by == 0
    assert parse_state("CANCELLED by 10+").cancelled_by is None
    assert parse_state("CANCELLED").cancelled_by is None
    assert parse_state("CANCELLED by 1000").base == "CANCELLED"


@pytest.mark.parametrize("base", sorted(TERMINAL))
def test_ended(base: str) -> None:
    state = parse_state(base)
    assert state.is_terminal
    assert not state.is_waiting
    assert not state.is_busy
    assert state.is_success is (base == "COMPLETED")


@pytest.mark.parametrize("base", sorted(ACTIVE))
def test_not_ended(base: str) -> None:
    state = parse_state(base)
    assert not state.is_terminal
    assert state.is_waiting is (base == "PENDING")
    assert state.is_busy is (base != "PENDING")


@pytest.mark.parametrize("base", sorted(TERMINAL))
@pytest.mark.parametrize("flag", sorted(BUSY_FLAGS | WAITING_FLAGS | {"REVOKED"}))
def test_a_flag_keeps_an_end_from_counting(base: str, flag: str) -> None:
    state = parse_state([base, flag])
    assert state.base == base
    assert not state.is_terminal
    assert not state.is_success


def test_completing_alone_is_busy_and_never_success() -> None:
    for text in ("COMPLETING", "CG"):
        state = parse_state(text)
        assert (state.base, state.is_busy, state.is_terminal) == (None, True, False)
        assert not state.is_success


def test_a_preempted_job_on_its_way_back_waits() -> None:
    assert parse_state(["PREEMPTED", "REQUEUED"]).is_waiting
    assert parse_state("RQ").is_waiting
    assert parse_state("SPECIAL_EXIT").is_waiting
    assert parse_state(["PENDING", "COMPLETING"]).is_busy


def test_a_word_of_a_later_slurm_says_nothing() -> None:
    state = parse_state("HIBERNATING")
    assert state.base is None
    assert not (state.is_terminal or state.is_busy or state.is_waiting or state.is_success)
    assert str(state) == "HIBERNATING"
    assert str(parse_state(["COMPLETED", "COMPLETING"])) == "COMPLETED+COMPLETING"


def test_a_cut_word_that_fits_two_states_is_not_guessed() -> None:
    assert parse_state("RE+").base is None
    assert parse_state("COMPLET+").base is None
