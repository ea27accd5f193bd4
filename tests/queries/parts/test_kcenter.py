import torch
from torch.testing import assert_close

from fallow.core import stream
from fallow.queries.parts import Features, Gradients, k_center, residuals

DRAW = stream(0, "k-center")
X = torch.randn(60, 7, generator=DRAW, dtype=torch.float64)
P = torch.rand(60, 4, generator=DRAW, dtype=torch.float64).softmax(1)


def plain(x, n, left):
    """The definition: all distances, again and again."""
    left, picks = left.clone(), []
    for _ in range(n):
        picks.append(int(left.argmax()))
        left = torch.minimum(left, (x - x[picks[-1]]).square().sum(1) / 2)
        left[picks] = -1
    return picks


def test_picks_are_those_of_the_definition():
    anchors = X[:5]
    left = torch.cdist(X[5:], anchors).amin(1).square() / 2
    pool = Features.of(X[5:])
    assert k_center(pool, 20, pool.nearest(Features.of(anchors))).tolist() == plain(X[5:], 20, left)


def test_the_covering_radius_never_grows():
    pool = Features.of(X)
    picks = k_center(pool, 30, first=0)
    radius = [float(pool.nearest(Features.of(X[picks[: k + 1]])).max()) for k in range(30)]
    assert radius == sorted(radius, reverse=True)


def test_gradient_distances_are_those_of_the_full_gradients():
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


def test_the_norm_of_a_gradient_is_the_product_of_its_factors():
    q, z = residuals(torch.tensor([[0.6, 0.3, 0.1]])), torch.tensor([[1.0, 2.0]])
    norm = (2 * Gradients.of(q, z).half_norms()).sqrt()
    assert_close(norm, torch.tensor([1.1402]), atol=5e-5, rtol=0)  # G16


def test_equal_rows_are_picked_once_each():
    picks = k_center(Features.of(torch.ones(5, 2)), 5, first=3)
    assert sorted(picks.tolist()) == [0, 1, 2, 3, 4] and picks[0] == 3


def test_no_more_picks_than_rows():
    assert len(k_center(Features.of(X[:4]), 9, first=0)) == 4


def test_blocks_do_not_change_the_nearest_anchor(monkeypatch):
    whole = Features.of(X).nearest(Features.of(X[:3]))
    monkeypatch.setattr("fallow.queries.parts.kcenter.CHUNK", 7)
    assert_close(Features.of(X).nearest(Features.of(X[:3])), whole)
