"""Results that need several exchanges use all sites of each of them, or none."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from fallow.core.exchange_key import ExchangeKey
from fallow.privacy.settings import Privacy
from fallow.training.masked_solve import MaskedSolve
from fallow.training.scaling import Scaling
from fallow.training.server_solve import ServerSolve
from tests.privacy.federation import SECURE, Losing, asking
from tests.simulations import Simulation
from tests.strategies.regression import (
    ANYWHERE,
    draws,
    federation,
    labeled,
    shared,
    with_ones,
)

SIZES = (12, 9, 5, 7)
WAY_OUT = "3 of 4 sites replied to .* run again with --resume when they are connected"


def rows(far: float = 0.0) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Return examples and targets of four sites; only site b has a non-zero last column."""
    x = draws(33, 4) + torch.tensor([0, far, 0, 0]).double()
    x[:12, 3] = x[21:, 3] = 0
    y = x[:, 0] - 2 * (x[:, 1] - far) + x[:, 3] + x[:, 2] ** 2
    return shared(x, SIZES), shared(y, SIZES)


def simulation_with_labels(
    solver: Any, privacy: Privacy | None = None, far: float = 0.0
) -> Simulation:
    x, y = rows(far)
    return labeled(federation(x, ANYWHERE, solver=solver, privacy=privacy), y)


def train_round(simulation: Simulation, lost: int | None) -> tuple[Tensor, Losing]:
    """Return the model of a round in which site b is silent in one exchange."""
    site = simulation.members["b"]
    solver = site.parts.methods["training"]
    channel = Losing(simulation.channel, {} if lost is None else {lost: ["b"]})
    ask = replace(
        asking(simulation, channel), key=ExchangeKey("train", "round"), owner="training"
    )
    state = solver.round(site.parts.fresh(torch.Generator()), ask)
    ask.flush()
    return solver.deploy(state, site.memory)["w"], channel


@pytest.mark.parametrize(
    ("solver", "privacy"),
    [(ServerSolve(), None), (ServerSolve(), SECURE), (MaskedSolve(), None)],
    ids=["server", "masked sums", "masked rows"],
)
def test_a_solution_is_that_of_all_sites_or_there_is_none(
    solver: Any, privacy: Privacy | None
) -> None:
    whole, channel = train_round(simulation_with_labels(solver, privacy), None)
    sums = [n for n, (asked, _) in enumerate(channel.seen) if asked.steps[-1].kind != "fit"]
    stopped = 0
    for n in sums:
        try:
            result, _ = train_round(simulation_with_labels(solver, privacy), n)
        except RuntimeError as error:
            assert "3 of 4 sites replied" in str(error)
            stopped += 1
        else:
            torch.testing.assert_close(result, whole)
    assert (
        stopped >= len(sums) - 1
    )  # a rotation that arrived without confirmation did arrive


@pytest.mark.parametrize("what", ["of_features", "of_targets"])
@pytest.mark.parametrize("exchange", [0, 1])
def test_units_are_those_of_all_sites_or_there_are_none(what: str, exchange: int) -> None:
    simulation = simulation_with_labels(Scaling())
    ask = replace(
        asking(simulation, Losing(simulation.channel, {exchange: ["b"]})),
        owner="training",
        key=ExchangeKey("train", "targets"),
    )
    with pytest.raises(RuntimeError, match=WAY_OUT):
        getattr(Scaling(), what)(ask)


# -- rounding errors -------------------------------------------------------------------


@pytest.mark.parametrize("solver", [ServerSolve(), MaskedSolve()], ids=["server", "masked"])
@pytest.mark.parametrize("far", [1e7, 1e9])
def test_a_column_far_from_zero_counts(solver: Any, far: float) -> None:
    w, _ = train_round(simulation_with_labels(solver, far=far), None)
    x, y = (torch.cat([*part.values()]) for part in rows(far))
    near = x - torch.tensor([0, far, 0, 0])
    plain = torch.linalg.lstsq(with_ones(near), y[:, None]).solution[:, 0]
    torch.testing.assert_close(w[:4], plain[:4], rtol=0, atol=1e-6)


@pytest.mark.parametrize("solver", [ServerSolve(), MaskedSolve()], ids=["server", "masked"])
def test_a_column_that_differs_by_rounding_alone_is_constant(solver: Any) -> None:
    x, y = rows()
    for name, part in x.items():
        part[:, 3] = 0.3 if name < "c" else 0.1 * 3
    w, _ = train_round(labeled(federation(x, ANYWHERE, solver=solver), y), None)
    assert float(w[3]) == 0


def standardized(scale: float) -> dict[str, Tensor]:
    """Return means and standard deviations behind masks, where column 1 is that small."""
    x, _ = rows()
    units = torch.tensor([1, scale, 1, 0], dtype=torch.float64)
    small = {name: part * units for name, part in x.items()}
    return Scaling().of_features(asking(federation(small, Scaling(), privacy=SECURE)))


def test_a_small_column_counts_behind_masks() -> None:
    ratio = standardized(1e-8)["std"] / standardized(1.0)["std"]
    assert float(ratio[1]) == pytest.approx(1e-8, rel=1e-9)


def test_a_column_too_small_for_masked_sums_is_refused_and_not_made_0() -> None:
    with pytest.raises(ValueError, match="squares of column 1 are too small to be summed"):
        standardized(1e-21)
