"""Datasets that come with scikit-learn, without files or downloads."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from fallow.core.optional import import_optional
from fallow.data.dataset import Dataset
from fallow.data.partition.holdout import hold_out
from fallow.data.tables import standardize

DIGITS_MEAN = 0.3053  # of all pixels / 16
DIGITS_STD = 0.3760

Reader = Callable[[Path | None], Dataset]


def bundled_reader(name: str) -> Reader:
    """Return a reader of scikit-learn's ``load_<name>``; the 20 % test set is fixed by the
    name.
    """

    def read(folder: Path | None) -> Dataset:
        sets = import_optional("sklearn.datasets", "scikit-learn", f"the data set {name}")
        table = getattr(sets, f"load_{name}")()
        x = torch.from_numpy(np.ascontiguousarray(table.data, dtype=np.float32))
        columns = tuple(str(column) for column in table.feature_names)
        if "target_names" in table:
            classes = tuple(str(c) for c in table.target_names)
            y = table.target.astype(np.int64)
        else:
            classes = ()
            y = table.target.astype(np.float32)
        if name == "digits":
            x = ((x / 16 - DIGITS_MEAN) / DIGITS_STD).reshape(-1, 1, 8, 8)
            columns = ()
        train, test = hold_out(name, x, y)
        dataset = Dataset(
            name=name,
            x=x[train],
            y=torch.from_numpy(y[train]),
            x_test=x[test],
            y_test=torch.from_numpy(y[test]),
            classes=classes,
            columns=columns,
        )
        if classes and x.ndim == 2:  # not for regression
            return standardize(dataset)
        return dataset

    return read
