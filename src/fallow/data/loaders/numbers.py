"""Rules on the numbers of one column: offsets, row counters and codes for missing values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from fallow.core.wording import count_noun, join_words
from fallow.data.reading import Finding

Numbers = npt.NDArray[np.float64]
PRECISION = 2.0**-24
"""Relative rounding error of float32."""
LOST = 1e-4
"""Largest rounding error, in standard deviations, that changes nothing."""
MANY = 100
"""Smallest number of rows in which a row counter is recognized by its numbers alone."""
MOST_STEP = 100
"""Largest step of a counter, such as 10, 20, 30; a larger one may be a measurement."""
GAPS = 4
"""A counter of which more than one row in so many is left is still a counter."""
MANY_VALUES = 10
"""Smallest number of other numbers beside which -1 may mean a missing value."""
FAR_FROM_ZERO = 0.15
"""Smallest number, as a share of the largest one, beside which 0 may mean a missing value."""
MANY_GAPS = 5
"""Smallest number in usual gaps between numbers, beside which 0 may mean a missing value."""
SMALLEST = float(np.finfo(np.float32).tiny)
"""Smallest number that float32 has with all digits; below 1e-45 it has only 0."""
SURVEYED = (9, 77, 88, 97, 98, 99, 777, 888, 997, 998, 999, 7777, 8888, 9999, 99999, 999999)
MEASURED = (-1, -7, -8, -200, -99.9, -999.9, 999.9, -9999.9, 9999.9, -999.25, -9999.25)
STORED = (1e20, 1e30, 9.96921e36, -32768, 32767, 65535, -(2**31), 2**31 - 1, 2**32 - 1)
SENTINELS = frozenset((*SURVEYED, *(-number for number in SURVEYED), *MEASURED, *STORED))
"""Numbers that questionnaires, devices and databases write for a missing value."""
FEWEST_ONCE = 100
"""Smallest magnitude of a code that may mean a missing value although it occurs once."""


def count_too_small(values: Numbers) -> int:
    """Count the numbers other than 0 that are below those float32 has with all digits.

    >>> count_too_small(np.array([1e-50, 0.0, 1e-30]))
    1
    """
    n_small = np.count_nonzero(np.abs(values) < SMALLEST)
    if n_small:
        n_small -= np.count_nonzero(values == 0)
    return int(n_small)


def choose_offset(values: Numbers, low: float, high: float) -> float:
    """Return the number to subtract so that float32 keeps the differences; 0 if it does.

    It is round, so that it tells nothing about a single row.  values: (n,) without NaN, from
    ``low`` to ``high``.

    >>> seconds = np.array([1_700_000_000.0, 1_700_000_600.0])
    >>> choose_offset(seconds, *seconds)
    1700000300.0
    >>> choose_offset(seconds - 1_700_000_000, 0.0, 600.0)
    0.0
    """
    largest = max(abs(low), abs(high))
    span = high - low
    if not math.isfinite(span) or span <= 0 or span > 0.1 * largest:
        return 0.0
    if PRECISION * largest <= LOST * float(values.std(dtype=np.float64)):
        return 0.0
    unit = 10.0 ** math.floor(math.log10(span))
    middle = low + span / 2
    return round(middle / unit) * unit


def choose_offsets(x: npt.NDArray[Any]) -> tuple[float, ...]:
    """Return the offset of each column: x (n, d) -> d numbers, or () if all are 0."""
    if x.ndim != 2 or not len(x) or x.dtype.kind not in "iuf" or x.dtype.itemsize < 8:
        return ()
    low = x.min(0).astype(np.float64)
    high = x.max(0).astype(np.float64)
    offsets = np.zeros(x.shape[1])
    with np.errstate(invalid="ignore"):  # infinite numbers are refused later
        is_narrow = (high - low) <= 0.1 * np.maximum(np.abs(low), np.abs(high))
    for column in np.flatnonzero(is_narrow & (low < high)):
        values = x[:, column].astype(np.float64)
        offsets[column] = choose_offset(values, float(low[column]), float(high[column]))
    return tuple(offsets.tolist()) if offsets.any() else ()


def subtract_offsets(x: npt.NDArray[Any], offsets: Sequence[float]) -> npt.NDArray[Any]:
    """Return features (n, d) without the offset of each column.

    Columns of which it was subtracted before, such as those of `Dataset.x`, are unchanged: numbers
    are far from 0 before, and near 0 after.

    >>> subtract_offsets(np.array([[1_700_000_005.0, 3.0]]), (1.7e9, 0.0)).tolist()
    [[5.0, 3.0]]
    """
    if not any(offsets) or x.ndim != 2 or x.shape[1] != len(offsets) or not len(x):
        return x
    shift = np.array(offsets, dtype=np.float64)
    with np.errstate(invalid="ignore"):
        middle = np.nanmedian(x.astype(np.float64), axis=0)
        is_raw = np.abs(middle - shift) < np.abs(middle)
    return x.astype(np.float64) - np.where(is_raw, shift, 0.0)


def find_step(values: Numbers) -> float | None:
    """Return the number by which whole numbers grow in each row, or None.

    >>> find_step(np.array([20.0, 30.0, 40.0])), find_step(np.array([1.0, 2.0, 4.0]))
    (10.0, None)
    """
    step = float(values[1] - values[0])
    if step == 0 or not bool((np.diff(values) == step).all()):
        return None
    return abs(step)


def counts_rows(values: Numbers) -> bool:
    """Return whether numbers count rows: in order, sorted otherwise, or after a filter.

    They are whole, all different, and not much larger than the number of rows; or the lines are
    numbered in tens.

    >>> rows = np.arange(200.0)
    >>> (
    ...     counts_rows(rows),
    ...     counts_rows(rows[::-1]),
    ...     counts_rows(rows[rows % 3 > 0]),
    ...     counts_rows(rows % 7),
    ... )
    (True, True, True, False)
    """
    n = len(values)
    if n < MANY:
        return False
    low = values.min()
    step = find_step(values)
    if step is not None and step <= MOST_STEP and low in (0, step):
        return True
    if low < 0 or low > GAPS * n or values.max() >= GAPS * n:
        return False
    counts = np.bincount(values.astype(np.int64))
    return bool(counts.max() == 1)


def warn_of_sentinels(what: str, values: Numbers) -> list[Finding]:
    """Return a warning of numbers that may stand for missing values, if there are any.

    what: of which column or labels.  values: (n,) without NaN.
    """
    codes = find_sentinels(values)
    if not codes:
        return []
    listed = join_words(
        [f"{number:.10g} in {count_noun(times, 'cell')}" for number, times in codes]
    )
    are = "is" if len(codes) == 1 else "are"
    sentence = (
        f"{what}: {listed} {are} far outside the other numbers and may mean a missing value"
    )
    may_be_none = all(number == 0 or times == 1 for number, times in codes)
    return [
        Finding("warning", sentence, "leave these cells empty", is_doubtful=may_be_none)
    ]


def find_sentinels(values: Numbers) -> list[tuple[float, int]]:
    """Return the numbers that stand for missing values, and how often each occurs.

    Their distance from the other numbers exceeds the range of these, or they alone are negative.
    A code below 100 occurs at least twice.

    >>> find_sentinels(np.array([3.0, 5.0, 4.5, 999.0, 999.0, 888.0, 888.0]))
    [(999.0, 2), (888.0, 2)]
    """
    codes: list[tuple[float, int]] = []
    others = values
    while len(others):
        code = next(filter(_is_code, (others.max(), others.min())), None)
        if code is None:
            break
        fewer = others[others != code]
        codes.append((float(code), len(others) - len(fewer)))
        others = fewer
    if not codes or not len(others):
        return _find_zero(values)
    low = float(others.min())
    high = float(others.max())
    distinct = len(np.unique(others))
    has_many = distinct >= MANY_VALUES
    outside: list[tuple[float, int]] = []
    for number, times in codes:
        away = max(low - number, number - high)
        is_often = times > 1 or (has_many and abs(number) >= FEWEST_ONCE)
        is_far = away > high - low and (has_many or (distinct > 1 and number != -1))
        is_only_negative = number < 0 <= low and has_many and away > 0.1 * (high - low)
        if is_often and (is_far or is_only_negative):
            outside.append((number, times))
    return outside or _find_zero(values)


def _is_code(number: float) -> bool:
    """Return whether a number is a code, also with the digits of float32."""
    return number in SENTINELS or float(f"{number:.6g}") in SENTINELS


def _find_zero(values: Numbers) -> list[tuple[float, int]]:
    """Return 0 and how often it occurs, if it is far below all other numbers.

    The other numbers are positive, as a blood pressure is, and the gap below the smallest one is
    much larger than those between them.

    >>> _find_zero(np.array([0.0, 0.0, *range(60, 120)]))
    [(0.0, 2)]
    >>> _find_zero(np.array([0.0, 0.0, *range(1, 9)]))
    []
    """
    if not len(values) or values.min() != 0:
        return []
    others = np.unique(values[values > 0])
    times = int((values == 0).sum())
    if times < 2 or len(others) < MANY_VALUES:
        return []
    low = float(others[0])
    is_far = low > FAR_FROM_ZERO * float(others[-1])
    if not is_far or low <= MANY_GAPS * float(np.median(np.diff(others))):
        return []
    return [(0.0, times)]
