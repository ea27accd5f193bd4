"""Clustering by aggregates: against k-means on pooled bundles, and its disclosure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor

from fallow.core import client
from fallow.core.client import declared, find_wrong_argument
from fallow.core.contract import Contract
from fallow.core.streams import stream
from fallow.core.types import Values
from fallow.core.values import SenderFacts
from fallow.core.view import View
from fallow.strategies import Typical, TypicalUnsure
from fallow.strategies.parts.bundles import (
    MOST_ROWS,
    OFTEN,
    count_nearest,
    find_centers,
    nearest_center,
    split_rows,
    tie_bundles,
    total_bundles,
)
from tests.simulations import Table, simulation, tables


@dataclass(frozen=True)
class Clustering:
    """A query that finds clusters and leaves it at that."""

    wanted: int = 4
    least: int = 3

    contract: ClassVar[Contract] = Contract("Clustering")

    def query(self, ask: Any, budget: Any, memo: Any) -> Any:
        ask.keep(self.bundle)
        return {"centers": find_centers(ask, self.groups, self.wanted)}

    @client.keep("number of stored tensors")
    def bundle(self, view: View) -> Values:
        return tie_bundles(view, self.least)

    @client.sum("totals of clusters", times=OFTEN)
    def groups(
        self, view: View, centers: Tensor | None = None, planes: Tensor | None = None
    ) -> Values:
        return total_bundles(view.memory["bundle"], centers, planes)


def rows_of(n: int, seed: int = 0, width: int = 4) -> Tensor:
    return torch.randn(n, width, generator=stream(seed, "rows"), dtype=torch.float64)


@pytest.mark.parametrize("least", [2, 5])
@pytest.mark.parametrize("n", [5, 9, 10, 11, 100])
def test_every_row_is_in_one_bundle_of_least_rows_or_more(n: int, least: int) -> None:
    parts = split_rows(rows_of(n), least)
    assert sorted(torch.cat(parts).tolist()) == list(range(n))
    assert all(least <= len(part) < 2 * least for part in parts)


def test_rows_of_two_places_are_not_tied_together() -> None:
    x = rows_of(40)
    x[20:] += 50
    for part in split_rows(x, 5):
        assert len({row < 20 for row in part.tolist()}) == 1


def test_equal_rows_are_tied_too() -> None:
    parts = split_rows(torch.ones(13, 2), 4)
    assert all(4 <= len(part) < 8 for part in parts)


def test_totals_of_clusters_are_those_of_their_bundles() -> None:
    bundles: Values = {"means": rows_of(30), "rows": torch.arange(1.0, 31.0).double()}
    means, rows = bundles["means"], bundles["rows"]
    assert isinstance(means, Tensor) and isinstance(rows, Tensor)
    centers, planes = rows_of(3, seed=1), rows_of(3, seed=2)
    planes[1] = 0  # not split
    cluster_totals = total_bundles(bundles, centers, planes)
    plain = {
        name: torch.zeros_like(torch.as_tensor(cluster_totals[name]))
        for name in cluster_totals
    }
    for mean, weight in zip(means, rows, strict=True):
        c = int((centers - mean).square().sum(1).argmin())
        side = int((mean - centers[c]) @ planes[c] > 0)
        plain["rows"][2 * c + side] += weight
        plain["features"][2 * c + side] += weight * mean
        plain["squares"][2 * c + side] += weight * mean @ mean
    for name, value in plain.items():
        assert torch.allclose(value, torch.as_tensor(cluster_totals[name])), name
    assert plain["rows"][3] == 0


def test_the_nearest_center_is_the_nearest_one() -> None:
    x, centers = rows_of(50), rows_of(7, seed=3)
    assert torch.equal(nearest_center(x, centers), torch.cdist(x, centers).argmin(1))


def test_centers_are_those_of_all_bundles_in_one_place() -> None:
    """Check a converged k-means: each center is the mean of its nearest bundles."""
    sites = {
        name: Table(rows_of(60, k), rows_of(60, k + 9)) for k, name in enumerate("abc")
    }
    federation = simulation(sites, Clustering(wanted=3, least=3))
    centers = federation.query(1)["centers"]
    kept = [site.memory["bundle"] for site in federation.members.values()]
    means = torch.cat([item["means"] for item in kept])
    rows = torch.cat([reply["rows"] for reply in kept])
    assert rows.sum() == 180
    for _ in range(20):  # Lloyd's algorithm on pooled data, from the federation's result
        at = torch.cdist(means, centers).argmin(1)
        centers = torch.stack(
            [
                (rows[at == c, None] * means[at == c]).sum(0) / rows[at == c].sum()
                for c in range(3)
            ]
        )
    spread = (rows * (means - centers[at]).square().sum(1)).sum()
    outcome = federation.query(1)["centers"]
    own = (rows * torch.cdist(means, outcome).amin(1).square()).sum()
    assert own <= 1.1 * spread


def test_places_that_are_far_apart_are_clusters_wherever_their_rows_are() -> None:
    places = 30 * torch.eye(8, dtype=torch.float64)
    sites = {}
    for k, name in enumerate("abc"):  # each site has examples at four of the eight centers
        x = torch.cat(
            [places[(2 * k + j) % 8] + rows_of(12, 5 * k + j, 8) for j in range(4)]
        )
        sites[name] = Table(x[:, :4], x[:, 4:])
    outcome = simulation(sites, Clustering(wanted=8, least=3)).query(1)["centers"]
    assert len(outcome) == 8
    assert torch.cdist(outcome, places).amin(1).max() < 3


def test_no_total_of_a_site_is_of_fewer_rows_than_a_bundle() -> None:
    strategy = Clustering(wanted=30, least=4)
    federation = simulation(tables(rows=40), strategy)
    centers = federation.query(1)["centers"]
    assert len(centers) > 10
    for site in federation.members.values():
        kept: Values = {**site.memory["bundle"]}
        assert bool((torch.as_tensor(kept["rows"]) >= 4).all())
        rows = torch.as_tensor(total_bundles(kept, centers)["rows"])
        assert bool(((rows == 0) | (rows >= 4)).all())


def test_a_center_that_is_drawn_to_one_row_shows_the_mean_of_its_bundle() -> None:
    """Check a malicious request: one center at a guessed example, others far."""
    federation = simulation(tables(rows=40), Clustering(least=5))
    federation.query(1)
    site = federation.members["a"]
    row = site.seen[:][3]
    centers = torch.stack([row, row + 1e3])
    kept: Values = {**site.memory["bundle"]}
    near_all = total_bundles(kept, centers)
    centers = torch.stack([row, site.memory["bundle"]["means"].mean(0)])
    near_few = total_bundles(kept, centers)
    for shown_centers in (near_all, near_few):
        rows = torch.as_tensor(shown_centers["rows"])
        mean = torch.as_tensor(shown_centers["features"])[0] / rows[0].clamp_min(1)
        assert rows[0] == 0 or rows[0] >= 5
        assert not torch.allclose(mean, row, atol=1e-3)


def find_wrong(method: object, function: str, **args: object) -> str | None:
    """Return why a site does not accept arguments of a client function, or None."""
    takes = declared(method)[function].takes
    assert takes is not None
    return find_wrong_argument(takes, args, SenderFacts({"columns": 4}))


def test_more_centers_than_any_query_finds_are_refused() -> None:
    """Check the limit; with many centers, a coordinator could locate examples."""
    centers = torch.zeros(626, 4, dtype=torch.float64)
    for method in (Typical(), TypicalUnsure()):
        assert find_wrong(method, "groups", centers=centers[:625], planes=None) is None
        why = find_wrong(method, "groups", centers=centers, planes=None)
        assert why == "centers has 626 centers, and a query has at most 625"
    for method in (Typical(), TypicalUnsure()):
        why = find_wrong(method, "counts", centers=centers, is_trained=True)
        if isinstance(method, Typical):
            why = find_wrong(method, "counts", centers=centers)
        assert why == "centers has 626 clusters, and a query has at most 625"


def test_turns_and_clusters_that_no_query_has_are_refused() -> None:
    """Check the limits on turns and clusters, which would cost a site time and memory."""
    many = torch.zeros(10_000, 1, dtype=torch.float64)
    for method, name, levels in (
        (Typical(), "bids", "winners"),
        (TypicalUnsure(), "levels", "bars"),
    ):
        for value, sentence in (
            (many, f"{levels} has 10000 turns, and a query has at most 3"),
            (many.T, f"{levels} has 10000 clusters, and a query has at most 625"),
        ):
            sent = {levels: value, "prefix": many[:, 0], "digit": 1}
            assert find_wrong(method, name, **sent) == sentence
    for method, name in ((Typical(), "bids"), (TypicalUnsure(), "levels")):
        takes = declared(method)[name].takes
        assert takes is not None
        assert find_wrong_argument(takes, {"digit": 1}, SenderFacts()) is None
        for digit in (-1, 2, -(10**9)):  # the last value would need a number of 900 MB
            why = find_wrong_argument(takes, {"digit": digit}, SenderFacts())
            assert why == f"digit is {digit}, and it is a whole number of at most 1"


@pytest.mark.parametrize("is_there", [True, False])
def test_centers_of_the_askers_choice_tell_whether_a_row_is_there(is_there: bool) -> None:
    """Check a documented attack that is not prevented by `count_nearest`."""
    x = rows_of(40)
    guess = x[3]
    if not is_there:
        guess = rows_of(1, seed=1)[0]
    around = 1e-3 * torch.cat([torch.eye(4), -torch.eye(4)]).double()
    nearest = count_nearest(x, torch.cat([guess[None], guess + around]))
    assert nearest[0] == is_there


def test_two_exchanges_never_differ_by_fewer_rows_than_a_bundle() -> None:
    """Check that complete bundles move between clusters from one exchange to the next."""
    federation = simulation(tables(rows=40), Clustering(wanted=12, least=4))
    federation.query(1)
    kept: Values = {**federation.members["b"].memory["bundle"]}
    before = torch.as_tensor(total_bundles(kept, rows_of(12, 7, 6))["rows"])
    for seed in range(30):
        centers = rows_of(12, 7, 6) + 0.05 * rows_of(12, seed, 6)
        moved = (torch.as_tensor(total_bundles(kept, centers)["rows"]) - before).abs()
        assert bool(((moved == 0) | (moved >= 1)).all())
        means = torch.as_tensor(kept["means"])
        old, new = nearest_center(means, rows_of(12, 7, 6)), nearest_center(means, centers)
        rows = torch.as_tensor(kept["rows"])
        assert bool((rows[old != new] >= 4).all())


def test_sites_with_too_few_rows_show_none_and_rows_that_are_not_finite_are_left_out() -> (
    None
):
    sites = tables(rows=12)
    spoilt = sites["b"].local.clone()
    spoilt[:9] = torch.nan
    sites["b"] = Table(spoilt, sites["b"].common)
    federation = simulation(sites, Clustering(least=5))
    assert bool(federation.query(1)["centers"].isfinite().all())
    assert len(federation.members["b"].memory["bundle"]["rows"]) == 0  # 3 examples are left
    assert federation.members["a"].memory["bundle"]["rows"].sum() == 12


def test_where_no_site_can_show_anything_there_is_one_center() -> None:
    centers = simulation(tables(rows=12), Clustering(least=20)).query(1)["centers"]
    assert centers.tolist() == [[0.0] * 6]


def test_a_large_site_leaves_rows_out_and_weighs_by_all(monkeypatch: Any) -> None:
    monkeypatch.setattr("fallow.strategies.parts.bundles.MOST_ROWS", 30)
    assert MOST_ROWS > 1000
    federation = simulation(tables(rows=90), Clustering(least=5))
    federation.query(1)
    kept = federation.members["a"].memory["bundle"]
    assert kept["rows"].sum() == 90
    x = federation.members["a"].seen[:][:90][::3]
    mean = (kept["rows"][:, None] * kept["means"]).sum(0) / 90
    assert torch.allclose(mean, x.mean(0))


class Liar(Clustering):
    """A site half that answers what no site can."""

    @client.sum("totals of clusters", times=OFTEN)
    def groups(
        self, view: View, centers: Tensor | None = None, planes: Tensor | None = None
    ) -> Values:
        bundles = total_bundles(view.memory["bundle"], centers, planes)
        if view.cycle == 1:
            return {**bundles, "rows": -torch.as_tensor(bundles["rows"])}
        if view.cycle == 2:
            return {**bundles, "rows": torch.as_tensor(bundles["rows"])[:0]}
        return {**bundles, "features": torch.as_tensor(bundles["features"]) * torch.nan}


@pytest.mark.parametrize(
    ("cycle", "why"),
    [
        (0, "site a replied to 'groups' with features that is NaN or infinite"),
        (
            2,
            r"aggregates of 1 clusters were requested, and sites replied with sizes of shape \(0,\)",
        ),
    ],
)
def test_totals_that_cannot_be_are_named_in_a_sentence(cycle: int, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        simulation(tables(), Liar()).query(1, cycle)
