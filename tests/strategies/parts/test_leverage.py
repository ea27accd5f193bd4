"""Leverage scores from aggregates equal those of the singular value decomposition."""

from __future__ import annotations

import os
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from torch import Tensor

from fallow.data import load
from fallow.strategies.parts.leverage import (
    Directions,
    first_pass,
    leverages,
    matrix,
    products,
    project_rows,
    scales,
    second_pass,
    span,
    spread,
    totals,
)
from tests.strategies.regression import EPS, draws, shared, svd_leverage, with_ones

DATA = os.environ.get("FALLOW_DATA", "")


def federated(
    sites: list[Tensor], intercept: bool = True, ridge: float = 0.0, passes: int = 2
) -> tuple[Tensor, Directions]:
    """Run the client side and the server side with plain sums."""
    rows, d = sum(map(len, sites)), sites[0].flatten(1).shape[1]
    mean = sum((totals(x) for x in sites), torch.zeros(())) / rows * intercept
    seen = [spread(x, mean) for x in sites]
    unit = scales(sum(s for s, _ in seen), sum(v for _, v in seen))  # type: ignore[arg-type]
    unit = torch.cat([unit, torch.full((int(intercept),), rows**-0.5, dtype=torch.float64)])
    assert len(unit) == d + intercept
    basis, ridge = torch.eye(len(unit), dtype=torch.float64), ridge / rows

    def total(basis: Tensor) -> Tensor:
        parts = [products(x, mean, unit[:, None] * basis) for x in sites]
        return matrix(torch.stack(parts).sum(0), len(unit))

    if passes == 2:
        basis = first_pass(total(basis), rows, ridge)
    rank = second_pass(total(basis), basis, ridge)
    score = torch.cat([leverages(x, mean, unit[:, None] * rank.basis) for x in sites])
    return score, rank


def centered(x: Tensor) -> Tensor:
    return with_ones(x - x.mean(0))


# -- worked examples -------------------------------------------------------------------


def test_three_rows_by_hand() -> None:
    x = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    score, rank = federated([x], intercept=False)
    torch.testing.assert_close(
        score, torch.tensor([1.0, 0.5, 0.5]).double(), rtol=0, atol=1e-15
    )
    assert rank.rank == 2


def test_one_column_and_an_intercept_by_hand() -> None:
    x = torch.tensor([[0.0], [1.0], [2.0], [7.0]])  # mean 2.5, squares about it 29
    expected = 0.25 + (x.double().flatten() - 2.5) ** 2 / 29
    score, _ = federated([x[:1], x[1:]])
    torch.testing.assert_close(score, expected, rtol=0, atol=1e-15)


def test_a_ridge_by_hand() -> None:
    x = torch.tensor([[2.0], [0.0], [-1.0], [1.0], [-2.0]])  # unit variance: mean square 2
    score, _ = federated([x], intercept=False, ridge=10.0)
    # columns of mean square 1 have a Gram matrix of n = 5
    expected = (x.double().flatten() ** 2 / 2) / (5 + 10)
    torch.testing.assert_close(score, expected, rtol=0, atol=1e-15)


# -- against the decomposition ---------------------------------------------------------


CASES: dict[str, Tensor] = {
    "full rank": draws(200, 6),
    "far from zero": draws(200, 6) + 1e4,
    "columns of all scales": draws(200, 6) * 10.0 ** torch.arange(-4, 8, 2),
    "rank 4 of 6": draws(200, 4) @ draws(4, 6, name="mix"),
    "one-hot, and a column of zeros": torch.cat(
        [torch.eye(4).repeat(50, 1).double(), draws(200, 1), torch.zeros(200, 1).double()],
        1,
    ),
    "fewer rows than columns": draws(5, 8),
    "a heavy tail": draws(200, 6) / draws(200, 1, name="tail"),
}


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("x", CASES.values(), ids=CASES)
def test_scores_and_rank_are_those_of_the_decomposition(x: Tensor, intercept: bool) -> None:
    expected, rank, condition = svd_leverage(centered(x) if intercept else x)
    cuts = [0, 2, 2, 3, len(x)]  # one site is empty, two have fewer examples than columns
    score, computed_rank = federated([x[a:b] for a, b in pairwise(cuts)], intercept)
    assert computed_rank.rank == rank
    assert float(score.sum()) == pytest.approx(rank, rel=1e-8)
    assert bool((score >= 0).all() and (score <= 1).all())
    tolerance = max(1e-10, 100 * EPS * condition)
    torch.testing.assert_close(score, expected, rtol=0, atol=tolerance)
    assert computed_rank.condition == pytest.approx(condition, rel=1e-3)


@pytest.mark.parametrize("apart", [1e-3, 1e-5, 1e-7, 1e-8, 1e-9, 1e-10])
def test_columns_that_are_almost_the_same_cost_only_what_doubles_cost(apart: float) -> None:
    x = draws(500, 8)
    x[:, 5] = x[:, 4] + apart * x[:, 5]
    expected, rank, condition = svd_leverage(centered(x))
    score, outcome = federated(list(torch.split(x, 100)))
    assert outcome.rank == rank == 9
    torch.testing.assert_close(
        score, expected, rtol=0, atol=max(1e-10, 100 * EPS * condition)
    )


