"""Least squares on masked examples."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from fallow.core.streams import stream
from fallow.core.types import State
from fallow.models.orthogonal import haar, mix, unmix
from fallow.strategies import FALE, Random
from fallow.training import MaskedSolve, ServerSolve
from fallow.training.masked_solve import shortest_solution
from fallow.transport.serialized import SerializingChannel
from tests.privacy.federation import SECURE, asking
from tests.simulations import Simulation
from tests.strategies.regression import (
    EPS,
    bought,
    draws,
    federation,
    labeled,
    overheard,
    picked,
    shared,
    stacked,
    svd_leverage,
    table,
    with_ones,
)

SIZES = (30, 2, 18)


def simulation_with_labels(
    x: Tensor, y: Tensor, solver: Any = None, w: Tensor | None = None, **more: Any
) -> Simulation:
    """Return three sites with all labels and these weights."""
    sites = shared(x, SIZES)
    targets = shared(y, SIZES)
    simulation = labeled(
        federation(sites, Random(), solver=solver or MaskedSolve(), **more), targets
    )
    weights = torch.ones_like(y) if w is None else w
    for site, part in zip(
        simulation.members.values(), torch.split(weights, list(SIZES)), strict=True
    ):
        site.weight = part
    return simulation


def train_round(simulation: Simulation, cycle: int = 0) -> State:
    """Return the state of the coordinator after one round."""
    site = simulation.members["a"]
    ask = simulation.ask("training", cycle)
    state: State = site.parts.methods["training"].round(
        site.parts.fresh(torch.Generator()), ask
    )
    ask.flush()
    return state


def solve(simulation: Simulation) -> Tensor:
    """Return the (d + 1,) slopes and bias that every site uses."""
    state = train_round(simulation)
    (first, *others) = simulation.members.values()
    method = first.parts.methods["training"]
    solution: Tensor = method.deploy(state, first.memory)["w"]
    for site in others:
        assert torch.equal(method.deploy(state, site.memory)["w"], solution)
        assert torch.equal(site.memory["local"]["w"], solution)
    return solution


def data(d: int = 5) -> tuple[Tensor, Tensor, Tensor]:
    x = draws(50, d) + 2
    y = x @ draws(d, name="slope") + 0.3 * draws(50, name="noise") + 7
    return x, y, draws(50, name="weight").exp()


def clear(x: Tensor, y: Tensor, w: Tensor) -> Tensor:
    """Solve pooled weighted least squares with minimum norm."""
    s = w.sqrt()[:, None]
    solution: Tensor = torch.linalg.lstsq(
        s * with_ones(x), s * y[:, None], driver="gelsd"
    ).solution
    return solution.squeeze(1)


# -- the solution ----------------------------------------------------------------------


def test_it_is_weighted_least_squares_over_all_sites() -> None:
    x, y, w = data()
    assert_close(
        solve(simulation_with_labels(x, y, w=w)), clear(x, y, w), rtol=0, atol=1e-11
    )
    plain = solve(simulation_with_labels(x, y, MaskedSolve(weighted=False), w))
    assert_close(plain, clear(x, y, torch.ones_like(y)), rtol=0, atol=1e-11)


def test_weights_on_masked_rows_would_be_another_problem() -> None:
    # Algorithm 1 as published: P and the weights do not commute
    x, y, w = data()
    q = haar(6, stream(0, "q"))
    generator = stream(0, "mask")
    s = w.sqrt()[:, None]
    rows = torch.cat([with_ones(x), y[:, None]], 1)
    right = mix(s * rows, generator, 6)
    wrong = s * mix(rows, generator, 6)
    ours, printed = (q @ shortest_solution(m[:, :-1] @ q, m[:, -1]) for m in (right, wrong))
    assert_close(ours, clear(x, y, w), rtol=0, atol=1e-11)
    assert float((printed - ours).abs().max()) > 1e-3


def test_targets_without_noise_give_the_true_model_whatever_the_weights() -> None:
    x = draws(50, 6)
    truth = draws(7, name="truth")
    w = (3 * draws(50, name="weight")).exp()
    assert_close(
        solve(simulation_with_labels(x, with_ones(x) @ truth, w=w)),
        truth,
        rtol=0,
        atol=1e-8,
    )


CASES: dict[str, Tensor] = {
    "full rank": draws(50, 5),
    "far from zero, of all scales": draws(50, 5) * 10.0 ** torch.arange(-1, 9, 2) + 50,
    "columns that depend on others": torch.cat(
        [draws(50, 3), draws(50, 3) @ draws(3, 2, name="mix"), torch.ones(50, 1)], 1
    ),
    "one-hot": torch.cat([torch.eye(5).repeat(10, 1).double(), draws(50, 2)], 1),
    "fewer labels than columns": draws(50, 80),
}


@pytest.mark.parametrize("ridge", [0.0, 0.3])
@pytest.mark.parametrize("x", CASES.values(), ids=CASES)
def test_it_is_the_model_of_server_solve(x: Tensor, ridge: float) -> None:
    y = x[:, 0] + draws(50, name="noise")
    w = draws(50, name="weight").exp()
    masked, totals = (
        solve(simulation_with_labels(x, y, m(ridge=ridge), w))
        for m in (MaskedSolve, ServerSolve)
    )
    size = x.std(0)
    spread = torch.cat([torch.where(size > 0, size, 1.0), torch.ones(1)])
    slopes = torch.arange(len(spread)) < x.shape[1]
    difference = (masked - totals) * spread  # in columns of unit variance
    assert float(difference[slopes].abs().max()) < 1e-8
    assert_close(with_ones(x) @ masked, with_ones(x) @ totals, rtol=0, atol=1e-8)


@pytest.mark.parametrize("power", [4, 6, 8, 10])
def test_predictions_are_right_for_columns_that_are_almost_the_same(power: int) -> None:
    x, y, w = data()
    x[:, 3] = x[:, 2] + 10.0**-power * x[:, 3]
    _, _, condition = svd_leverage(with_ones(x - x.mean(0)))
    plain = with_ones(x) @ clear(x, y, w)
    tolerance = max(1e-9, 100 * EPS * condition) * float(plain.abs().max())
    assert_close(
        with_ones(x) @ solve(simulation_with_labels(x, y, w=w)),
        plain,
        rtol=0,
        atol=tolerance,
    )


def test_without_an_intercept_the_line_goes_through_zero() -> None:
    x, y, w = data()
    s = w.sqrt()
    plain = torch.linalg.lstsq(s[:, None] * x, (s * y)[:, None]).solution.squeeze(1)
    for bias in (True, False):
        solution = solve(
            simulation_with_labels(x, y, MaskedSolve(intercept=False), w, bias=bias)
        )
        assert_close(solution[:5], plain, rtol=0, atol=1e-11)
        assert solution[5:].tolist() == [0.0] * bias


# -- after FALE ------------------------------------------------------------------------

SELECTIONS = {"gram": FALE(), "fedsvd": FALE(mode="fedsvd"), "tsqr": FALE(mode="tsqr")}


@pytest.mark.long
@pytest.mark.parametrize("rank", [5, 3])
def test_every_mode_and_every_solver_give_the_same_model(rank: int) -> None:
    sites = {name: x[:, :rank] @ draws(rank, 5, name="mix") for name, x in table().items()}
    y = {name: x[:, 0] ** 2 + x @ draws(5, name="slope") for name, x in sites.items()}
    solutions = []
    for strategy in SELECTIONS.values():
        for solver in (MaskedSolve(), ServerSolve()):
            simulation = federation(sites, strategy, solver=solver)
            picked(simulation, 6)
            solutions += [solve(bought(simulation, y))]
    for other in solutions[1:]:
        assert_close(other, solutions[0], rtol=0, atol=1e-8)


@pytest.mark.parametrize("strategy", SELECTIONS.values(), ids=SELECTIONS)
def test_a_budget_of_all_rows_is_ordinary_least_squares(strategy: FALE) -> None:
    sites = table()
    y = {name: x[:, 0] ** 2 for name, x in sites.items()}
    simulation = federation(sites, strategy, solver=MaskedSolve())
    picked(simulation, 100)
    plain = clear(stacked(sites), stacked(y), torch.ones(60).double())
    assert_close(solve(bought(simulation, y)), plain, rtol=0, atol=1e-10)


# -- the federation --------------------------------------------------------------------


def test_it_is_the_same_as_bytes() -> None:
    x, y, w = data()
    assert torch.equal(
        solve(simulation_with_labels(x, y, w=w, runtime=SerializingChannel)),
        solve(simulation_with_labels(x, y, w=w)),
    )


def test_the_server_holds_a_model_that_it_cannot_read() -> None:
    x, y, w = data()
    simulation = simulation_with_labels(x, y, w=w)
    state = train_round(simulation)
    model = solve(simulation)
    q = simulation.members["b"].memory["turn/a"]["q"]
    theta = q @ state["w"]
    assert float((theta - state["w"]).abs().max()) > 0.01 * float(theta.norm())
    assert float(theta.norm()) == pytest.approx(float(state["w"].norm()))  # its length does
    assert_close(model[:5] / state["unit"][:5], theta[:5], rtol=1e-9, atol=1e-9)


def test_bytes_of_masked_rows_are_those_of_the_formula() -> None:
    x, y, w = data()
    simulation = simulation_with_labels(x, y, w=w)
    train_round(simulation)
    shown = {row["function"]: row for row in simulation.shown.rows()}
    n = 50
    d = 5
    k = 6
    sites = 3
    assert shown["masked"]["bytes"] == 8 * n * (k + 1)
    assert shown["masked"]["bytes_down"] == sites * (8 * (d + k) + 1)
    assert shown["center"]["bytes"] == 8 * sites * (d + 1)
    assert shown["columns"]["bytes"] == 8 * sites * 2 * d
    assert shown["turn"]["bytes"] == 8 * sites * k * k


def test_masks_are_fresh_in_every_cycle_and_not_those_of_the_selection() -> None:
    x, y, w = data()
    simulation, channel = overheard(simulation_with_labels(x, y, w=w))
    for cycle in range(2):
        train_round(simulation, cycle)
    first, second = (channel.answered("masked", at)["a"]["targets"] for at in (0, 1))
    assert float((first - second).abs().max()) > 0.01
    site = simulation.members["a"]
    s_y = w[:30].sqrt() * y[:30]
    bare = [
        unmix(first, site.streams(p, 0), 6) for p in ("mask of labeled examples", "mask")
    ]
    assert_close(bare[0], s_y, rtol=0, atol=1e-12)
    assert float((bare[1].abs() - s_y.abs()).abs().max()) > 0.01  # the mask of a selection
    turns = [haar(6, site.streams(p, 0)) for p in ("turn", "rotation")]
    assert torch.equal(site.memory["turn/a"]["q"], haar(6, site.streams("turn", 1)))
    assert float((turns[0] - turns[1]).abs().max()) > 0.01


def test_a_site_without_labels_changes_nothing() -> None:
    x, y, _ = data()
    sites = shared(x, SIZES)
    targets = shared(y, SIZES)
    simulation = federation({**sites, "d": draws(4, 5)}, Random(), solver=MaskedSolve())
    solution = solve(labeled(simulation, {**targets, "d": y[:0]}))
    assert_close(solution, solve(simulation_with_labels(x, y)), rtol=0, atol=1e-12)


def test_where_nobody_has_a_label_the_model_stays() -> None:
    simulation = federation(shared(draws(50, 5), SIZES), Random(), solver=MaskedSolve())
    assert solve(simulation).tolist() == [0.0] * 6


def test_the_model_has_the_precision_of_the_recipe_and_is_solved_in_doubles() -> None:
    x, y, w = data()
    x[:, 0] = 1000 * x[:, 0] + 1e4
    solution = solve(simulation_with_labels(x.float(), y.float(), w=w.float()))
    assert solution.dtype == torch.float32
    expected = clear(x.float().double(), y.float().double(), w.float().double())
    assert_close(solution.double(), expected, rtol=1e-6, atol=0)


# -- unsupported settings --------------------------------------------------------------


def test_a_round_without_some_sites_is_refused() -> None:
    x, y, _ = data()
    simulation = simulation_with_labels(x, y)
    ask = simulation.ask("training")
    ask.cohort = ("a", "b")
    with pytest.raises(
        ValueError, match=r"needs all 3 sites .* has 2: .* set participation=1"
    ):
        MaskedSolve().round(simulation.members["a"].parts.fresh(torch.Generator()), ask)


@pytest.mark.parametrize(
    "strategy", [FALE(mode="fedsvd"), FALE(mode="tsqr"), MaskedSolve()]
)
def test_what_reads_single_answers_says_that_secure_sums_are_not_for_it(
    strategy: Any,
) -> None:
    assert not strategy.contract.secure_sum
    assert FALE().contract.secure_sum


def test_secure_sums_stop_masked_rows_at_the_site() -> None:
    x, y, _ = data()
    simulation = simulation_with_labels(x, y, privacy=SECURE)
    ask = asking(simulation)
    ask.owner = "training"
    with pytest.raises(
        ValueError, match="does not answer 'masked' by each: with secure aggregation"
    ):
        MaskedSolve().round(simulation.members["a"].parts.fresh(torch.Generator()), ask)


def test_a_model_that_is_not_linear_is_refused_by_name() -> None:
    x, y, _ = data()
    with pytest.raises(RuntimeError, match=r"use masked-solve:intercept=false"):
        solve(simulation_with_labels(x, y, bias=False))


@pytest.mark.parametrize("wrong", [-1.0, float("inf")])
def test_a_wrong_ridge_is_refused(wrong: float) -> None:
    with pytest.raises(ValueError, match="MaskedSolve's ridge is"):
        MaskedSolve(ridge=wrong)
