from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.distributions import Dirichlet
from torch.nn.functional import cosine_similarity
from torch.testing import assert_close

from fallow.core.streams import stream
from fallow.sites.view import SiteView
from fallow.strategies import FEAL
from fallow.strategies.feal import pass_over_crowds, scale_scores, uncertainty
from tests.simulations import Table, simulation, tables

# -- the score -------------------------------------------------------------------------


def test_golden_scores() -> None:  # G15: α = (3, 1, 1) and (1, 1, 1)
    logits = torch.tensor([[2.0, -1.0, 0.0], [0.0, -5.0, -0.1]])
    # entropies -1.3182 and -0.6931 become 0 and 1, so only the second example scores: 2 x
    # 0.8333
    assert_close(
        uncertainty(logits, logits).float(),
        torch.tensor([0.0, 2 * 0.8333]),
        atol=1e-4,
        rtol=0,
    )
    other = torch.tensor([[0.0, 0.0, 0.0], [2.0, 0.0, 0.0]])
    mixed = uncertainty(other, logits).float()
    assert_close(mixed, torch.tensor([0.0, 0.8333 + 0.7833]), atol=1e-4, rtol=0)


def test_the_score_is_that_of_the_definition() -> None:
    draw = stream(0, "feal")
    local, globe = (3 * torch.randn(9, 4, generator=draw).double() for _ in range(2))
    e: Tensor = Dirichlet(globe.relu() + 1).entropy()  # type: ignore[no-untyped-call]  # torch's
    e = (e - e.min()) / (e.max() - e.min())
    drawn = []
    for logits in (globe, local):  # the aleatoric part is a mean of entropies: sample it
        p = predictions(logits.relu() + 1, 20_000)
        drawn.append(torch.special.entr(p).sum(2).mean(0))
    assert_close(uncertainty(local, globe), e * (drawn[0] + drawn[1]), atol=0.02, rtol=0)


def predictions(alpha: Tensor, n: int) -> Tensor:
    """Draw from Dirichlet distributions, (n, m, C), as normalized gamma samples."""
    g = np.random.default_rng(0).gamma(alpha.numpy(), size=(n, *alpha.shape))
    return torch.from_numpy(g / g.sum(2, keepdims=True))


def test_a_class_that_loses_evidence_it_does_not_have_changes_nothing() -> None:
    logits = torch.tensor([[2.0, -1.0], [1.0, 3.0], [0.5, 0.0]])
    lower = torch.where(logits < 0, logits - 7, logits)
    assert torch.equal(uncertainty(logits, logits), uncertainty(lower, lower))


def test_where_all_rows_are_equally_uncertain_the_scale_is_one() -> None:
    assert scale_scores(torch.tensor([2.0, 2.0])).tolist() == [1.0, 1.0]
    assert scale_scores(torch.tensor([torch.nan, 2.0])).isnan().tolist() == [True, False]
    same = torch.zeros(4, 3)
    local = torch.tensor([[0.0, 0, 0], [9, 0, 0], [2, 0, 0], [5, 0, 0]])
    score = uncertainty(local, same)
    assert score.argsort(descending=True).tolist() == [0, 2, 3, 1]


# -- relaxation ------------------------------------------------------------------------


def plain(
    score: list[float], z: Tensor, n: int, k: int = 5, cut: float = 0.85
) -> list[int]:
    """Run the selection as described in the paper, one example at a time."""
    chosen: list[int] = []
    passed: list[int] = []
    for i in sorted(range(len(score)), key=lambda r: -score[r]):
        cosine = [
            (float(cosine_similarity(z[i], z[j], dim=0)), j)
            for j in range(len(z))
            if j != i
        ]
        near = [j for c, j in sorted(cosine, reverse=True)[:k] if c > cut]
        (passed if len(near) == k and set(near) & set(chosen) else chosen).append(i)
    return [*chosen, *passed][:n] if len(chosen) < n else chosen[:n]


