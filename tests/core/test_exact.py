"""Sums without rounding: whatever the order and the grouping, the same bits."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fallow.core.exact import add_digits, round_total, write_in_digits

SMALLEST = 5e-324  # of the numbers that a float64 can hold
finite = st.floats(allow_nan=False, allow_infinity=False, min_value=-1e300, max_value=1e300)


def float64(numbers: list[float]) -> torch.Tensor:
    return torch.tensor(numbers, dtype=torch.float64)


def total_of(numbers: list[float]) -> float:
    return float(round_total(write_in_digits(float64(numbers)), ()))


@given(finite)
def test_one_number_is_its_own_total(number: float) -> None:
    assert total_of([number]) == number


@pytest.mark.parametrize("number", [SMALLEST, -SMALLEST, 2.0**-1022, 1e300, 0.0, -0.0])
def test_the_smallest_and_the_largest_numbers_are_their_own_totals(number: float) -> None:
    assert total_of([number]) == number


@given(st.lists(finite, min_size=1, max_size=20))
def test_a_total_is_the_nearest_number_or_its_neighbour(numbers: list[float]) -> None:
    exact = math.fsum(numbers)  # rounded to the nearest
    assert abs(total_of(numbers) - exact) <= math.ulp(exact)


@given(st.lists(finite, min_size=2, max_size=20), st.data())
def test_no_order_and_no_grouping_changes_a_bit(
    numbers: list[float], data: st.DataObject
) -> None:
    shuffled = data.draw(st.permutations(numbers))
    cut = data.draw(st.integers(0, len(numbers)))
    parts = [write_in_digits(float64(part)) for part in (shuffled[cut:], shuffled[:cut])]
    grouped = round_total(add_digits(parts), ())
    assert float(grouped).hex() == total_of(numbers).hex()


def test_adding_one_by_one_does_change_bits_which_is_why_these_sums_are_there() -> None:
    numbers = [0.1, 0.2, 0.3]
    assert (0.1 + 0.2) + 0.3 != 0.1 + (0.2 + 0.3)
    assert total_of(numbers) == total_of(numbers[::-1]) == math.fsum(numbers)


def test_what_cancels_leaves_what_was_small() -> None:
    assert total_of([1e300, 1e-300, -1e300]) == 1e-300
    assert total_of([2.0**80, -1.0, -(2.0**80)]) == -1.0


def test_each_entry_of_an_array_is_a_sum_of_its_own_also_in_many_blocks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    draw = np.random.default_rng(0)
    values = draw.standard_normal((50, 3, 4)) * 10.0 ** draw.integers(-200, 200, (50, 3, 4))
    whole = round_total(write_in_digits(torch.from_numpy(values)), (3, 4))
    monkeypatch.setattr("fallow.core.exact.BLOCK", 30)  # two addends at a time
    in_blocks = round_total(write_in_digits(torch.from_numpy(values)), (3, 4))
    assert torch.equal(whole, in_blocks)
    for row in range(3):
        for column in range(4):
            exact = sum(map(Fraction, values[:, row, column]))
            assert abs(Fraction(float(whole[row, column])) - exact) <= Fraction(
                math.ulp(float(exact))
            )


def test_an_empty_array_has_an_empty_total() -> None:
    assert round_total(
        write_in_digits(torch.zeros(4, 0, dtype=torch.float64)), (0,)
    ).shape == (0,)
