"""Features that are huge, tiny, constant or not finite, and pools of one example.

Every strategy selects as many examples as possible or raises a specific error.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from fallow.core.streams import stream
from fallow.strategies import BAIT, LCMD, Typicality
from fallow.strategies.parts.density import typicality
from fallow.strategies.parts.kmeans import cluster_rows
from tests.contracts.numbers import simulation
from tests.contracts.strategies import STRATEGIES
from tests.each import mark_long
from tests.simulations import Table, tables

Change = Callable[[Tensor], Tensor]


def some(value: float) -> Change:
    """Replace two examples by these values."""

    def changed(x: Tensor) -> Tensor:
        y = x.clone()
        y[1] = y[4] = value
        return y

    return changed


FEATURES: dict[str, Change] = {
    "around 1e200": lambda x: 1e200 * x,
    "around 1e300": lambda x: 1e300 * x,
    "around 1e30": lambda x: 1e30 * x,
    "around 1e-200": lambda x: 1e-200 * x,
    "around 1e-310": lambda x: 1e-310 * x,
    "constant": torch.ones_like,
    "zero": torch.zeros_like,
    "constant and huge": lambda x: torch.full_like(x, 1e200),
    "all NaN": lambda x: torch.full_like(x, torch.nan),
    "some NaN": some(torch.nan),
    "some infinite": some(torch.inf),
    "some huge": some(1e200),
    "one row": lambda x: x[:1],
    "one huge row": lambda x: 1e200 * x[:1],
    "one row of NaN": lambda x: torch.nan * x[:1],
}
OURS = (
    "check the examples",
    "check the site's examples",
    "multiply the column",
    "leave the site out",
)

"""Remedies, one of which ends each sentence."""


def changed(change: Change) -> dict[str, Table]:
    return {
        name: replace(table, local=change(table.local), common=change(table.common))
        for name, table in tables().items()
    }


def find_fault(strategy: Any, sites: dict[str, Table]) -> str | None:
    """Return the fault of a selection or of an error message, or None."""
    try:
        selected = simulation(sites, strategy).selected(4)
    except (ValueError, RuntimeError) as error:
        if any(end in str(error) for end in OURS):
            return None
        return f"{type(error).__name__}: {error}"
    for name, rows in selected.items():
        if not len(set(rows)) == len(rows) == min(4, len(sites[name].local)):
            return f"site {name} picks {rows}"
    return None


LONG = (
    "around 1e300",
    "around 1e30",
    "around 1e-200",
    "zero",
    "constant and huge",
    "some NaN",
    "some huge",
    "one huge row",
)
"""Features beside which another kind is harder."""


@pytest.mark.long
@pytest.mark.parametrize("features", mark_long(FEATURES, LONG))
def test_any_features_are_chosen_from_or_refused_in_a_sentence(features: str) -> None:
    sites = changed(FEATURES[features])
    faults = {str(strategy): find_fault(strategy, sites) for strategy in STRATEGIES}
    assert {name: fault for name, fault in faults.items() if fault} == {}


@pytest.mark.parametrize("strategy", [LCMD(), BAIT(), Typicality()])
def test_rows_that_are_far_too_large_do_not_take_the_place_of_the_others(
    strategy: Any,
) -> None:
    """Check outliers, which only typicality may cluster as ordinary distant values."""
    selected = simulation(changed(some(1e200)), strategy).selected(12)
    for rows in selected.values():
        assert sorted(rows) == list(range(12))
        if not isinstance(strategy, Typicality):
            assert set(rows[-2:]) == {1, 4}


@pytest.mark.parametrize("unit", [2.0**700, 2.0**60, 2.0**-60, 2.0**-700])
def test_clusters_and_typical_rows_do_not_depend_on_the_unit(unit: float) -> None:
    x = torch.randn(40, 3, generator=stream(0, "rows"), dtype=torch.float64)
    one = cluster_rows(x, 4, stream(0, "k-means"))
    assert torch.equal(cluster_rows(unit * x, 4, stream(0, "k-means")), one)
    if unit > 1:
        assert torch.equal(typicality(unit * x).argsort(), typicality(x).argsort())
