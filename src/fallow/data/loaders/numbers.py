"""Rules on the numbers of one column: offsets, row counters and codes for missing values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

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
SENTINELS = frozenset(
    sign * number
    for sign in (1, -1)
    for number in (9, 77, 88, 99, 777, 888, 999, 7777, 8888, 9999, 99999, 999999)
) | {-1.0, -200.0, 1e20}
"""Numbers that questionnaires, devices and databases write for a missing value."""


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


def find_sentinel(values: Numbers) -> tuple[float, int] | None:
    """Return a number that stands for a missing value, and how often; None without one.

    It occurs at least twice, and its distance from the other numbers exceeds their range.

    >>> find_sentinel(np.array([3.0, 5.0, 4.5, 999.0, 999.0]))
    (999.0, 2)
    """
    for end in (values.max(), values.min()):
        if float(end) not in SENTINELS:
            continue
        others = values[values != end]
        times = len(values) - len(others)
        n_others = len(np.unique(others))
        if times < 2 or n_others < 2 or (end == -1 and n_others < MANY_VALUES):
            continue
        low = others.min()
        high = others.max()
        away = max(low - end, end - high)
        if away > high - low or (end == -1 and low >= 0 and away > 0.1 * (high - low)):
            return float(end), times
    return _find_zero(values)


def _find_zero(values: Numbers) -> tuple[float, int] | None:
    """Return 0 and how often it occurs, if it is far below all other numbers.

    The other numbers are positive, as a blood pressure is, and the gap below the smallest one is
    much larger than those between them.

    >>> _find_zero(np.array([0.0, 0.0, *range(60, 120)]))
    (0.0, 2)
    >>> _find_zero(np.array([0.0, 0.0, *range(1, 9)]))
    """
    if values.min() != 0:
        return None
    others = np.unique(values[values > 0])
    times = int((values == 0).sum())
    if times < 2 or len(others) < MANY_VALUES:
        return None
    low = float(others[0])
    is_far = low > FAR_FROM_ZERO * float(others[-1])
    if not is_far or low <= MANY_GAPS * float(np.median(np.diff(others))):
        return None
    return 0.0, times
