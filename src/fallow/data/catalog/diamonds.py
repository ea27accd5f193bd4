"""Diamonds with its three graded columns one-hot encoded."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np

from fallow.data.catalog.files import read_arrays, table_with_test_rows, to_names
from fallow.data.catalog.one_hot import one_hot
from fallow.data.dataset import Dataset

GRADED = ("cut", "color", "clarity")  # 5, 7 and 8 levels


def read_diamonds_onehot(folder: Path | None) -> Dataset:
    """Read Diamonds in 29 columns: 6 numbers, then the levels of each grade and an empty
    "missing".

    The 29 columns have rank 24, also with an intercept.  3 columns are 0, and the levels of
    each of the 3 grades sum to 1.
    """
    z = read_arrays(folder, "tab_diamonds.npz")
    header = list(to_names(z["feature_names"]))
    numbers = [column for column in header if column not in GRADED]
    at_numbers = [header.index(column) for column in numbers]
    blocks = [z["X"][:, at_numbers]]  # (n, 6), then one per grade
    names = list(numbers)
    for column in GRADED:
        codes = z["X"][:, header.index(column)].astype(np.int64)
        block, columns = one_hot(column, codes, to_names(z[f"{column}_levels"]))
        blocks.append(block)
        names += columns
    table = {"X": np.hstack(blocks), "feature_names": np.array(names)}
    diamonds_onehot = table_with_test_rows(
        "diamonds_onehot", table, z["y"], classes=(), group_names=()
    )
    note = (
        f"{', '.join(GRADED)} became {len(names) - len(numbers)} one-hot columns, of "
        "which the 3 for missing values are all 0; the 29 columns have rank 24, also "
        "with an intercept"
    )
    return dataclasses.replace(diamonds_onehot, notes=(*diamonds_onehot.notes, note))
