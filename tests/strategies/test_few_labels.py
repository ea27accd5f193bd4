"""Strategies for few labels (MaxHerding to TypiClust) against reference values.

The values were computed with scikit-activeml 1.0.1 on the same features:

    MaxHerding(metric_dict={"gamma": 1 / 0.5**2}).query(X, y, batch_size=8)
    ProbCover(n_classes=2, deltas=[0.75]).query(normalize(X), y, batch_size=8)

with X and y as in `build_site`. Ties of ProbCover are random, so there the number of newly
covered examples is compared. The values of TypiClust and DropQuery are those of

    FromScikitActiveML("TypiClust", "k=5;cluster_algo_dict.n_init=20")
    FromScikitActiveML("DropQuery", "n_dropout_samples=101;cluster_algo_dict.n_init=20")

with the same version, at `build_clusters` and `build_unstable_site`. All of them are
computed again where the package is installed: tests/integrations/test_scikit_activeml.py.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from fallow.core.streams import stream
from fallow.strategies import (
    DropQuery,
    MaxHerding,
    ProbCover,
    Typicality,
    UncertaintyHerding,
)
from fallow.strategies.parts.max_coverage import choose_width, unit_length
from tests.simulations import Simulation, Table, simulation

LABELED = [3, 11, 20]


def features() -> Tensor:
    rows = torch.arange(1, 31, dtype=torch.float64)
    columns = torch.tensor([1.0, 2.1, 3.3, 0.7], dtype=torch.float64)
    return (torch.outer(rows, columns).cos() * 1000).round() / 1000


def pool_rows() -> list[int]:
    return [row for row in range(30) if row not in LABELED]


def build_site(strategy: Any, labeled: bool = True, seed: int = 0) -> Simulation:
    """Return a site with `features`; a linear model uses the example itself."""
    x = features()
    rows = pool_rows() if labeled else list(range(30))
    labels = [0, 1, 0] if labeled else ()
    federation = simulation({"a": Table(x[rows, :2], x[rows, 2:], labels)}, strategy, seed)
    member = federation.members["a"]
    if labeled:
        member.x[member.labeled] = x[LABELED]
    return federation


def select(strategy: Any, n: int, labeled: bool = True, seed: int = 0) -> list[int]:
    """Return the selected examples as rows of `features`."""
    selected = build_site(strategy, labeled, seed).selected(n)["a"]
    rows = pool_rows() if labeled else list(range(30))
    return [rows[position] for position in selected]


SIZES = [7, 12, 9, 6, 11, 8]
CENTERS = [[0, 0], [9, 0], [0, 9], [9, 9], [20, 3], [3, 20]]


def scatter(center: list[int], size: int) -> Tensor:
    """Return points (size, 2) around a center, at distances without ties."""
    turn = torch.arange(1, size + 1, dtype=torch.float64)
    radius = 0.2 + 0.9 * (turn * 0.618).frac()
    around = torch.stack([radius * (2 * turn).cos(), radius * (2 * turn).sin()], 1)
    return torch.tensor(center) + around


def build_clusters(strategy: Any) -> Simulation:
    """Return a site with six clusters; the largest and the third largest have a label."""
    x = torch.cat([scatter(*item) for item in zip(CENTERS, SIZES, strict=True)])
    federation = simulation({"a": Table(x, torch.zeros_like(x), [0, 1])}, strategy)
    member = federation.members["a"]
    labeled = torch.tensor([CENTERS[1], CENTERS[2]], dtype=torch.float64)
    member.x[member.labeled] = torch.cat([labeled, torch.zeros(2, 2)], 1)
    return federation


def build_unstable_site(strategy: Any) -> Simulation:
    """Return a site where dropout of the second number changes 16 predictions."""
    places = torch.cat([scatter(CENTERS[at], size) for at, size in enumerate((5, 4, 7))])
    unstable = torch.tensor([[0.0, 2.0]]).double().expand(16, 2)
    stable = torch.tensor([[1.0, 0.2]]).double().expand(20, 2)
    others = scatter([30, 30], 20)
    logits = torch.cat([unstable, stable])
    federation = simulation({"a": Table(logits, torch.cat([places, others]))}, strategy)
    member = federation.members["a"]
    state = dict(member.memory["global"])
    state["w"] = state["w"].clone()
    state["w"][:] = 0.0
    state["w"][0] = 1.0  # number 0 of class 0
    state["w"][5] = 1.0  # number 1 of class 1
    state["w"][8] = 0.5  # bias of class 0, which is predicted if everything is dropped
    member.remember("global", state)
    return federation


@pytest.mark.parametrize(
    ("labeled", "expected"),
    [
        (True, [27, 0, 13, 16, 24, 8, 2, 17]),
        (False, [9, 0, 13, 22, 11, 14, 24, 16]),
    ],
)
def test_max_herding_selects_the_reference_values(
    labeled: bool, expected: list[int]
) -> None:
    assert select(MaxHerding(width=0.5), 8, labeled) == expected


def test_prob_cover_covers_as_many_examples_as_the_reference() -> None:
    x = unit_length(features())
    is_near = torch.cdist(x, x) <= 0.75
    covered = is_near[LABELED].any(0)
    added = []
    for row in select(ProbCover(radius=0.75), 8):
        added.append(int((is_near[row] & ~covered).sum()))
        covered |= is_near[row]
    assert added == [5, 4, 3, 2, 2, 2, 1, 1]


@pytest.mark.parametrize(("n", "expected"), [(2, [40, 49]), (4, [40, 49, 6, 32])])
def test_typiclust_selects_the_reference_values(n: int, expected: list[int]) -> None:
    assert build_clusters(Typicality(neighbors=5)).selected(n)["a"] == expected


def test_drop_query_selects_the_reference_values() -> None:
    assert sorted(build_unstable_site(DropQuery(passes=101)).selected(3)["a"]) == [4, 8, 15]


def test_the_width_is_the_smallest_distance_of_labeled_examples_within_limits() -> None:
    def at(*angles: float) -> Tensor:
        turned = torch.tensor(angles, dtype=torch.float64)
        return torch.stack([turned.cos(), turned.sin()], 1)

    assert choose_width(at(0.0)) == 1.0
    assert choose_width(at(0.0, 0.01, 3.0)) == 0.2
    assert choose_width(at(0.0, 3.0)) == 1.0
    apart = float((at(0.0) - at(0.5)).norm())
    assert choose_width(at(0.0, 0.5, 2.0)) == pytest.approx(apart)
    selected = select(MaxHerding(), 8)
    assert selected == select(
        MaxHerding(width=choose_width(unit_length(features()[LABELED]))), 8
    )


def test_uncertainty_herding_with_equal_margins_is_max_herding() -> None:
    strategy = UncertaintyHerding(width=0.5)
    federation = build_site(strategy)
    member = federation.members["a"]
    same = {name: torch.zeros_like(value) for name, value in member.memory["local"].items()}
    member.remember("local", same)
    rows = pool_rows()
    selected = [rows[position] for position in federation.selected(8)["a"]]
    assert selected == select(MaxHerding(width=0.5), 8)


def test_uncertainty_herding_leaves_certain_examples_uncovered() -> None:
    outputs = torch.tensor([[50.0, 0.0], [50.0, 0.0], [50.0, 0.0], [0.0, 0.1]]).double()
    table = Table(torch.zeros(4, 2).double(), outputs)
    strategy = UncertaintyHerding(model="global", width=0.3)
    assert simulation({"a": table}, strategy).selected(1)["a"] == [3]
    assert simulation({"a": table}, MaxHerding("global", 0.3)).selected(1)["a"] != [3]


def test_prob_cover_takes_the_largest_pure_radius() -> None:
    near = torch.tensor([[1.0, 0.0], [0.995, 0.0998], [0.0, 1.0], [0.0998, 0.995]])
    chosen = ProbCover().choose_radius(near.double(), 2, stream(0, "k-means"))
    apart = float(torch.cdist(near[:2], near[2:]).min())
    assert chosen < apart <= chosen + 0.05


def test_drop_query_prefers_examples_whose_prediction_changes() -> None:
    # The first five examples have a second feature of the class that dropout sometimes
    # keeps.
    outputs = torch.tensor([[1.0, 0.9]] * 5 + [[1.0, 0.0]] * 5).double()
    table = Table(torch.zeros(10, 2).double(), outputs)
    strategy = DropQuery("global", rate=0.5, passes=30)
    for seed in range(5):
        selected = simulation({"a": table}, strategy, seed).selected(3)["a"]
        assert max(selected) < 5


def test_drop_query_takes_one_example_of_each_cluster() -> None:
    strategy = DropQuery(passes=1, rate=0.5)
    federation = build_site(strategy)
    selected = federation.selected(4)["a"]
    assert len(set(selected)) == 4


@pytest.mark.parametrize(
    ("build", "sentence"),
    [
        (lambda: MaxHerding(width=0.0), "MaxHerding's width is 0.0; it must be above 0"),
        (lambda: UncertaintyHerding(width=-1.0), "UncertaintyHerding's width is -1.0"),
        (lambda: ProbCover(radius=3.0), "ProbCover's radius is 3.0; it must be above 0"),
        (lambda: ProbCover(purity=1.0), "ProbCover's purity is 1.0"),
        (lambda: DropQuery(rate=1.0), "DropQuery's rate is 1.0"),
        (lambda: DropQuery(passes=0), "DropQuery's passes is 0; it must be at least 1"),
    ],
)
def test_settings_that_cannot_be_are_refused(build: Any, sentence: str) -> None:
    with pytest.raises(ValueError) as error:
        build()
    assert str(error.value).startswith(sentence)