def test_one_pass_is_wrong_where_two_are_right() -> None:
    x = draws(500, 8)
    x[:, 5] = x[:, 4] + 1e-8 * x[:, 5]
    expected, rank, _ = svd_leverage(centered(x))
    (two, rank_of_two), (one, lost) = (federated([x], passes=passes) for passes in (2, 1))
    assert float((two - expected).abs().max()) < 1e-7 and rank_of_two.rank == rank
    assert float((one - expected).abs().max()) > 1e-3 or lost.rank < rank


# -- invariance ------------------------------------------------------------------------


def test_scores_do_not_depend_on_units_or_on_who_holds_a_row() -> None:
    x, mix = draws(60, 5), torch.linalg.qr(draws(5, 5, name="mix")).Q * torch.arange(1, 6)
    plain, _ = federated([x])
    moved, _ = federated([x @ mix + 3.0])
    torch.testing.assert_close(moved, plain, rtol=0, atol=1e-8)
    cut, _ = federated(list(shared(x, [10, 0, 49, 1]).values()))
    torch.testing.assert_close(cut, plain, rtol=0, atol=1e-12)


def test_copies_of_all_rows_share_their_scores() -> None:
    x = draws(40, 5)
    once, twice = federated([x])[0], federated([x, x])[0]
    torch.testing.assert_close(twice, torch.cat([once, once]) / 2, rtol=0, atol=1e-12)


def test_images_and_single_precision_are_read_as_rows_of_doubles() -> None:
    x = draws(50, 6).float()
    flat, image = federated([x])[0], federated([x.view(50, 1, 2, 3)])[0]
    assert torch.equal(flat, image)
    assert torch.equal(flat, federated([x.double()])[0])


def test_a_row_of_zeros_has_no_score_without_an_intercept() -> None:
    x = draws(10, 3)
    x[4] = 0
    assert federated([x], intercept=False)[0][4] == 0
    assert federated([x])[0][4] >= 0.1


def test_ridge_scores_are_those_of_the_formula() -> None:
    x = draws(80, 4) + 2
    standard = with_ones((x - x.mean(0)) / x.std(0, correction=0))
    inverse = torch.linalg.inv(standard.T @ standard + 7.0 * torch.eye(5).double())
    expected = (standard @ inverse * standard).sum(1)
    torch.testing.assert_close(federated([x], ridge=7.0)[0], expected, rtol=0, atol=1e-12)


def test_a_ridge_makes_a_collinear_direction_harmless() -> None:
    x = draws(300, 5)
    x[:, 4] = x[:, 3] + 1e-12 * x[:, 4]
    bare, tamed = federated([x]), federated([x], ridge=0.3)
    assert bare[1].condition > 1e10 > tamed[1].condition
    assert float(tamed[0].sum()) == pytest.approx(
        5, abs=0.02
    )  # one of 6 directions has value 0


# -- parts -----------------------------------------------------------------------------


def test_a_constant_column_is_told_from_one_of_a_small_scale() -> None:
    x = torch.stack([torch.full((100,), 1e9), 1e-20 * torch.arange(100.0)], 1).double()
    squares, varies = spread(x, totals(x) / 100)
    assert varies.tolist() == [0, 100] and scales(squares, varies)[0] == 0
    length = (scales(squares, varies) * (x - x.mean(0))).norm(dim=0)
    assert float(length[1]) == pytest.approx(1)


def test_a_spread_that_rounding_took_is_refused_with_its_column() -> None:
    with pytest.raises(
        ValueError, match=r"column 1 is lost in rounding; multiply the column"
    ):
        scales(torch.tensor([1.0, 0.0]), torch.tensor([3.0, 5.0]))


def test_the_span_of_dependent_columns_is_smaller() -> None:
    a = draws(6, 2)
    basis = span(torch.cat([a, a @ draws(2, 2, name="mix"), torch.zeros(6, 1).double()], 1))
    assert basis.shape == (6, 2)
    torch.testing.assert_close(basis @ (basis.T @ a), a)
    assert span(a[:, :0]).shape == (6, 0)


def test_a_large_site_is_read_some_rows_at_a_time() -> None:
    x = draws(10_000, 2)
    assert [len(z) for z in project_rows(x, totals(x), torch.eye(3).double())] == [
        4096,
        4096,
        1808,
    ]
    score, _ = federated([x])
    torch.testing.assert_close(score, svd_leverage(centered(x))[0], rtol=0, atol=1e-12)


# -- real tables -----------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.skipif(not DATA, reason="FALLOW_DATA names no folder of data files")
@pytest.mark.parametrize(("name", "rank"), [("protein", 10), ("kegg", 26), ("sarcos", 22)])
def test_ranks_of_published_tables_with_an_intercept(name: str, rank: int) -> None:
    try:
        x = load(name).x
    except ValueError as error:
        pytest.skip(str(error))
    assert Path(DATA).is_dir()
    score, computed_rank = federated(list(torch.split(x, len(x) // 10 + 1)))
    assert computed_rank.rank == rank
    expected, by_svd, condition = svd_leverage(centered(x.double()))
    assert by_svd == rank
    torch.testing.assert_close(
        score, expected, rtol=0, atol=max(1e-10, 100 * EPS * condition)
    )


def test_a_direction_below_what_masked_sums_round_is_none() -> None:
    gram = torch.diag(torch.tensor([1.0, 1e-6], dtype=torch.float64))
    basis = torch.eye(2, dtype=torch.float64)
    assert second_pass(gram, basis).rank == 2
    assert second_pass(gram, basis, rounding=1e-5).rank == 1
