import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from fallow.core.streams import stream
from fallow.strategies.parts.kcenter import FeatureVectors, Gradients, k_center
from fallow.strategies.parts.kmeans import residuals

DRAW = stream(0, "k-center")
X = torch.randn(60, 7, generator=DRAW, dtype=torch.float64)
P = torch.rand(60, 4, generator=DRAW, dtype=torch.float64).softmax(1)


def plain(x: Tensor, n: int, left: Tensor) -> list[int]:
    """Select by the definition, with all distances in every step."""
    left = left.clone()
    selected: list[int] = []
    for _ in range(n):
        selected.append(int(left.argmax()))
        left = torch.minimum(left, (x - x[selected[-1]]).square().sum(1) / 2)
        left[selected] = -1
    return selected


def test_picks_are_those_of_the_definition() -> None:
    anchors = X[:5]
    left = torch.cdist(X[5:], anchors).amin(1).square() / 2
    pool = FeatureVectors.of(X[5:])
    assert k_center(pool, 20, pool.nearest(FeatureVectors.of(anchors))).tolist() == plain(
        X[5:], 20, left
    )


def test_the_covering_radius_never_grows() -> None:
    pool = FeatureVectors.of(X)
    selected = k_center(pool, 30, first=0)
    radius = [
        float(pool.nearest(FeatureVectors.of(X[selected[: k + 1]])).max())
        for k in range(30)
    ]
    assert radius == sorted(radius, reverse=True)


def test_gradient_distances_are_those_of_the_full_gradients() -> None:
    q = residuals(P)
    full = torch.einsum("nc,nd->ncd", q, X).flatten(1)
    g = Gradients.of(q, X)
    for j in (0, 17, 59):
        assert_close(g.to(j), (full - full[j]).square().sum(1) / 2, atol=1e-12, rtol=1e-10)
    assert_close(g.half_norms(), full.square().sum(1) / 2)
    some = Gradients.of(q[:9], X[:9])
    assert_close(
        g.nearest(some), torch.cdist(full, full[:9]).amin(1).square() / 2, atol=1e-7, rtol=0
    )


def test_the_norm_of_a_gradient_is_the_product_of_its_factors() -> None:
    q, z = residuals(torch.tensor([[0.6, 0.3, 0.1]])), torch.tensor([[1.0, 2.0]])
    norm = (2 * Gradients.of(q, z).half_norms()).sqrt()
    assert_close(
        norm, torch.tensor([1.1402], dtype=torch.float64), atol=5e-5, rtol=0
    )  # G16


def test_equal_rows_are_picked_once_each() -> None:
    selected = k_center(FeatureVectors.of(torch.ones(5, 2)), 5, first=3)
    assert sorted(selected.tolist()) == [0, 1, 2, 3, 4] and selected[0] == 3


def test_no_more_picks_than_rows() -> None:
    assert len(k_center(FeatureVectors.of(X[:4]), 9, first=0)) == 4