def bunched(rows: int = 40, seed: int = 0) -> Table:
    """Return a site of examples in four directions, with ten near duplicates each."""
    draw = stream(seed, "bunched")
    point = 3 * torch.randn(4, 6, generator=draw, dtype=torch.float64)
    near = 0.3 * torch.randn(rows, 6, generator=draw, dtype=torch.float64)
    x = point.repeat_interleave(rows // 4, 0) + near
    # every example has evidence, so there are no ties
    return Table(x[:, :3], x[:, 3:].abs(), [0, 1, 2])


@pytest.mark.parametrize("n", [3, 12, 39])
@pytest.mark.parametrize("seed", range(3))
def test_the_picks_are_those_of_the_plain_walk(n: int, seed: int) -> None:
    site = bunched(seed=seed)
    score = uncertainty(site.local, site.common).tolist()
    expected = plain(score, torch.cat([site.local, site.common], 1), n)
    assert simulation({"a": site}, FEAL()).selected(n)["a"] == expected


def test_it_passes_over_rows_that_plain_ranking_would_take() -> None:
    site = bunched()
    order = uncertainty(site.local, site.common).argsort(descending=True)[:8].tolist()
    assert simulation({"a": site}, FEAL()).selected(8)["a"] != order
    assert simulation({"a": site}, FEAL(similar=1.0)).selected(8)["a"] == order


def test_rows_passed_over_follow_by_score() -> None:
    crowds = [[], [0], [0], [], [3], []]
    assert pass_over_crowds(crowds, 3).tolist() == [0, 3, 5]
    assert pass_over_crowds(crowds, 5).tolist() == [0, 3, 5, 1, 2]
    assert pass_over_crowds(crowds, 9).tolist() == [0, 3, 5, 1, 2, 4]
    assert pass_over_crowds([], 3).tolist() == []


def test_rows_beyond_the_budget_are_not_compared_with_others() -> None:
    looked_at = []

    def crowds() -> Iterator[list[int]]:
        for row in range(1000):
            looked_at.append(row)
            yield []

    assert pass_over_crowds(crowds(), 3).tolist() == [0, 1, 2]
    assert len(looked_at) == 4  # the fourth shows that the selection is complete


def test_a_row_with_fewer_similar_rows_than_k_has_no_crowd() -> None:
    z = torch.eye(4).repeat_interleave(5, 0)
    z = z + 0.01 * torch.randn(20, 4, generator=stream(0, "near"))
    assert list(FEAL().crowds(z)) == [[]] * 20  # five near duplicates each: four others
    crowds = list(FEAL(neighbors=4).crowds(z))
    assert [set(c) for c in crowds] == [
        set(range(i - i % 5, i - i % 5 + 5)) - {i} for i in range(20)
    ]


def test_exact_copies_are_neighbors_and_a_row_is_not_its_own() -> None:
    z = torch.ones(6, 2)
    crowds = list(FEAL().crowds(z))
    assert [set(crowd) for crowd in crowds] == [set(range(6)) - {i} for i in range(6)]
    assert list(FEAL().crowds(torch.ones(5, 2))) == [[]] * 5  # four others are too few
    assert len(pass_over_crowds(crowds, 3)) == 3


# -- edge cases ------------------------------------------------------------------------


@pytest.mark.parametrize("labels", [(), (1, 1), (0, 1, 2, 2)])
def test_rows_that_are_not_finite_come_last(labels: tuple[int, ...]) -> None:
    site = tables()["a"]
    local = site.local.clone()
    local[2, 0], local[5, 1] = torch.nan, torch.inf
    for n in (4, 10, 11, 12):
        selected = simulation({"a": Table(local, site.common, labels)}, FEAL()).selected(n)[
            "a"
        ]
        assert len(set(selected)) == n and not {2, 5} & set(selected[:10])


def test_predictions_that_are_all_nan_are_an_error_that_says_so() -> None:
    nan = torch.full((4, 3), torch.nan, dtype=torch.float64)
    with pytest.raises(RuntimeError, match="all 4 scores are NaN or infinite"):
        simulation({"a": Table(nan, nan, [0])}, FEAL()).selected(2)


def test_a_site_without_labels_asks_the_global_model_twice() -> None:
    site = tables()["a"]
    federation = simulation({"a": Table(site.local, site.common)}, FEAL(similar=1.0))
    view = SiteView(federation.members["a"], 0)
    both = uncertainty(view.logits("global"), view.logits("global"))
    assert federation.selected(4)["a"] == both.argsort(descending=True)[:4].tolist()


@pytest.mark.parametrize(
    "wrong", [{"neighbors": 0}, {"similar": 1.1}, {"similar": float("nan")}]
)
def test_values_out_of_range_are_refused(wrong: dict[str, float]) -> None:
    (name,) = wrong
    with pytest.raises(ValueError, match=f"FEAL's {name} is"):
        FEAL(**wrong)  # type: ignore[arg-type]  # mypy: a float for any field
