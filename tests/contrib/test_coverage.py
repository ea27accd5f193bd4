"""Coverage against reference implementations."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from fallow.contrib import Coverage
from fallow.contrib.coverage import (
    LEVELS,
    cover_greedily,
    highest_level,
    kernel,
    read_outlook,
)
from fallow.core.streams import stream
from fallow.strategies.parts import margins
from tests.simulations import Table, simulation, tables


def numbers(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=stream(seed, "numbers"))


def plain_greedy(
    kernels: Tensor, covered: Tensor, weight: Tensor, besides: Tensor, n: int
) -> list[int]:
    """Recompute every gain for each selection."""
    selected: list[int] = []
    for _ in range(n):
        gains = []
        for row, own in enumerate(kernels):
            more = (torch.maximum(covered, own) - covered) @ weight
            gains.append(-1.0 if row in selected else float(more + besides[row]))
        selected.append(max(range(len(gains)), key=lambda row: gains[row]))
        covered = torch.maximum(covered, kernels[selected[-1]])
    return selected


@pytest.mark.parametrize("seed", range(5))
def test_the_lazy_greedy_choice_is_the_plain_one(seed: int) -> None:
    x = numbers(200, 3, seed=seed)
    landmarks = numbers(30, 3, seed=seed + 50)
    kernels = kernel(x, landmarks, 0.7)
    weight = numbers(30, seed=seed + 90).abs()
    covered = 0.3 * numbers(30, seed=seed + 70).abs().clamp_max(1)
    besides = 0.1 * numbers(200, seed=seed + 30).abs()
    values = cover_greedily(kernels, covered=covered, weight=weight, besides=besides, n=25)
    assert values.tolist() == plain_greedy(kernels, covered, weight, besides, 25)


def test_where_all_is_covered_rows_go_by_what_they_have_besides() -> None:
    besides = torch.tensor([1.0, 3.0, 2.0])
    nothing = torch.zeros(3, 2)
    result = cover_greedily(
        nothing, covered=torch.zeros(2), weight=torch.ones(2), besides=besides, n=9
    )
    assert result.tolist() == [1, 2, 0]


def test_kernels_are_those_of_distances() -> None:
    x, landmarks = numbers(9, 4).double() + 50, numbers(5, 4, seed=2).double() + 50
    plain = (-torch.cdist(x, landmarks).square() / (2 * 1.3**2)).exp()
    assert torch.allclose(kernel(x, landmarks, 1.3).double(), plain, atol=1e-5)


def test_how_far_a_landmark_is_covered_is_the_highest_of_all_sites() -> None:
    covered = torch.rand(6, 40, generator=stream(0, "covered"))  # of six sites
    reach = torch.zeros(40, LEVELS)
    for own in covered:
        reach[torch.arange(40), (own * LEVELS).long()] += 1
    assert (highest_level(reach) - covered.amax(0)).abs().max() <= 1 / LEVELS


def test_a_class_with_few_labels_costs_more_where_classes_are_uneven() -> None:
    bins = torch.ones(64)
    even = {
        "margins": bins,
        "classes": torch.ones(4),
        "counts": torch.tensor([9.0, 1, 1, 1]),
    }
    assert read_outlook(even, True)[1].tolist() == [1.0] * 4
    uneven = {**even, "classes": torch.tensor([9.0, 1.0, 1.0, 1.0])}
    _, prices = read_outlook(uneven, True)
    assert prices[0] < 0.5 and bool((prices[1:] > 1).all())
    assert read_outlook(uneven, False)[1].tolist() == [1.0] * 4


def test_a_sure_margin_is_that_of_95_in_a_hundred_rows() -> None:
    p = numbers(4000, 3).mul(2).softmax(1)
    at = torch.bincount((margins(p) * 64).long().clamp_max(63), minlength=64).double()
    total = {"margins": at, "classes": p.sum(0), "counts": torch.ones(3)}
    sure, _ = read_outlook(total, True)
    assert abs(sure - float(margins(p).quantile(0.95))) < 2 / 64


def test_without_labels_or_a_model_all_rows_count_alike() -> None:
    total = {"margins": torch.ones(64), "classes": torch.ones(3), "counts": torch.zeros(3)}
    sure, prices = read_outlook(total, True)
    assert sure == 0.0
    assert prices.tolist() == [1.0] * 3
    federation = simulation(tables(), Coverage(least=3))
    for site in federation.members.values():
        del site.memory["global"]
    federation.query(2)
    assert federation.members["a"].memory["weigh"]["u"].tolist() == [1.0] * 12


def far_apart(seed: int, rows: int = 12) -> Table:
    """Return a site with examples at the same four centers as others."""
    x = 20 * torch.eye(4).double().repeat_interleave(rows, 0)
    x = x + numbers(4 * rows, 4, seed=seed).double()
    return Table(x[:, :2], x[:, 2:])


def places(table: Table, rows: list[int]) -> list[int]:
    return [int(torch.cat([table.local, table.common], 1)[row].argmax()) for row in rows]


def test_one_site_covers_each_place_once() -> None:
    table = far_apart(0)
    selected = simulation({"a": table}, Coverage(least=3)).selected(4)["a"]
    assert sorted(places(table, selected)) == [0, 1, 2, 3]


def test_sites_that_are_alike_do_not_cover_the_same_place_twice() -> None:
    sites = {name: far_apart(seed) for seed, name in enumerate("abcd")}
    result = []
    for seed in range(6):
        selected = simulation(sites, Coverage(least=3), seed).selected(1)
        result.append(
            len({places(sites[name], rows)[0] for name, rows in selected.items()})
        )
    # four random examples cover 2.7 of four centers on average
    assert sum(result) / len(result) > 2.6


def test_what_another_site_has_labeled_is_covered() -> None:
    a, b = far_apart(0), far_apart(1)
    labeled = replace(b, labels=[0, 0, 0])
    federation = simulation({"a": a, "b": labeled}, Coverage(least=3, prices=False))
    member = federation.members["b"]
    member.x[member.labeled] = 20 * torch.eye(4).double()[:3]
    for site in federation.members.values():
        del site.memory["global"]  # all examples then have equal weight
    selected = federation.selected({"a": 1, "b": 0})["a"]
    assert places(a, selected) == [3]


def test_the_coverage_of_landmarks_grows_with_every_part() -> None:
    sites = {name: far_apart(seed) for seed, name in enumerate("abc")}
    federation = simulation(sites, Coverage(least=3))
    federation.query(6)
    for site in federation.members.values():
        rows = site.memory["cover"]["rows"].tolist()
        assert len(rows) == len(set(rows)) == 6
        assert site.memory["selected"]["rows"].tolist() == rows


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"width": 0.0}, "width is 0.0; it must be above 0"),
        ({"shrink": -1.0}, "shrink is -1.0; it must be 0 or more"),
        ({"least": 1}, "least is 1; it must be at least 2"),
    ],
)
def test_fields_that_cannot_be_are_refused(fields: dict[str, float], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        Coverage(**fields)  # type: ignore[arg-type]