def test_blocks_do_not_change_the_nearest_anchor(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = FeatureVectors.of(X).nearest(FeatureVectors.of(X[:3]))
    monkeypatch.setattr("fallow.strategies.parts.kcenter.CHUNK", 7)
    assert_close(FeatureVectors.of(X).nearest(FeatureVectors.of(X[:3])), whole)


def test_picks_on_gradients_are_those_of_the_definition_on_full_gradients() -> None:
    q = residuals(P)
    full = torch.einsum("nc,nd->ncd", q, X).flatten(1)
    g = Gradients.of(q, X)
    pool, anchors = g.at(torch.arange(5, 60)), g.at(torch.arange(5))
    left = torch.cdist(full[5:], full[:5]).amin(1).square() / 2
    assert k_center(pool, 40, pool.nearest(anchors)).tolist() == plain(full[5:], 40, left)
    unlabeled = torch.full((60,), torch.inf, dtype=torch.float64)
    assert k_center(g, 40).tolist() == plain(full, 40, unlabeled)


def test_single_precision_rows_are_picked_as_in_double_precision() -> None:
    x = (X + 1000).float()  # in single precision half the squared norm cancels all digits
    exact = plain(x.double(), 30, torch.full((60,), torch.inf, dtype=torch.float64))
    assert k_center(FeatureVectors.of(x), 30).tolist() == exact
    q = residuals(P).float()
    full = torch.einsum("nc,nd->ncd", q.double(), x.double()).flatten(1)
    exact = plain(full, 30, torch.full((60,), torch.inf, dtype=torch.float64))
    assert k_center(Gradients.of(q, x), 30).tolist() == exact


@pytest.mark.parametrize("exact", [50_000, 0])
def test_distances_are_never_negative(monkeypatch: pytest.MonkeyPatch, exact: int) -> None:
    monkeypatch.setattr("fallow.strategies.parts.kcenter.EXACT", exact)
    x, q = (X + 1000).float(), residuals(P).float()
    for points in (FeatureVectors.of(x), Gradients.of(q, x)):
        assert all(float(points.to(j).min()) >= 0 for j in range(60))
        assert float(points.nearest(points).min()) >= 0


def test_large_pools_stay_in_single_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fallow.strategies.parts.kcenter.EXACT", 20)
    x, q = X.float(), residuals(P).float()
    for pool, few in (
        (FeatureVectors.of(x), FeatureVectors.of(x[:9])),
        (Gradients.of(q, x), Gradients.of(q[:9], x[:9])),
    ):
        assert pool.half_norms().dtype == torch.float32
        assert few.half_norms().dtype == torch.float64
        assert pool.nearest(few).dtype == torch.float32


def test_rows_that_are_not_finite_are_picked_last_and_are_no_anchors() -> None:
    x, q = X[:12].clone(), residuals(P[:12])
    x[3, 0], x[7, 1], x[8, 2] = torch.nan, torch.inf, -torch.inf
    finite = torch.tensor([0, 1, 2, 4, 5, 6, 9, 10, 11])
    for points in (FeatureVectors.of(x), Gradients.of(q, x)):
        some = points.at(finite)
        selected = k_center(points, 12)
        assert finite[k_center(some, 9)].tolist() == selected[:9].tolist()
        assert sorted(selected[9:].tolist()) == [3, 7, 8]
        assert_close(some.nearest(points.at(torch.tensor([0, 3, 7]))), some.to(0))


def test_without_an_anchor_everything_is_infinitely_far() -> None:
    nothing = torch.empty(0, dtype=torch.int64)
    for points in (FeatureVectors.of(X), Gradients.of(residuals(P), X)):
        assert bool((points.nearest(points.at(nothing)) == torch.inf).all())


def pick_with_and_without_single_precision(
    monkeypatch: pytest.MonkeyPatch, x: Tensor, n: int, anchors: Tensor | None = None
) -> tuple[list[int], list[int]]:
    """Select by both ways, with equal order of ties."""
    selections = []
    for least in (0, 2**60):
        monkeypatch.setattr("fallow.strategies.parts.kcenter.ROUGH", least)
        pool = FeatureVectors.of(x)
        nearest = None
        if anchors is not None:
            nearest = pool.nearest(FeatureVectors.of(anchors))
        selections.append(k_center(pool, n, nearest, ties=stream(0, "ties")).tolist())
    return selections[0], selections[1]


def test_bounds_in_single_precision_select_as_double_precision(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    close = X[:1] + 1e-4 * X  # differences that single precision does not have
    with_gaps = X.clone()
    with_gaps[3] = torch.nan
    spread = X * torch.logspace(-3, 3, len(X), dtype=torch.float64)[:, None]
    for x in (X, X + 1000, close, with_gaps, spread, X * 1e-30, X * 1e60):
        one, other = pick_with_and_without_single_precision(monkeypatch, x, 60)
        assert one == other
        for anchors in (X[:5], X[:5] + 1e5):
            one, other = pick_with_and_without_single_precision(monkeypatch, x, 40, anchors)
            assert one == other


def test_single_precision_compares_few_examples_in_double_precision(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("fallow.strategies.parts.kcenter.ROUGH", 0)
    rough = FeatureVectors.of(X).rough()
    assert rough is not None
    left = torch.full((60,), torch.inf, dtype=torch.float64)
    assert len(rough.select(20, left, torch.arange(60), 0)) == 20
    same = FeatureVectors.of(X[:1].expand(60, 7)).rough()
    assert same is not None
    assert (
        len(same.select(20, left, torch.arange(60), 0)) < 20
    )  # double precision continues


def test_equal_rows_have_equal_order_in_single_precision(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    twice = torch.cat([X, X])
    one, other = pick_with_and_without_single_precision(monkeypatch, twice, 60)
    assert one == other
