"""Sums of float64 numbers without rounding, so that no grouping of the addends changes a total.

A number is written in digits of 32 bits, each in an int64 of its own, at the places that its size
takes.  Adding whole numbers rounds nothing: whoever adds whichever part first, the digits are the
same, and only the total is rounded, once.  (Kulisch's long accumulator, of which only the places
that occur are kept.)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch
from torch import Tensor

DIGIT = 32  # bits
MASK = (1 << DIGIT) - 1
MANTISSA = 53  # bits of a float64
LARGEST = 1e300
"""The largest absolute value of an addend: what carries over needs room above."""
BLOCK = 1 << 20  # numbers that are written in digits at a time

Digits = dict[int, Tensor]
"""By place p what stands there, in units of 2^(32 p), int64.  A place takes 2^30 addends before
an int64 is full."""


def write_in_digits(values: Tensor) -> Digits:
    """The exact sum of ``values`` over their first axis.

    values: (n, *shape) float64, each of them `LARGEST` at most.  Returns digits of (*shape).

    >>> digits = write_in_digits(torch.tensor([1e16, 1.0, -1e16], dtype=torch.float64))
    >>> float(round_total(digits, ()))
    1.0
    """
    per_block = max(1, BLOCK // max(1, values[:1].numel()))
    blocks = []
    for begin in range(0, len(values), per_block):
        blocks.append(_write_block(values[begin : begin + per_block]))
    return add_digits(blocks)


def _write_block(values: Tensor) -> Digits:
    fraction, exponent = torch.frexp(values)
    whole = (fraction * 2.0**MANTISSA).long()  # |whole| <= 2^53, exact
    lowest = exponent.long() - MANTISSA  # values = whole * 2^lowest
    places = lowest >> 5  # rounded down: lowest = 32 places + shift
    shift = lowest - (places << 5)  # 0 ... 31

    # whole * 2^shift has 84 bits, so its halves are shifted one by one
    low = (whole & MASK) << shift  # below 2^63
    high = (whole >> DIGIT) << shift  # below 2^53, with the sign
    pieces = (
        (0, low & MASK),
        (1, low >> DIGIT),
        (1, high & MASK),
        (2, high >> DIGIT),
    )
    nothing = torch.zeros((), dtype=torch.int64)
    digits: Digits = {}
    used = places[whole != 0]
    if not used.numel():
        return digits
    for place in range(int(used.min()), int(used.max()) + 1):
        is_here = places == place
        if not bool(is_here.any()):
            continue
        for offset, piece in pieces:
            added = torch.where(is_here, piece, nothing).sum(0)
            digits[place + offset] = digits.get(place + offset, nothing) + added
    return digits


def add_digits(parts: Iterable[Digits]) -> Digits:
    """The sum of sums, without rounding: in any order and grouping the same."""
    total: Digits = {}
    for digits in parts:
        for place, added in digits.items():
            if place in total:
                added = total[place] + added
            total[place] = added
    return total


def round_total(digits: Digits, shape: tuple[int, ...]) -> Tensor:
    """The float64 nearest to the total, or its neighbour; (*shape).

    It depends on the total alone.  A total that a float64 can hold is returned as it is.
    """
    total = torch.zeros(shape, dtype=torch.float64)
    left_over = torch.zeros(shape, dtype=torch.float64)
    for place, digit in _carry(digits, shape):
        # in two steps, because 2^(32 place) may be below what a float64 holds
        half_unit = 2.0 ** (DIGIT // 2 * place)
        addend = digit.double() * half_unit * half_unit
        # from the lowest place up; what a step rounds off is kept beside (Knuth's two-sum)
        rounded = total + addend
        of_addend = rounded - total
        left_over += (total - (rounded - of_addend)) + (addend - of_addend)
        total = rounded
    return total + left_over


def _carry(digits: Digits, shape: tuple[int, ...]) -> Iterator[tuple[int, Tensor]]:
    """Places from the lowest to the highest with digits from -2^31 up to, not with, 2^31: there is
    one such way to write a number, and its first digit outweighs all that follow."""
    if not digits:
        return
    half = 1 << (DIGIT - 1)
    nothing = torch.zeros(shape, dtype=torch.int64)
    carried = nothing
    place = min(digits)
    while place <= max(digits) or bool(carried.any()):
        value = digits.get(place, nothing) + carried
        digit = ((value + half) & MASK) - half
        carried = (value - digit) >> DIGIT
        yield place, digit
        place += 1
