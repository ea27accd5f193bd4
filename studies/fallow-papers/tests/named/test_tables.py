"""Regression tables of the studies: shapes, ranks and natural sites."""

from __future__ import annotations

import os

import numpy as np
import pytest
import torch

from fallow.data import load
from tests.data.test_named import check_entry, require_files

DATA = os.environ.get("FALLOW_DATA")
needs_files = pytest.mark.skipif(
    not DATA, reason="FALLOW_DATA names no folder of data files"
)
SMALL = ("digit_angle", "wine_red", "elevators")


@needs_files
@pytest.mark.parametrize("name", SMALL)
def test_a_set_is_what_the_catalog_says(name: str) -> None:
    require_files(name)
    check_entry(name)


# columns, rank, rank with an intercept; of all examples, standardized in float64
RANKS = {
    "protein": (9, 9, 10),
    "kegg": (27, 25, 26),
    "diamonds_onehot": (29, 24, 24),
    "pol": (26, 26, 27),
}


@needs_files
@pytest.mark.parametrize("name", RANKS)
def test_a_regression_table_has_the_rank_that_is_known_of_it(name: str) -> None:
    require_files(name)
    d = load(name)
    x = torch.cat([d.x, d.x_test]).double().numpy()
    spread = x.std(0)
    z = (x - x.mean(0)) / np.where(spread > 0, spread, 1.0)
    with_ones = np.hstack([z, np.ones((len(z), 1))])
    raw = np.hstack([x, np.ones((len(x), 1))])
    columns, rank, with_intercept = RANKS[name]
    assert x.shape[1] == columns and np.linalg.matrix_rank(x) == rank
    assert np.linalg.matrix_rank(with_ones) == np.linalg.matrix_rank(raw) == with_intercept


@needs_files
def test_diamonds_has_its_grades_as_columns_of_0_and_1_with_empty_ones_for_missing() -> (
    None
):
    require_files("diamonds")
    d = load("diamonds_onehot")
    plain = load("diamonds")
    assert d.columns[:7] == ("carat", "depth", "table", "x", "y", "z", "cut=Fair")
    missing = [i for i, column in enumerate(d.columns) if column.endswith("=missing")]
    assert missing == [11, 19, 28] and not d.x[:, missing].any()
    assert (d.x[:, 6:].sum(1) == 3).all() and "rank 24, also with an intercept" in d.notes[
        -1
    ]
    codes = torch.cat([plain.x, plain.x_test])[:, 1].long()
    one_hot = torch.cat([d.x, d.x_test])[:, 6:11]
    assert torch.equal(codes.bincount(), one_hot.sum(0).long())
