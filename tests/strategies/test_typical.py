"""Typical examples of all sites, against reference implementations on pooled data."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from fallow.core.streams import stream
from fallow.strategies import Typical
from fallow.strategies.parts.bundles import CHANCES, add_digit
from fallow.strategies.typical import order_clusters
from tests.simulations import Table, simulation

PLACES = 40 * torch.eye(8, dtype=torch.float64)


def site_at(places: Sequence[int], sizes: Sequence[int], seed: int = 0) -> Table:
    """Return a site with examples around some of eight centers: 4 classes, 8 features."""
    parts = []
    for center, size in zip(places, sizes, strict=True):
        draw = stream(seed, "place", center)
        parts.append(PLACES[center] + torch.randn(size, 8, generator=draw).double())
    x = torch.cat(parts)
    return Table(x[:, :4], x[:, 4:])


def place_of(table: Table, row: int) -> int:
    x = torch.cat([table.local, table.common], 1)[row]
    return int((PLACES - x).square().sum(1).argmin())


def typicality_of(x: Tensor, k: int) -> Tensor:
    """Return 1 / the mean distance to the k nearest others."""
    near = torch.cdist(x, x).sort(1).values[:, 1 : k + 1].mean(1)
    return 1 / (near + 1e-5)


def test_one_site_labels_the_most_typical_row_of_each_of_its_places() -> None:
    table = site_at([0, 1, 2], [12, 20, 16])
    x = torch.cat([table.local, table.common], 1)
    selected = simulation({"a": table}, Typical(neighbors=4)).selected(3)["a"]
    starts = [0, 12, 32]
    sizes = [12, 20, 16]
    expected = set()
    for start, size in zip(starts, sizes, strict=True):
        best = typicality_of(x[start : start + size], 4).argmax()
        expected.add(start + int(best))
    assert set(selected) == expected


def test_a_place_that_two_sites_share_is_labeled_once() -> None:
    sites = {
        "a": site_at([0, 1], [20, 20], seed=1),
        "b": site_at([1, 2], [20, 20], seed=2),
        "c": site_at([2, 3], [20, 20], seed=3),
        "d": site_at([3, 0], [20, 20], seed=4),
    }
    selected = simulation(sites, Typical(neighbors=4)).selected(1)
    places = [place_of(sites[name], rows[0]) for name, rows in selected.items()]
    assert len(selected) == 4
    assert len(set(places)) >= 3  # a winner of two has one free, and four want four


def test_the_site_with_the_most_typical_row_labels_a_shared_place() -> None:
    wide = site_at([0], [20], seed=1)
    near = 0.2 * (torch.cat([wide.local, wide.common], 1) - PLACES[0]) + PLACES[0]
    narrow = Table(near[:, :4], near[:, 4:])
    for sites in ({"a": wide, "b": narrow}, {"a": narrow, "b": wide}):
        both = {
            name: Table(
                torch.cat([t.local, site_at([k + 4], [10]).local]),
                torch.cat([t.common, site_at([k + 4], [10]).common]),
            )
            for k, (name, t) in enumerate(sites.items())
        }
        selected = simulation(both, Typical(neighbors=4)).selected({"a": 2, "b": 2})
        owner = [
            name for name, rows in selected.items() if place_of(both[name], rows[0]) == 0
        ] or [
            name
            for name, rows in selected.items()
            if 0 in [place_of(both[name], r) for r in rows]
        ]
        assert next(n for n, t in sites.items() if t is narrow) in owner


def test_who_is_alone_in_a_place_takes_it_before_what_it_shares() -> None:
    """Site a is best in two clusters and takes the one without competitors."""
    a = site_at([0, 1], [30, 10])
    b = site_at([0], [12], seed=5)
    selected = simulation({"a": a, "b": b}, Typical(neighbors=4)).selected(1)
    assert place_of(a, selected["a"][0]) == 1
    assert place_of(b, selected["b"][0]) == 0


def test_a_place_with_a_label_at_another_site_waits() -> None:
    a = site_at([0, 1], [10, 25])
    b = site_at([0], [10], seed=5)
    labeled = Table(b.local, b.common, labels=[0, 0])
    federation = simulation({"a": a, "b": labeled}, Typical(neighbors=4))
    member = federation.members["b"]
    member.x[member.labeled] = PLACES[0] + 0.1
    selected = federation.selected({"a": 1, "b": 0})
    assert place_of(a, selected["a"][0]) == 1


def test_a_budget_beyond_the_clusters_goes_where_fewest_labels_are() -> None:
    table = site_at([0, 1], [8, 8])
    selected = simulation({"a": table}, Typical(neighbors=3, least=4)).selected(4)["a"]
    places = [place_of(table, row) for row in selected]
    assert sorted(places) == [0, 0, 1, 1]


def test_a_small_site_without_a_bundle_still_spends_its_budget() -> None:
    sites = {"a": site_at([0, 1], [20, 20]), "b": site_at([2], [3])}
    selected = simulation(sites, Typical()).selected(2)
    assert len(set(selected["b"])) == 2
    assert len(selected["a"]) == 2


def test_the_highest_bid_is_found_digit_by_digit() -> None:
    draw = stream(0, "bids")
    levels = torch.randint(-1, 49, (5, 30), generator=draw)  # of five sites, in base 7
    levels = levels.clamp_min(-1)
    prefix = torch.zeros(30, dtype=torch.int64)
    for digit in range(2):
        rest = 7 ** (1 - digit)
        bids = torch.zeros(30, 7)
        for own in levels:
            for c, level in enumerate(own.tolist()):
                if level >= 0 and level // (7 * rest) == int(prefix[c]):
                    bids[c, level // rest % 7] += 1
        prefix = add_digit(prefix, bids)
    assert torch.equal(prefix, levels.amax(0))


def test_clusters_with_few_labels_come_first_and_then_the_largest() -> None:
    rows = torch.tensor([3.0, 10.0, 7.0, 7.0])
    labels = torch.tensor([0.0, 2.0, 0.0, 1.0])
    holders = torch.ones(4)
    assert order_clusters(rows, labels, holders, n=4).tolist() == [2, 0, 3, 1]


def test_bids_differ_by_a_number_that_each_site_draws() -> None:
    """Check that ties of two equal sites are broken by random numbers, not by order."""
    table = site_at(range(8), [10] * 8)
    federation = simulation({"a": table, "b": table}, Typical(neighbors=3))
    selected = federation.selected(8)
    shared = sum(
        place_of(table, one) == place_of(table, other)
        for one, other in zip(
            sorted(selected["a"])[:8], sorted(selected["b"])[:8], strict=True
        )
    )
    assert CHANCES > 1 and shared <= 8
