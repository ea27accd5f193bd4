"""Scaling and imputation of tables, computed from training examples."""

from __future__ import annotations

import dataclasses

import numpy as np
import numpy.typing as npt
import torch

from fallow.data.dataset import Dataset

Floats = npt.NDArray[np.float32]


def standardize(dataset: Dataset) -> Dataset:
    """Scale columns to mean 0 and standard deviation 1 over the training examples.

    The test set is scaled by the same numbers. A column that is constant over the training
    examples becomes 0 in both sets. Statistics are computed in float64. Images are normalized
    by fixed constants instead.

    >>> x = torch.tensor([[1.0, 7.0], [3.0, 7.0]])
    >>> d = Dataset(
    ...     "toy",
    ...     x,
    ...     torch.tensor([0, 1]),
    ...     torch.tensor([[5.0, 9.0]]),
    ...     torch.tensor([1]),
    ...     classes=("no", "yes"),
    ... )
    >>> standardize(d).x.tolist(), standardize(d).x_test.tolist()
    ([[-1.0, 0.0], [1.0, 0.0]], [[3.0, 0.0]])
    """
    x = dataset.x.double()
    mean = x.mean(0)
    std = x.std(0, correction=0)
    # min == max instead of std == 0, because the mean of equal numbers may have a rounding
    # error
    is_constant = dataset.x.amin(0) == dataset.x.amax(0)

    def scale(rows: torch.Tensor) -> torch.Tensor:
        z = (rows.double() - mean) / std.masked_fill(is_constant, 1.0)
        return z.masked_fill(is_constant, 0.0).float()

    return dataclasses.replace(dataset, x=scale(dataset.x), x_test=scale(dataset.x_test))


def fill_missing(
    train: Floats,
    test: Floats,
    columns: tuple[str, ...],
) -> tuple[Floats, Floats, tuple[str, ...], tuple[str, ...]]:
    """Impute NaN by the median over training examples, and mark it in an indicator column.

    A column with NaN in training examples gets an indicator ``<column>_missing`` (1 for
    NaN) at the end. Returns (train, test, columns, notes). Raises ValueError for a column
    without any value.
    """
    missing = np.isnan(train)
    missing_test = np.isnan(test)
    for name in np.array(columns)[missing.all(0)]:
        raise ValueError(
            f"column {str(name)!r} has no value in any training example; omit it"
        )
    median = np.nanmedian(train, axis=0)
    marked = np.flatnonzero(missing.any(0))
    filled = np.where(missing, median, train)
    filled_test = np.where(missing_test, median, test)
    notes: tuple[str, ...] = ()
    if missing.any() or missing_test.any():
        count = int(missing.sum() + missing_test.sum())
        notes = (
            f"missing values imputed by the median of the training examples: {count}; "
            f"indicator columns added: {len(marked)}",
        )
    names = (*columns, *(f"{columns[c]}_missing" for c in marked))
    return (
        np.hstack([filled, missing[:, marked]]).astype(np.float32),
        np.hstack([filled_test, missing_test[:, marked]]).astype(np.float32),
        names,
        notes,
    )
