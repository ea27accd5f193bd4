from __future__ import annotations

import numpy as np
import pytest

from fallow.data.partition.longtail import longtail_counts
from fallow.data.partition.partitions import LongTail

Y = np.repeat(np.arange(10), 100)
GROUPS = np.arange(1000) % 7


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


LONG_TAILS = [
    (5000, 10, 20, [5000, 3584, 2569, 1842, 1320, 946, 678, 486, 348, 250], 17_023),
    (6000, 10, 20, [6000, 4301, 3083, 2210, 1584, 1135, 814, 583, 418, 300], 20_428),
    (500, 100, 20, None, 15_907),
    (5000, 10, 100, None, 12_406),
    (5000, 10, 50, None, 13_996),
    (5000, 10, 10, None, 20_431),
]


@pytest.mark.parametrize(("largest", "classes", "rho", "counts", "total"), LONG_TAILS)
def test_long_tailed_counts_are_the_published_ones(
    largest: int, classes: int, rho: float, counts: list[int] | None, total: int
) -> None:
    result = longtail_counts(largest, classes, rho)
    assert result.sum() == total and result[-1] == largest / rho
    assert counts is None or result.tolist() == counts


def test_a_long_tail_keeps_exact_class_counts_whatever_splits_it() -> None:
    for rule in (LongTail(10), LongTail(10, "ExactDirichlet", {"alpha": 0.1})):
        parts = rule.split(Y, 5, rng())
        kept = np.bincount(Y[np.concatenate(parts)])
        assert kept.tolist() == longtail_counts(100, 10, 10).tolist()
    sizes = [len(part) for part in LongTail(10, "Natural").split(Y, 7, rng(), GROUPS)]
    assert sum(sizes) == longtail_counts(100, 10, 10).sum()


def test_a_long_tail_longer_than_its_classes_says_what_would_fit() -> None:
    y = np.repeat(np.arange(3), [90, 120, 120])
    with pytest.raises(
        ValueError, match=r"110 of the 90 examples of class 0; set n_max .*10 and 90"
    ):
        LongTail(10, n_max=110).split(y, 3, rng())
    LongTail(10, n_max=90).split(y, 3, rng())
    with pytest.raises(ValueError, match="did you mean 'exact-dirichlet'"):
        LongTail(10, "ExactDirichlett")
