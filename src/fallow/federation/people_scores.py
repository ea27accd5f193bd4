"""Counts of test rows that may leave a site: none that is over too few people."""

from __future__ import annotations

import torch
from torch import Tensor

from fallow.core.types import Answer


def count_hits(guess: Tensor, true: Tensor, classes: int, least: int) -> Answer:
    """Rows and hits, in all and by class.  guess, true: (m,) class ids.

    Nothing is told of fewer than ``least`` rows, nor of a class with fewer.  What is left out is no
    remainder that tells it after all: where the classes that are left out have fewer rows together,
    the smallest of the others is left out too.

    >>> y = torch.tensor([0] * 9 + [1] * 6 + [2] * 2)
    >>> told = count_hits(y, y, 3, 5)
    >>> told["rows"], told["class_rows"].tolist()
    (17.0, [9.0, 0.0, 0.0])
    """
    rows = torch.bincount(true, minlength=classes).double()
    hits = torch.bincount(true[guess == true], minlength=classes).double()
    output = choose_classes(rows, least)
    n_rows = 0.0
    n_hits = 0.0
    if len(true) >= least:
        n_rows = float(rows.sum())
        n_hits = float(hits.sum())
    return {
        "rows": n_rows,
        "hits": n_hits,
        "class_rows": torch.where(output, rows, 0.0),
        "class_hits": torch.where(output, hits, 0.0),
    }


def choose_classes(rows: Tensor, least: int) -> Tensor:
    """The classes of which counts may be told, (C,) booleans.  rows: (C,)"""
    output = rows >= least
    while bool(output.any()) and 0 < float(rows[~output].sum()) < least:
        output[rows.masked_fill(~output, torch.inf).argmin()] = False
    return output
