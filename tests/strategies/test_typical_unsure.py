"""Typical uncertain examples, against reference implementations on pooled data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import fallow as fl
from fallow.core.streams import stream
from fallow.strategies import Typical, TypicalUnsure
from fallow.strategies.parts.bundles import BASE, DIGITS
from fallow.strategies.typical_unsure import count_digits, reach, share_labels
from tests.simulations import Simulation, Table, simulation

PLACES = 40 * torch.eye(4, dtype=torch.float64)
SURE = torch.tensor([4.0, 0.0, 0.0, 0.0], dtype=torch.float64)  # logits of the global model


def site_at(
    sizes: Sequence[int], unsure: Sequence[int], seed: int = 0, labels: int = 1
) -> Table:
    """Return a site with numbers of examples around four centers: 4 classes, 8 features.

    The global model is uncertain at some of the centers.
    """
    local = []
    common = []
    for cluster, size in enumerate(sizes):
        draw = stream(seed, "place", cluster)
        noise = torch.randn(size, 8, generator=draw).double()
        middle = SURE
        if cluster in unsure:
            middle = SURE / 8
        local.append(PLACES[cluster] + noise[:, :4])
        common.append(middle + noise[:, 4:] / 8)
    return Table(torch.cat(local), torch.cat(common), labels=[0] * labels)


def place_of(table: Table, row: int) -> int:
    return int((PLACES - table.local[row]).square().sum(1).argmin())


def unsure(table: Table) -> Tensor:
    """Return 1 - the gap between the two largest probabilities of each example."""
    p = table.common.softmax(1).sort(1, descending=True).values
    return 1 - (p[:, 0] - p[:, 1])


def label_at(federation: Simulation, site: str, at: Tensor) -> None:
    """Place the labeled examples of a site there."""
    member = federation.members[site]
    member.x[member.labeled] = at


def share_plainly(masses: Tensor, labels: Tensor, n: int) -> list[int]:
    """Assign one label at a time to the largest mass / (labels + 1)."""
    got = [0] * len(masses)
    for _ in range(n):
        weights = [
            float(m) / (float(have) + new + 1)
            for m, have, new in zip(masses, labels, got, strict=True)
        ]
        got[weights.index(max(weights))] += 1
    return got


def test_first_labels_are_those_of_typical_rows() -> None:
    table = site_at([12, 20, 16, 9], unsure=[0], labels=0)
    mine = simulation({"a": table}, TypicalUnsure(neighbors=4)).selected(4)["a"]
    typical = simulation({"a": table}, Typical(neighbors=4)).selected(4)["a"]
    assert set(mine) == set(typical)


def test_labels_go_where_the_model_is_unsure_and_not_where_most_rows_are() -> None:
    table = site_at([30, 8, 30, 0], unsure=[1])
    federation = simulation({"a": table}, TypicalUnsure(neighbors=4))
    label_at(federation, "a", torch.cat([PLACES[3], SURE]))  # if there is no other
    selected = federation.selected(2)["a"]
    assert {place_of(table, row) for row in selected} == {1}


def test_of_equally_unsure_rows_the_most_typical_one_is_taken() -> None:
    table = site_at([14, 0, 0, 0], unsure=[0])
    table.common[:] = SURE / 8
    federation = simulation({"a": table}, TypicalUnsure(neighbors=4))
    label_at(federation, "a", torch.cat([PLACES[3], SURE]))
    near = torch.cdist(table.local, table.local).sort(1).values[:, 1:5].mean(1)
    selected = federation.selected(1)["a"]
    # in steps of 2 %, and for two clusters of one center
    assert float(near[selected[0]]) <= float(near.sort().values[3])


def test_sites_that_are_alike_share_the_labels_of_a_place() -> None:
    """Check that three equal sites together label each center by its mass."""
    tables = {
        name: site_at([10, 20, 10, 20], unsure=[1, 2], seed=seed)
        for seed, name in enumerate("abc")
    }
    federation = simulation(tables, TypicalUnsure(neighbors=4))
    for name in tables:
        label_at(federation, name, torch.cat([PLACES[0], SURE]))
    selected = federation.selected(3)
    counter: Counter[int] = Counter()
    masses = torch.zeros(4)
    for name, table in tables.items():
        counter.update(place_of(table, row) for row in selected[name])
        places = torch.tensor([place_of(table, row) for row in range(len(table.local))])
        masses.index_add_(0, places, unsure(table).float())
    wanted = share_plainly(masses, torch.tensor([3.0, 0.0, 0.0, 0.0]), n=9)
    # a center has several clusters, whose labels are shared one at a time
    assert all(abs(counter[cluster] - wanted[cluster]) <= 1 for cluster in range(4))
    assert counter[1] > counter[2] > counter[0]


def test_a_site_with_the_best_rows_takes_no_more_than_it_may() -> None:
    near = site_at([40, 0, 0, 0], unsure=[0])
    far = site_at([40, 0, 0, 0], unsure=[], seed=1)
    federation = simulation({"a": near, "b": far}, TypicalUnsure(neighbors=4))
    selected = federation.selected({"a": 2, "b": 5})
    assert [len(selected["a"]), len(selected["b"])] == [2, 5]


def test_labels_are_shared_one_by_one() -> None:
    draw = stream(0, "masses")
    masses = 9 * torch.rand(7, generator=draw).double()
    labels = torch.randint(3, (7,), generator=draw).double()
    shares = share_labels(masses, labels, rows=torch.full((7,), 50.0), n=30)
    assert shares.tolist() == share_plainly(masses, labels, 30)


def test_no_cluster_gets_more_labels_than_it_has_rows() -> None:
    masses = torch.tensor([9.0, 1.0]).double()
    rows = torch.tensor([2.0, 5.0]).double()
    labels = torch.zeros(2).double()
    assert share_labels(masses, labels, rows=rows, n=4).tolist() == [2, 2]
    assert share_labels(masses, labels, rows=rows, n=9).tolist() == [2, 5]


def test_the_level_that_enough_rows_reach_is_found_digit_by_digit() -> None:
    draw = stream(0, "levels")
    sites = []
    for _ in range(4):
        cluster = torch.randint(5, (60,), generator=draw)
        level = torch.randint(BASE**DIGITS, (60,), generator=draw)
        sites.append((cluster, level))
    wanted = torch.tensor([3.0, 1.0, 0.0, 20.0, 500.0]).double()
    bar = torch.zeros(5, dtype=torch.int64)
    bar[wanted < 1] = -1
    need = wanted.clone()
    for digit in range(DIGITS):
        counts = torch.zeros(5, BASE).double()
        for cluster, level in sites:
            counts += count_digits(cluster, level, bar, digit)
        bar, need = reach(bar, need, counts)
    at = torch.cat([cluster for cluster, _ in sites])
    levels = torch.cat([level for _, level in sites])
    for c, n in enumerate([3, 1, 0, 20]):
        ordered = levels[at == c].sort(descending=True).values
        expected = -1
        if n:
            expected = int(ordered[n - 1])
        assert int(bar[c]) == expected
    assert int(bar[4]) == 0  # all examples are fewer than requested


@pytest.mark.parametrize(("field", "value"), [("neighbors", 0), ("least", 1)])
def test_settings_that_mean_nothing_are_refused(field: str, value: int) -> None:
    with pytest.raises(ValueError, match=f"{field} is {value}; it must be"):
        TypicalUnsure(**{field: value})


@pytest.mark.long
@pytest.mark.parametrize(
    ("partition", "least"),
    [(fl.Dirichlet(alpha=0.1), 0.85), (fl.IID(), 0.95)],
    ids=["skewed", "alike"],
)
def test_first_labels_reach_as_many_clusters_as_the_text_promises(
    partition: object, least: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes: list[dict[str, int]] = []
    strategy = TypicalUnsure.query

    def record_notes(self: TypicalUnsure, *args: Any) -> Any:
        memo = strategy(self, *args)
        notes.append(memo["notes"])
        return memo

    monkeypatch.setattr(TypicalUnsure, "query", record_notes)
    digits = fl.load("digits")
    federation = fl.Federation(digits, partition, sites=5)
    x = np.asarray(digits.x).reshape(len(digits.x), -1)
    for seed in range(3):
        sites = {site: fl.Site(x[rows]) for site, rows in federation.rows(seed).items()}
        fl.select(sites, "typical-unsure", n=20, classes=10, seed=seed)
    assert all(note["clusters"] == 100 for note in notes)
    assert sum(note["covered"] for note in notes) >= least * 100 * len(notes)
