"""Sums by way of edges: the same bits for every tree, and what an edge and the server see."""

from __future__ import annotations

from fractions import Fraction

import pytest
import torch

from fallow.core.totals import sum_answers
from fallow.core.tree import Tree, add_branch, sum_by_tree
from fallow.core.types import Answer, SiteId

SITES = [f"site-{i:02}" for i in range(23)]


def answers_of(
    sites: list[SiteId], dtype: torch.dtype = torch.float64
) -> dict[SiteId, Answer]:
    """Numbers of very different sizes, whose sum depends on the order in most entries."""
    draw = torch.Generator().manual_seed(3)
    found: dict[SiteId, Answer] = {}
    for site in sites:
        x = torch.randn(4, 5, generator=draw, dtype=torch.float64)
        size = 10.0 ** torch.randint(-6, 7, (4, 5), generator=draw)
        found[site] = {"x": (x * size).to(dtype), "one": 1.0}
    return found


def bits_of(answer: Answer) -> dict[str, bytes]:
    return {
        name: torch.as_tensor(value).numpy().tobytes() for name, value in answer.items()
    }


@pytest.mark.parametrize("edges", [2, 3, 7, 22, 23])
def test_a_total_is_the_same_bit_for_bit_for_every_number_of_edges(edges: int) -> None:
    answers = answers_of(SITES)
    one = sum_by_tree(answers, "v", None, Tree.of(SITES, 1))
    many = sum_by_tree(answers, "v", None, Tree.of(SITES, edges))
    assert bits_of(one) == bits_of(many)


def test_it_is_the_same_when_sites_belong_to_other_edges_as_after_one_has_failed() -> None:
    answers = answers_of(SITES)
    before = Tree.of(SITES, 5)
    moved = Tree({site: edge if edge != 2 else 4 for site, edge in before.edge_of.items()})
    scattered = Tree({site: i % 5 for i, site in enumerate(SITES)})
    totals = [
        bits_of(sum_by_tree(answers, "v", None, t)) for t in (before, moved, scattered)
    ]
    assert totals[0] == totals[1] == totals[2]


def test_it_is_what_sites_add_up_to_rounded_once() -> None:
    answers = answers_of(SITES)
    total = torch.as_tensor(sum_by_tree(answers, "v", None, Tree.of(SITES, 4))["x"])
    for row in range(4):
        for column in range(5):
            parts = [torch.as_tensor(answers[site]["x"])[row, column] for site in SITES]
            exact = sum(Fraction(float(part)) for part in parts)
            assert float(total[row, column]) == float(exact)


def test_without_edges_each_addition_rounds_and_totals_differ_by_that_alone() -> None:
    answers = answers_of(SITES)
    plain = torch.as_tensor(sum_answers(answers, "v", None)["x"])
    tree = torch.as_tensor(sum_by_tree(answers, "v", None, Tree.of(SITES, 4))["x"])
    assert not torch.equal(plain, tree)
    torch.testing.assert_close(plain, tree, rtol=1e-12, atol=1e-6)


def test_counts_and_float32_numbers_of_one_size_add_up_to_the_same_bits_as_without_edges() -> (
    None
):
    draw = torch.Generator().manual_seed(4)
    answers: dict[SiteId, Answer] = {}
    for site in SITES:
        w = 0.5 + 0.5 * torch.rand(6, generator=draw, dtype=torch.float32)
        answers[site] = {"n": torch.randint(0, 1000, (6,), generator=draw), "w": w}
    tree = sum_by_tree(answers, "v", None, Tree.of(SITES, 4))
    assert bits_of(tree) == bits_of(sum_answers(answers, "v", None))


def test_an_edge_sends_totals_of_its_own_sites_and_their_number() -> None:
    answers = answers_of(SITES)
    branch = Tree.of(SITES, 4).branches(SITES)[1]
    sent = add_branch({site: answers[site] for site in branch}, "v", None)
    assert sent.sites == len(branch) == 6
    assert set(sent.fields) == {"x", "one"}
    assert sent.size <= 8 * 6 * 21  # at most 6 digits a number, however many sites


def test_a_site_is_of_one_edge_and_edges_have_as_many_sites_as_others_but_for_one() -> None:
    branches = Tree.of(SITES, 5).branches(SITES)
    assert sorted(site for branch in branches for site in branch) == SITES
    assert {len(branch) for branch in branches} == {4, 5}


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (torch.tensor(float("nan")), "site-07 answered 'v' with x that is NaN or infinite"),
        (
            torch.tensor(1e301, dtype=torch.float64),
            "site-07 answered 'v' with x beyond the bound",
        ),
        (
            torch.ones(2),
            "site-08 answered 'v' with x of shape|site-07 answered 'v' with x of shape",
        ),
    ],
)
def test_an_addend_that_is_none_is_refused_with_its_site(
    bad: torch.Tensor, why: str
) -> None:
    answers: dict[SiteId, Answer] = {site: {"x": torch.tensor(1.0)} for site in SITES}
    answers["site-07"] = {"x": bad}
    with pytest.raises(ValueError, match=why):
        sum_by_tree(answers, "v", None, Tree.of(SITES, 4))
