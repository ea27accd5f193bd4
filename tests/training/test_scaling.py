"""Joint scaling: aggregates give the means and deviations of all examples."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from fallow.core.ask import Ask
from fallow.core.exchange_key import ExchangeKey
from fallow.sites.in_process import InProcessChannel
from fallow.sites.site import LocalSite
from fallow.sites.store import Label
from fallow.sites.view import SiteView
from fallow.training.scaling import Scaling
from fallow.transport.serialized import SerializingChannel
from tests.simulations import Forgetful, Simulation
from tests.strategies.regression import draws, federation, shared, stacked

SCALING = Scaling()


def agreeing(
    sites: dict[str, Tensor], runtime: Any = InProcessChannel
) -> tuple[Simulation, Ask]:
    simulation = federation(sites, SCALING, runtime=runtime)
    disclosures = SCALING.contract.disclosures
    return simulation, Ask(
        simulation.channel,
        Forgetful(),
        simulation.shown,
        ExchangeKey("query", "query"),
        "query",
        reveals=disclosures,
    )


def table() -> dict[str, Tensor]:
    x = draws(20, 3) * torch.tensor([1.0, 1e-3, 1e5]) + torch.tensor([0.0, 7.0, 1e9])
    return shared(x, (11, 8, 1))


def rows_of(site: LocalSite) -> Tensor:
    """Return all scaled examples of a site."""
    assert isinstance(site.seen, Tensor)
    return site.seen


@pytest.mark.parametrize("runtime", [InProcessChannel, SerializingChannel])
def test_the_units_are_those_of_the_pooled_rows(runtime: Any) -> None:
    sites = table()
    simulation, ask = agreeing(sites, runtime)
    features = SCALING.of_features(ask)
    x = stacked(sites)
    torch.testing.assert_close(features["mean"], x.mean(0))
    torch.testing.assert_close(features["std"], x.std(0, correction=0), rtol=1e-6, atol=0)
    seen = torch.cat([rows_of(site) for site in simulation.members.values()])
    torch.testing.assert_close(seen.std(0, correction=0), torch.ones(3, dtype=seen.dtype))


def test_a_constant_column_is_0_everywhere_and_a_narrow_one_is_not() -> None:
    x = draws(20, 2)
    x = torch.stack([torch.full((20,), 0.1, dtype=x.dtype), 1e-9 * x[:, 0] + 1.0], 1)
    simulation, ask = agreeing(shared(x, (11, 8, 1)))
    features = SCALING.of_features(ask)
    assert features["std"][0] == 0 and features["std"][1] > 0
    for site in simulation.members.values():
        assert bool((rows_of(site)[:, 0] == 0).all())


def test_labeled_rows_count_and_keep_their_labels() -> None:
    sites = table()
    simulation, ask = agreeing(sites)
    simulation.members["a"].buy([Label(3, 5.0, 0), Label(9, 11.0, 0)])
    torch.testing.assert_close(SCALING.of_features(ask)["mean"], stacked(sites).mean(0))
    targets = SCALING.of_targets(ask)
    assert targets is not None
    assert (float(targets["mean"]), float(targets["std"])) == (8.0, 3.0)
    assert simulation.members["a"].labels.tolist() == [-1.0, 1.0]
    simulation.members["a"].forget()  # scaling persists over cycles
    assert simulation.members["a"].labels.tolist() == [-1.0, 1.0]


def test_equal_numbers_have_a_unit() -> None:
    simulation, ask = agreeing(table())
    simulation.members["b"].buy([Label(0, 4.0, 0), Label(1, 4.0, 0)])
    targets = SCALING.of_targets(ask)
    assert targets is not None
    assert float(targets["std"]) == 1.0


def test_numbers_have_no_unit_before_a_site_contributes_any() -> None:
    _, ask = agreeing(table())
    assert SCALING.of_targets(ask) is None


def test_agreed_ranges_send_no_sum_and_no_row_within_them_is_longer_than_1() -> None:
    ranges = ((80.0, 400.0), (0.0, 1.0))
    scaling = Scaling(of_rows=False, of_numbers=False, is_encoded=True, ranges=ranges)
    corners = torch.cartesian_prod(*(torch.tensor(pair) for pair in ranges)).double()
    simulation = federation(shared(corners, (2, 2)), scaling)
    ask = Ask(
        simulation.channel,
        Forgetful(),
        simulation.shown,
        ExchangeKey("query", "query"),
        "query",
        reveals=scaling.contract.disclosures,
    )
    units = scaling.of_features(ask)
    scaled = (corners - units["mean"]) / units["std"]
    torch.testing.assert_close(scaled.norm(dim=1), torch.ones(4, dtype=torch.float64))
    assert {row["function"] for row in simulation.shown.rows()} <= {"features"}


def test_a_site_scales_by_its_own_agreed_ranges_whatever_it_receives() -> None:
    scaling = Scaling(of_rows=False, of_numbers=False, ranges=((80.0, 400.0),))
    simulation = federation(shared(draws(4, 1), (2, 2)), scaling)
    view = SiteView(next(iter(simulation.members.values())), 0)
    other = torch.tensor([1e-3], dtype=torch.float64)
    kept = scaling.features(view, mean=other, std=other)
    assert torch.as_tensor(kept["mean"]).tolist() == [240.0]
    assert torch.as_tensor(kept["std"]).tolist() == [160.0]
