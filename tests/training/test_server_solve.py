"""Least squares at the coordinator."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from fallow.core.model_vectors import Layout
from fallow.models.networks import MLP
from fallow.sites.store import Label
from fallow.strategies import Random
from fallow.training.server_solve import ServerSolve
from fallow.transport.serialized import SerializingChannel
from tests.privacy.federation import SECURE, asking
from tests.simulations import Simulation
from tests.strategies.regression import (
    EPS,
    draws,
    federation,
    labeled,
    shared,
    solve,
    svd_leverage,
    with_ones,
)

SIZES = (30, 2, 18)


def simulation_with_labels(
    x: Tensor, y: Tensor, solver: Any = None, **more: Any
) -> Simulation:
    """Return three sites with all labels."""
    sites, targets = shared(x, SIZES), shared(y, SIZES)
    return labeled(federation(sites, Random(), solver=solver, **more), targets)


def data(d: int = 5) -> tuple[Tensor, Tensor]:
    x = draws(50, d) + 2
    return x, x @ draws(d, name="slope") + 0.3 * draws(50, name="noise") + 7


def weigh(simulation: Simulation, w: Tensor) -> Simulation:
    """Return the same labels with these weights."""
    for site, part in zip(
        simulation.members.values(), torch.split(w, list(SIZES)), strict=True
    ):
        site.weight = part
    return simulation


def clear(x: Tensor, y: Tensor, w: Tensor | None = None) -> Tensor:
    """Solve pooled weighted least squares with minimum norm."""
    s = (torch.ones_like(y) if w is None else w).sqrt()[:, None]
    result: Tensor = torch.linalg.lstsq(
        s * with_ones(x), s * y[:, None], driver="gelsd"
    ).solution.squeeze(1)
    return result


# -- the solution ----------------------------------------------------------------------


def test_it_is_least_squares_over_all_sites() -> None:
    x, y = data()
    for passes in (1, 2):
        result = solve(simulation_with_labels(x, y, ServerSolve(passes=passes)))
        assert_close(result, clear(x, y), rtol=0, atol=1e-11)


def test_weights_of_labels_count_unless_it_is_told_otherwise() -> None:
    x, y = data()
    w = draws(50, name="weight").exp()
    assert_close(
        solve(weigh(simulation_with_labels(x, y), w)), clear(x, y, w), rtol=0, atol=1e-11
    )
    plain = solve(weigh(simulation_with_labels(x, y, ServerSolve(weighted=False)), w))
    assert_close(plain, clear(x, y), rtol=0, atol=1e-11)


def test_a_row_of_weight_2_is_a_row_that_is_there_twice() -> None:
    x, y = data()
    once = solve(weigh(simulation_with_labels(x, y), torch.tensor([1.0, 2.0]).repeat(25)))
    odd = torch.arange(1, 50, 2)
    assert_close(
        once, clear(torch.cat([x, x[odd]]), torch.cat([y, y[odd]])), rtol=0, atol=1e-11
    )


def test_targets_without_noise_give_the_true_model_whatever_the_weights() -> None:
    x = draws(50, 6)
    truth = draws(7, name="truth")
    w = (3 * draws(50, name="weight")).exp()
    result = solve(weigh(simulation_with_labels(x, with_ones(x) @ truth), w))
    assert_close(result, truth, rtol=0, atol=1e-8)


def test_without_an_intercept_the_line_goes_through_zero() -> None:
    x, y = data()
    plain = torch.linalg.lstsq(x, y[:, None]).solution.squeeze(1)
    for bias in (True, False):
        result = solve(
            simulation_with_labels(x, y, ServerSolve(intercept=False), bias=bias)
        )
        assert_close(result[:5], plain, rtol=0, atol=1e-11)
        assert result[5:].tolist() == [0.0] * bias


@pytest.mark.parametrize("power", [4, 6, 8])
def test_predictions_are_right_for_columns_that_are_almost_the_same(power: int) -> None:
    x, y = data()
    x[:, 3] = x[:, 2] + 10.0**-power * x[:, 3]
    _, _, condition = svd_leverage(with_ones(x - x.mean(0)))
    plain = with_ones(x) @ clear(x, y)
    ours = with_ones(x) @ solve(simulation_with_labels(x, y))
    tolerance = max(1e-9, 100 * EPS * condition) * float(plain.abs().max())
    assert_close(ours, plain, rtol=0, atol=tolerance)


def test_one_exchange_is_wrong_where_two_are_right() -> None:
    x, y = data()
    x[:, 3] = x[:, 2] + 1e-8 * x[:, 3]
    plain = with_ones(x) @ clear(x, y)
    wrong = (
        (with_ones(x) @ solve(simulation_with_labels(x, y, ServerSolve(passes=1))) - plain)
        .abs()
        .max()
    )
    right = (with_ones(x) @ solve(simulation_with_labels(x, y)) - plain).abs().max()
    assert right < 1e-6 < 1e-3 < wrong


def test_columns_of_all_scales_and_far_from_zero_are_no_trouble() -> None:
    x, y = data()
    x = x * 10.0 ** torch.arange(-6, 9, 3) + torch.tensor([0, 10, 1e4, 1e6, 1e8])
    result = with_ones(x) @ solve(simulation_with_labels(x, y))
    near = x - x.mean(0)
    unit = near / near.norm(dim=0)
    assert_close(result, with_ones(unit) @ clear(unit, y), rtol=0, atol=1e-9)


def test_columns_that_depend_on_others_get_the_shortest_coefficients() -> None:
    x = torch.cat(
        [draws(50, 3), draws(50, 3) @ draws(3, 2, name="mix"), torch.ones(50, 1)], 1
    )
    y = x[:, 0] + draws(50, name="noise")
    result = solve(simulation_with_labels(x, y))
    standard = (x[:, :5] - x[:, :5].mean(0)) / x[:, :5].std(0, correction=0)
    shortest = clear(standard, y)  # in columns of unit variance
    assert_close(
        result[:5] * x[:, :5].std(0, correction=0), shortest[:5], rtol=0, atol=1e-10
    )
    assert result[5] == 0  # the constant column
    assert_close(with_ones(x) @ result, with_ones(standard) @ shortest, rtol=0, atol=1e-10)


def test_fewer_labels_than_columns_are_fitted_exactly_by_the_shortest_model() -> None:
    x, y = data(80)
    result = solve(simulation_with_labels(x, y))
    assert_close(with_ones(x) @ result, y, rtol=0, atol=1e-9)
    std = x.std(0, correction=0)
    shortest = clear((x - x.mean(0)) / std, y)
    assert_close(result[:80] * std, shortest[:80], rtol=0, atol=1e-9)


@pytest.mark.parametrize("passes", [1, 2])
def test_a_ridge_is_for_columns_of_unit_variance_and_not_for_the_intercept(
    passes: Literal[1, 2],
) -> None:
    x, y = data()
    w = draws(50, name="weight").exp()
    mean = (w @ x) / w.sum()
    std = ((w @ (x - mean) ** 2) / w.sum()).sqrt()
    z = with_ones((x - mean) / std)
    spared = torch.diag(torch.tensor([1, 1, 1, 1, 1, 0]).double())
    theta = torch.linalg.solve(
        z.T @ (w[:, None] * z) + 0.3 * w.sum() * spared, z.T @ (w * y)
    )
    result = solve(
        weigh(simulation_with_labels(x, y, ServerSolve(ridge=0.3, passes=passes)), w)
    )
    assert_close(with_ones(x) @ result, z @ theta, rtol=0, atol=1e-11)


# -- the federation --------------------------------------------------------------------


def test_who_holds_a_row_does_not_matter() -> None:
    x, y = data()
    order = torch.randperm(50, generator=torch.Generator().manual_seed(0))
    assert_close(
        solve(simulation_with_labels(x[order], y[order])),
        solve(simulation_with_labels(x, y)),
        rtol=0,
        atol=1e-12,
    )


def test_it_is_the_same_as_bytes_and_behind_masks() -> None:
    x, y = data()
    plain = solve(simulation_with_labels(x, y))
    assert torch.equal(
        solve(simulation_with_labels(x, y, runtime=SerializingChannel)), plain
    )
    simulation = simulation_with_labels(x, y, privacy=SECURE)
    ask = asking(simulation)
    ask.owner = "training"
    result = ServerSolve().round(
        simulation.members["a"].parts.fresh(torch.Generator()), ask
    )["w"]
    assert_close(result, plain, rtol=0, atol=1e-9)


def test_a_site_without_labels_changes_nothing() -> None:
    x, y = data()
    sites, targets = shared(x, SIZES), shared(y, SIZES)
    simulation = federation({**sites, "d": draws(4, 5)}, Random())
    assert torch.equal(
        solve(labeled(simulation, {**targets, "d": y[:0]})),
        solve(simulation_with_labels(x, y)),
    )


def test_where_nobody_has_a_label_the_model_stays() -> None:
    simulation = federation(shared(draws(50, 5), SIZES), Random())
    assert solve(simulation).tolist() == [0.0] * 6


def test_every_site_has_the_model_and_rounds_agree() -> None:
    x, y = data()
    simulation = simulation_with_labels(x, y)
    state = simulation.members["a"].parts.fresh(torch.Generator())
    for _ in range(2):
        ask = simulation.ask("training")
        state = ServerSolve().round(state, ask)
        ask.flush()
        for site in simulation.members.values():
            assert torch.equal(site.memory["local"]["w"], state["w"])
            assert ServerSolve().deploy(state, site.memory) is state
    assert torch.equal(state["w"], solve(simulation_with_labels(x, y)))


def test_the_model_has_the_precision_of_the_recipe_and_is_solved_in_doubles() -> None:
    x, y = data()
    x[:, 0] += 1000
    result = solve(simulation_with_labels(x.float(), y.float()))
    assert result.dtype == torch.float32
    expected = clear(x.float().double(), y.float().double())
    assert_close(result.double(), expected, rtol=1e-6, atol=0)


# -- unsupported settings --------------------------------------------------------------


def test_another_model_is_refused() -> None:
    x, y = data()
    simulation = simulation_with_labels(x, y)
    for site in simulation.members.values():
        site.parts = replace(site.parts, layout=Layout.of(MLP((5,), 1, hidden=(3,))))
    with pytest.raises(
        RuntimeError, match=r"this one has body.1.weight, .*; set model=linear"
    ):
        solve(simulation)


def test_a_model_without_a_bias_is_refused_for_an_intercept() -> None:
    x, y = data()
    with pytest.raises(RuntimeError, match=r"use server-solve:intercept=false"):
        solve(simulation_with_labels(x, y, bias=False))


def test_a_label_that_is_not_a_number_stops_it_with_the_name_of_the_site() -> None:
    x, y = data()
    simulation = federation(shared(x, SIZES), Random())
    simulation.members["b"].buy([Label(0, torch.nan, 0)])
    with pytest.raises(
        ValueError, match=r"site b replied to 'normal' with targets that is NaN"
    ):
        solve(labeled(simulation, {**shared(y, SIZES), "b": y[:0]}))


@pytest.mark.parametrize("wrong", [{"ridge": -1.0}, {"ridge": float("inf")}, {"passes": 3}])
def test_wrong_numbers_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=rf"ServerSolve's {next(iter(wrong))} is"):
        ServerSolve(**wrong)
