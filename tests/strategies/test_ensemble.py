from collections.abc import Mapping
from typing import Literal

import pytest
import torch
from torch import Tensor

from fallow.core.methods import Query
from fallow.models.scores import entropy
from fallow.strategies import BADGE, CoreSet, Ensemble, Entropy, LeastConfidence, Margin
from fallow.strategies.ensemble import fuse_ranks
from fallow.strategies.parts.kmeans import residuals
from tests.simulations import Table, simulation, tables

Rule = Literal["entropy", "margin", "least_confidence", "badge", "core_set"]
By = Literal["logits", "rank"]

PLAIN: Mapping[Rule, Query] = {
    "entropy": Entropy(),
    "margin": Margin(),
    "least_confidence": LeastConfidence(),
    "core_set": CoreSet(),
}


def both(site: Table) -> Tensor:
    """Return the mean of both models' predictions."""
    return (site.local.softmax(1) + site.common.softmax(1)) / 2


def test_the_scores_are_those_of_the_mean_prediction() -> None:
    site = tables(rows=30)["a"]
    p = both(site)
    first, second = p.sort(1, descending=True).values[:, :2].T
    plain: dict[Rule, Tensor] = {
        "entropy": -(p * p.log()).sum(1),
        "margin": second - first,
        "least_confidence": -first,
    }
    for rule, score in plain.items():
        selected = simulation({"a": site}, Ensemble(rule)).selected(8)["a"]
        assert selected == score.argsort(descending=True)[:8].tolist()


def test_the_gradient_of_badge_is_that_of_the_mean_prediction() -> None:
    site = tables(rows=30)["a"]
    z = torch.cat(
        [site.local, site.common], 1
    )  # both models use the example itself as features
    length = residuals(both(site)).norm(dim=1) * z.norm(dim=1)
    assert simulation({"a": site}, Ensemble("badge")).selected(3)["a"][0] == int(
        length.argmax()
    )


@pytest.mark.parametrize("by", ["logits", "rank"])
@pytest.mark.parametrize("rule", PLAIN)
def test_two_equal_models_are_one(rule: Rule, by: By) -> None:
    sites = {name: Table(t.local, t.local, t.labels) for name, t in tables(rows=30).items()}
    assert simulation(sites, Ensemble(rule, by)).selected(9) == simulation(
        sites, PLAIN[rule]
    ).selected(9)


def test_by_rank_the_first_pick_of_two_equal_models_is_that_of_badge() -> None:
    site = tables(rows=30)["a"]
    same = {"a": Table(site.local, site.local, site.labels)}
    first = simulation(same, BADGE()).selected(1)
    assert simulation(same, Ensemble("badge", "logits")).selected(1) == first
    assert simulation(same, Ensemble("badge", "rank")).selected(1) == first


def test_ranks_are_summed_over_the_rows_that_each_model_would_pick() -> None:
    site, n = tables(rows=30)["a"], 6
    worth = torch.zeros(30, dtype=torch.float64)
    for logits in (site.local, site.common):
        order = entropy(logits).argsort(descending=True)[:n]
        worth[order] += 1 / (21 + torch.arange(n, dtype=torch.float64))
    selected = simulation({"a": site}, Ensemble("entropy", "rank")).selected(n)["a"]
    assert worth[selected].tolist() == worth.sort(descending=True).values[:n].tolist()
    assert selected != simulation({"a": site}, Ensemble("entropy")).selected(n)["a"]


def test_a_row_in_both_lists_beats_the_first_of_one_and_equals_go_to_the_first_list() -> (
    None
):
    a, b = torch.tensor([5, 1, 2]), torch.tensor([7, 3, 2])
    assert fuse_ranks([a, b]).tolist() == [2, 5, 7, 1, 3]
    assert fuse_ranks([torch.tensor([4, 6]), torch.tensor([6, 4])]).tolist() == [4, 6]


def test_ranks_start_at_one() -> None:
    rows = torch.arange(22)
    first, second = rows, torch.cat([rows[:20] + 100, rows[21:], rows[20:21]])
    order = fuse_ranks(
        [first, second]
    ).tolist()  # row 21: 1/42 + 1/41, row 20: 1/41 + 1/42, first: 1/21
    assert order[:4] == [20, 21, 0, 100]


@pytest.mark.parametrize("by", ["logits", "rank"])
@pytest.mark.parametrize("rule", ["entropy", "badge", "core_set"])
def test_rows_that_one_model_alone_cannot_predict_come_last(rule: Rule, by: By) -> None:
    site = tables()["a"]
    common = site.common.clone()
    common[3] = 1e100  # finite, and far from all other examples
    federation = simulation({"a": Table(site.local, common, [0, 1])}, Ensemble(rule, by))
    member = federation.members["a"]
    member.memory["global"]["w"][:18] *= 1e250  # times 1e100: infinite logits
    selected = federation.selected(12)["a"]
    assert sorted(selected) == list(range(12)) and selected[-1] == 3
    assert 3 not in federation.selected(4)["a"]


def test_only_badge_draws() -> None:
    assert Ensemble("badge").contract.draws and Ensemble("badge", "rank").contract.draws
    assert not any(Ensemble(rule).contract.draws for rule in PLAIN)


def test_its_local_model_is_the_one_of_its_paper() -> None:
    assert (
        Ensemble("badge").contract.local_source
        == Ensemble().contract.local_source
        == "scratch"
    )
