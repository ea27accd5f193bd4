"""Columns that alone predict the label, which often were written after it was known."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from fallow.core.wording import join_some
from fallow.data.reading import ColumnRead, Finding

ENOUGH = 20  # minimum number of labeled rows
SAMPLED = 4000  # maximum number of labeled rows that are looked at
ALMOST = 0.98
"""Share of labels that a column predicts almost perfectly."""
COMMON = 0.9
"""Share of the most frequent class beyond which only the other rows tell something."""
PER_PART = 5  # minimum number of rows for each value or range of values
CORRELATED = 0.9995
"""Correlation from which a number predicts a regression target almost perfectly."""
FEWEST_LEVELS = 3  # minimum number of levels that are ranges of a regression target
Floats = npt.NDArray[np.float32]


def find_giveaways(
    x: Floats, names: Sequence[str], reads: Sequence[ColumnRead], y: npt.NDArray[Any]
) -> list[Finding]:
    """Return a warning for columns that alone predict the label almost perfectly.

    x: (n, d) features called ``names``.  reads: declarations of the columns.  y: (n,) class ids,
    -1 for unlabeled, or targets with NaN.
    """
    is_class = y.dtype.kind == "i"
    is_labeled = y >= 0 if is_class else ~np.isnan(y)
    labeled = np.flatnonzero(is_labeled)
    if len(labeled) < ENOUGH:
        return []
    rows = labeled[:: -(-len(labeled) // SAMPLED)]
    targets = y[rows]
    index_of = {name: index for index, name in enumerate(names)}
    predicting: list[str] = []
    for read in reads:
        if not read.is_feature or read.kind == "text":
            continue
        if read.kind == "category":
            first = index_of[f"{read.name}={read.values[0]}"]
            parts = _split_levels(x[rows, first : first + len(read.values)])
            predict = _predict_class if is_class else _predict_ranges
            predicts = predict(parts, targets)
        elif is_class:
            values = x[rows, index_of[read.name]]
            predicts = _predict_class(_split_numbers(values), targets) or _predict_class(
                _split_around_rare(values, targets), targets
            )
        else:
            predicts = _predict_number(x[rows, index_of[read.name]], targets)
        if predicts:
            predicting.append(repr(read.name))
    if not predicting:
        return []
    subject = f"column {predicting[0]} alone predicts"
    if len(predicting) > 1:
        subject = f"columns {join_some(predicting)} alone predict"
    return [
        Finding(
            "warning",
            f"{subject} the label almost perfectly; check that it was known before the label",
            f"drop=[{predicting[0]}]",
            is_doubtful=True,
        )
    ]


def _split_levels(block: Floats) -> npt.NDArray[np.int64]:
    """Return the level of each row of one-hot features, and a further one for empty cells."""
    levels: npt.NDArray[np.int64] = block.argmax(1)
    levels[np.isnan(block[:, 0])] = block.shape[1]
    return levels


def _split_numbers(values: Floats) -> npt.NDArray[np.int64]:
    """Return the range of each number: (n,), equal numbers in the same range."""
    n_parts = max(2, min(20, len(values) // PER_PART))
    cuts = np.unique(np.nanquantile(values, np.linspace(0, 1, n_parts + 1)[1:-1]))
    parts = np.searchsorted(cuts, values, side="left")
    parts[np.isnan(values)] = len(cuts) + 1
    return parts.astype(np.int64)


def _split_around_rare(values: Floats, y: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Return whether each number is below, in or above the range of the rare classes: (n,).

    All are in one part if no class is as frequent as `COMMON`.
    """
    counts = np.bincount(y)
    known = values[(y != counts.argmax()) & ~np.isnan(values)]
    parts = np.zeros(len(values), dtype=np.int64)
    if counts.max() <= COMMON * len(y) or not len(known):
        return parts
    parts[values >= known.min()] = 1
    parts[values > known.max()] = 2
    parts[np.isnan(values)] = 3
    return parts


def _predict_class(parts: npt.NDArray[Any], y: npt.NDArray[Any]) -> bool:
    """Return whether the most frequent class of each part is nearly always right.

    If one class is very frequent, the errors count as a share of the rows of the others.
    """
    counts = np.zeros((int(parts.max()) + 1, int(y.max()) + 1), dtype=np.int64)
    np.add.at(counts, (parts.astype(np.int64), y), 1)
    n_used = int((counts.sum(1) > 0).sum())
    if len(y) < PER_PART * n_used:
        return False
    n_rare = len(y) - int(counts.sum(0).max())
    wrong = len(y) - int(counts.max(1).sum())
    if n_rare < (1 - COMMON) * len(y):
        return n_rare >= PER_PART and wrong <= (1 - ALMOST) * n_rare
    return wrong <= (1 - ALMOST) * len(y)


def _predict_ranges(parts: npt.NDArray[Any], y: npt.NDArray[Any]) -> bool:
    """Return whether the levels of a category are ranges of the target, which do not overlap."""
    ranges: list[tuple[float, float]] = []
    n_used = 0
    for level in np.unique(parts):
        targets = y[parts == level]
        if len(targets) >= PER_PART:
            n_used += len(targets)
            ranges.append((float(targets.min()), float(targets.max())))
    if len(ranges) < FEWEST_LEVELS or n_used < COMMON * len(y):
        return False
    ranges.sort()
    return all(below[1] < above[0] for below, above in pairwise(ranges))


def _predict_number(values: Floats, y: npt.NDArray[Any]) -> bool:
    """Return whether targets are a linear function of a number, or grow or fall with it."""
    known = ~np.isnan(values)
    if known.sum() < ENOUGH:
        return False
    numbers = values[known].astype(np.float64)
    targets = y[known].astype(np.float64)
    return _are_correlated(numbers, targets) or _are_correlated(
        _rank(numbers), _rank(targets)
    )


def _rank(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return the mean rank of each number among all, as for Spearman's correlation: (n,)."""
    _, order, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    ranks: npt.NDArray[np.float64] = (last - (counts - 1) / 2)[order]
    return ranks


def _are_correlated(
    numbers: npt.NDArray[np.float64], targets: npt.NDArray[np.float64]
) -> bool:
    away = numbers - numbers.mean()
    wanted = targets - targets.mean()
    scale = float(np.sqrt((away @ away) * (wanted @ wanted)))
    return scale > 0 and abs(float(away @ wanted)) >= CORRELATED * scale
