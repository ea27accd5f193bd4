"""Sites of given sizes with skewed classes: an approximation of KAFAL's split."""

from __future__ import annotations

import numpy as np
import pytest

from fallow.core.build import build
from fallow.data import partition_report
from fallow.data.partition import partitions
from fallow.data.partition.dirichlet import KAFAL_SIZES
from fallow.data.partition.partitions import ExactDirichlet

Y = np.repeat(np.arange(10), 5000)


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


@pytest.mark.parametrize("seed", range(3))
def test_the_kafal_like_split_has_the_sizes_of_the_published_file(seed: int) -> None:
    parts = ExactDirichlet(0.1, KAFAL_SIZES).split(Y, 10, rng(seed))
    assert [len(part) for part in parts] == list(KAFAL_SIZES)
    assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(50_000))


def test_the_kafal_like_split_is_about_as_skewed_as_the_published_file() -> None:
    """Compare the standard deviation of class shares over sites with the published file.

    There it is 14 to 27 points.
    """
    rule = ExactDirichlet(0.1, KAFAL_SIZES)
    reports = [partition_report(Y, rule.split(Y, 10, rng(s)), 10) for s in range(20)]
    assert 15 < np.mean([r["sigma_pp"] for r in reports]) < 22
    assert np.mean([r["cv"] for r in reports]) == pytest.approx(1.8, rel=0.1)
    assert 3 < np.mean([r["absent"] for r in reports]) < 5


def test_sizes_are_proportions_so_that_a_subset_has_them_too() -> None:
    rule = build(partitions, "exact-dirichlet", alpha=0.1, sizes=list(KAFAL_SIZES))
    sizes = [len(part) for part in rule.split(Y[::25], 10, rng())]
    assert sum(sizes) == 2000
    assert all(abs(size - k / 25) < 1 for size, k in zip(sizes, KAFAL_SIZES, strict=True))


def test_equal_sizes_are_the_plain_rule() -> None:
    same, plain = (
        rule.split(Y, 4, rng())
        for rule in (ExactDirichlet(sizes=[1] * 4), ExactDirichlet())
    )
    assert all(np.array_equal(a, b) for a, b in zip(same, plain, strict=True))


def test_sizes_that_do_not_fit_the_sites_are_refused() -> None:
    with pytest.raises(ValueError, match="sizes for 10 sites and 5 are requested"):
        ExactDirichlet(sizes=KAFAL_SIZES).split(Y, 5, rng())
    with pytest.raises(ValueError, match=r"sizes are .*; give positive finite numbers"):
        ExactDirichlet(sizes=[1, 0])
