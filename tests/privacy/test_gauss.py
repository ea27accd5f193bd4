"""Gaussian noise: scale, privacy cost, and composition of releases."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from fallow.core.messages import Request, Step
from fallow.core.refusal import Refusal
from fallow.core.streams import stream
from fallow.core.view import Release
from fallow.privacy.gaussian import (
    cost_of_next,
    costs_of,
    draw_gaussian_from_os,
    draw_gaussian_seeded,
    epsilon_of,
    rho_of,
    scale_of,
)
from fallow.privacy.ledger import Released, add_up, as_written, check_delta
from fallow.privacy.settings import Privacy
from tests.keys import key_of
from tests.privacy.federation import Asker, asking, protected

DELTA = 1e-5
EPSILONS = pytest.mark.parametrize("epsilon", [1e-6, 0.1, 1.0, 8.0, 1e6])


def normal_below(x: float) -> float:
    """Return Φ, the probability that a standard normal variable is below ``x``."""
    return math.erfc(-x / math.sqrt(2)) / 2


@EPSILONS
@pytest.mark.parametrize("delta", [1e-2, 1e-5, 1e-12])
def test_a_release_is_never_said_to_cost_less_than_its_noise_does(
    epsilon: float, delta: float
) -> None:
    rho = rho_of(epsilon, delta)
    assert epsilon_of(rho, delta) <= epsilon
    assert epsilon_of(rho, delta) == pytest.approx(epsilon, rel=1e-9)


@pytest.mark.parametrize("rho", [1e-6, 1e-3, 0.02, 0.5, 3.0, 40.0])
@pytest.mark.parametrize("delta", [1e-2, 1e-5, 1e-12])
def test_the_conversion_is_that_of_opendp(rho: float, delta: float) -> None:
    dp = pytest.importorskip("opendp.prelude")
    assert epsilon_of(rho, delta) == pytest.approx(convert(dp, rho, delta), rel=1e-12)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 2.0, 4.0, 8.0])
def test_opendp_charges_noise_what_was_allowed_and_hardly_less(epsilon: float) -> None:
    dp = pytest.importorskip("opendp.prelude")
    charged = convert(dp, rho_of(epsilon, DELTA), DELTA)
    assert epsilon * (1 - 1e-9) <= charged <= epsilon


def convert(dp: Any, rho: float, delta: float) -> float:
    """Return the epsilon at which OpenDP proves a release of ``rho``."""
    dp.enable_features("contrib")
    domain = dp.vector_domain(dp.atom_domain(T=float, nan=False))
    release = dp.m.make_gaussian(domain, dp.l2_distance(T=float), scale=1.0)
    profile = dp.c.make_zCDP_to_approxDP(release).map(math.sqrt(2 * rho))
    return float(profile.epsilon(delta))


def test_epsilon_at_delta_holds_for_the_gaussian_mechanism_itself() -> None:
    """Check against δ = Φ(Δ/2σ - εσ/Δ) - e^ε Φ(-Δ/2σ - εσ/Δ) (Balle and Wang, 2018)."""
    for epsilon in (0.5, 1.0, 4.0, 8.0):
        ratio = 1 / scale_of(1.0, rho_of(epsilon, DELTA))
        low = normal_below(ratio / 2 - epsilon / ratio)
        high = normal_below(-ratio / 2 - epsilon / ratio)
        assert low - math.exp(epsilon) * high <= DELTA


@EPSILONS
def test_what_releases_cost_adds_up_to_what_they_cost_together(epsilon: float) -> None:
    costs = costs_of(7, epsilon, DELTA)
    together = epsilon_of(7 * rho_of(epsilon, DELTA), DELTA)
    assert costs[0] == epsilon
    assert together <= sum(costs) <= together * (1 + 1e-9)
    if epsilon >= 0.1:  # below, most of the first release is covered by delta
        assert costs == sorted(costs, reverse=True)


def test_a_run_may_spend_exactly_what_its_closes_cost() -> None:
    privacy = Privacy(epsilon=0.7).over(2, closes=5, delta=DELTA)
    exact = as_written(0.7) * 2 + add_up(costs_of(5, 0.7, DELTA))
    assert privacy.total is not None
    assert exact <= as_written(privacy.total) <= exact + as_written(1e-12)
    assert Privacy(epsilon=0.7).over(0, closes=1, delta=DELTA).total == 0.7


def test_seeded_noise_has_the_scale_that_the_cost_says() -> None:
    draw = stream(0, "gauss")
    gaussian_seeded = draw_gaussian_seeded(torch.ones(40_000), 3.0, draw)
    assert float(gaussian_seeded.mean()) == pytest.approx(1.0, abs=0.08)
    assert float(gaussian_seeded.std()) == pytest.approx(3.0, rel=0.02)


def test_noise_at_a_real_site_is_drawn_by_opendp_with_that_scale() -> None:
    pytest.importorskip("opendp")
    rho = rho_of(1.0, DELTA)
    gaussian = draw_gaussian_from_os(torch.full((3000,), 5.0), sensitivity=2.0, rho=rho)
    scale = scale_of(2.0, rho)
    assert float(gaussian.mean()) == pytest.approx(5.0, abs=4 * scale / 3000**0.5)
    assert float(gaussian.std()) == pytest.approx(scale, rel=0.08)
    again = draw_gaussian_from_os(torch.full((3000,), 5.0), sensitivity=2.0, rho=rho)
    assert not bool((gaussian == again).any())


@EPSILONS
def test_opendp_proves_the_cost(epsilon: float) -> None:
    pytest.importorskip("opendp")
    gaussian = draw_gaussian_from_os(
        torch.zeros(1), sensitivity=4.5**0.5, rho=rho_of(epsilon, DELTA)
    )
    assert bool(gaussian.isfinite().all())


# -- at a site -------------------------------------------------------------------------


class Numbers:
    """A method that releases numbers with Gaussian noise."""

    def __init__(self) -> None:
        self.contract = Asker.contract

    def share(self, view: Any) -> Release:
        return Release(view.counts, sensitivity=2.0**0.5, delta=DELTA)


def test_each_release_of_a_run_is_booked_at_what_it_adds() -> None:
    federation = protected(Privacy(epsilon=1.0, total=2.0), Numbers())
    for cycle in range(3):
        asking(federation, cycle=cycle).sum(Asker().share)
    booked = federation.members["a"].store.load_releases("a")
    assert [line.epsilon for line in booked.values()] == costs_of(3, 1.0, DELTA)
    assert {line.rho for line in booked.values()} == {rho_of(1.0, DELTA)}
    with pytest.raises(ValueError, match=r"spent epsilon 1\.824.* of 2 in 3 releases"):
        asking(federation, cycle=3).sum(Asker().share)


def test_delta_is_booked_once_for_all_releases_of_a_run() -> None:
    federation = protected(Privacy(epsilon=1.0, total=3.0), Numbers())
    for cycle in range(3):
        asking(federation, cycle=cycle).sum(Asker().share)
    booked = federation.members["a"].store.load_releases("a")
    assert [line.delta for line in booked.values()] == [DELTA, 0.0, 0.0]


def test_a_delta_above_one_divided_by_the_examples_is_refused() -> None:
    """Check delta < 1 / n, since a larger one would permit publishing an example."""
    check_delta("a", 1e-5, 100_000)
    with pytest.raises(Refusal, match=r"delta is 0\.01, above 1/101 = 0\.0099"):
        check_delta("a", 0.01, 101)
    federation = protected(Privacy(epsilon=1.0), Numbers())
    site = federation.members["a"]
    request = Request(key_of("0/query/0"), "query", 0, 0, (Step("sum", "share", {}),))
    release = Release(torch.ones(3), 1.0, delta=1.1 / len(site.x))
    with pytest.raises(Refusal, match=r"above 1/"):
        site.guard.protect(request.steps[0], request, release)
    assert not site.store.load_releases("a")


def test_the_same_question_has_the_same_answer_and_costs_nothing() -> None:
    federation = protected(Privacy(epsilon=1.0), Numbers(), noise="os")
    pytest.importorskip("opendp")
    first, again = (asking(federation).sum(Asker().share)["counts"] for _ in range(2))
    assert torch.equal(torch.as_tensor(first), torch.as_tensor(again))
    assert len(federation.members["a"].store.load_releases("a")) == 1


def test_without_epsilon_nothing_leaves_that_wants_gaussian_noise() -> None:
    federation = protected(Privacy(), Numbers())
    site = federation.members["a"]
    request = Request(key_of("0/query/0"), "query", 0, 0, (Step("sum", "share", {}),))
    release = Release(torch.ones(3), 1.0, delta=DELTA)
    with pytest.raises(Refusal, match=r"without noise: set privacy\.epsilon"):
        site.guard.protect(request.steps[0], request, release)


def test_a_line_of_laplace_noise_is_written_as_it_always_was() -> None:
    plain = Released(0.5, "digest", {})
    line = {"epsilon": 0.5, "digest": "digest", "reply": {}, "key": "1"}
    assert plain.to_line("1") == line
    noisy = Released(0.5, "d", {}, rho=0.25)
    assert Released.from_line(noisy.to_line("1"), "1") == noisy


@pytest.mark.parametrize("delta", [-0.1, 1.0, float("nan")])
def test_a_delta_that_is_none_is_refused(delta: float) -> None:
    with pytest.raises(ValueError, match="must be at least 0 and below 1"):
        Release(torch.ones(1), 1.0, delta=delta)


def test_counts_and_totals_beside_each_other_add_up() -> None:
    """Check the sum of ε of counts (pure) and ε of all aggregates."""
    rho = rho_of(0.5, DELTA)
    assert cost_of_next(0.0, 0.5, DELTA) == 0.5
    assert cost_of_next(rho, 0.5, DELTA) < 0.25
