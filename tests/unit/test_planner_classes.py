"""Shards of many sizes as few classes, with a bound of how far one is from its class."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from milepost.planner.classes import class_of, classify, worst_error

SIZES = st.lists(st.floats(1e-3, 1e6), min_size=1, max_size=80)


def test_equal_sizes_are_one_class_without_error() -> None:
    (only,) = classify([7.0] * 10_000)
    assert (only.size, only.count, only.error) == (7.0, 10_000, 0.0)


def test_few_sizes_have_a_class_each() -> None:
    found = classify([3.0, 1.0, 3.0, 2.0, 3.0])
    assert [(one.size, one.count) for one in found] == [(1.0, 1), (2.0, 1), (3.0, 3)]
    assert worst_error(found) == 0.0


def test_ten_thousand_different_sizes_are_forty_classes_within_a_stated_error() -> None:
    dice = random.Random(1)
    sizes = [50.0 ** dice.random() for _ in range(10_000)]
    found = classify(sizes)
    assert len(found) <= 40
    assert 0.0 < worst_error(found) < 0.06  # 50^(1/40) is 10.3 %, half of it to each side


@settings(max_examples=100, deadline=None)
@given(sizes=SIZES, most=st.integers(1, 12))
def test_laws(sizes: list[float], most: int) -> None:
    found = classify(sizes, most)
    assert len(found) <= most
    assert sum(one.count for one in found) == len(sizes)
    assert sum(one.size * one.count for one in found) == pytest.approx(sum(sizes))
    assert all(a.most < b.least for a, b in pairwise(found))
    error = worst_error(found)
    for size in sizes:
        one = found[class_of(found, size)]
        assert one.least <= size <= one.most
        assert abs(size / one.size - 1.0) <= error + 1e-9


def test_rounding_makes_no_further_class() -> None:
    least, most = 0.3, 0.7
    while least * (most / least) >= most:  # until the quotient is rounded down
        most += 1.0
    assert len(classify([least, (least + most) / 2, most], 1)) == 1


def test_a_size_between_two_classes_goes_to_the_nearer() -> None:
    found = classify([1.0, 10.0])
    assert [class_of(found, size) for size in (0.5, 2.0, 9.0, 99.0)] == [0, 0, 1, 1]
    assert classify([]) == []
