"""Columns that alone predict the label, which often were written after it was known."""

from __future__ import annotations

from collections.abc import Sequence
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
"""Largest share of the most frequent class for which that tells something."""
PER_PART = 5  # minimum number of rows for each value or range of values
CORRELATED = 0.9995
"""Correlation from which a number predicts a regression target almost perfectly."""
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
            predicts = is_class and _predict_class(parts, targets)
        elif is_class:
            predicts = _predict_class(_split_numbers(x[rows, index_of[read.name]]), targets)
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


def _predict_class(parts: npt.NDArray[Any], y: npt.NDArray[Any]) -> bool:
    """Return whether the most frequent class of each part is nearly always right."""
    counts = np.zeros((int(parts.max()) + 1, int(y.max()) + 1), dtype=np.int64)
    np.add.at(counts, (parts.astype(np.int64), y), 1)
    n_used = int((counts.sum(1) > 0).sum())
    if len(y) < PER_PART * n_used or counts.sum(0).max() > COMMON * len(y):
        return False
    return bool(counts.max(1).sum() >= ALMOST * len(y))


def _predict_number(values: Floats, y: npt.NDArray[Any]) -> bool:
    """Return whether targets are a linear function of a number."""
    known = ~np.isnan(values)
    if known.sum() < ENOUGH:
        return False
    numbers = values[known].astype(np.float64)
    targets = y[known].astype(np.float64)
    away = numbers - numbers.mean()
    wanted = targets - targets.mean()
    scale = float(np.sqrt((away @ away) * (wanted @ wanted)))
    return scale > 0 and abs(float(away @ wanted)) >= CORRELATED * scale
