"""Safe defaults, and budgets that rounding cannot exceed."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import pytest
import torch

from fallow.core.client import declared
from fallow.core.model_vectors import Layout
from fallow.core.view import Release
from fallow.experiment.event_log import EventLog
from fallow.experiment.record import Record
from fallow.experiment.run import ExperimentRun
from fallow.experiment.simulation import SimulatedEnvironment, build_environment
from fallow.models.dense import Linear
from fallow.privacy.guard import ReleaseGuard
from fallow.privacy.ledger import add_up, as_written
from fallow.privacy.noise import draw_from_os
from fallow.privacy.settings import Privacy
from fallow.settings.config import ExperimentConfig, config_from
from fallow.sites import LocalSite, RunComponents
from fallow.sites.store import Label, MemoryStore
from fallow.sites.view import SiteView
from fallow.strategies import AHFAL
from tests.privacy.federation import Asker, asking, protected

# -- defaults --------------------------------------------------------------------------


def parts(**more: Any) -> RunComponents:
    model = Linear((2,), 2)
    layout = Layout.of(model)
    methods: Any = {"query": AHFAL()}  # only this is requested here
    return RunComponents(model, layout, methods, 2, 0, lambda generator: {}, **more)


def test_noise_is_secret_unless_a_simulation_asks_for_a_seed() -> None:
    assert parts().noise == "os"
    assert ReleaseGuard("a", Privacy(), MemoryStore(), 0).noise == "os"


def test_a_site_without_a_secret_draws_nothing_that_others_could_repeat() -> None:
    x = torch.zeros(3, 2)
    with pytest.raises(
        RuntimeError, match="site a has no secret for the random stream 'rotation'"
    ):
        SiteView(LocalSite("a", x, parts(), MemoryStore()), 0).secret("rotation")
    for safe in (parts(secret=1), parts(noise="seeded")):
        assert (
            SiteView(LocalSite("a", x, safe, MemoryStore()), 0).secret("rotation")
            is not None
        )


def simulate(**more: object) -> tuple[SimulatedEnvironment, list[Record]]:
    tiny = {
        "name": "tiny",
        "data": "digits",
        "rows": 120,
        "test_rows": 40,
        "sites": 3,
        "rounds": 1,
        "cycles": 1,
        "initial": 10,
        "budget": 4,
        "strategy": "ahfal",
        **more,
    }
    event_log = EventLog()
    simulation = build_environment(config_from(tiny), 0, event_log)
    return simulation, ExperimentRun(simulation, event_log).go()


def test_a_simulation_asks_for_seeded_noise_and_can_be_repeated() -> None:
    first, again = (simulate(privacy={"epsilon": 0.1})[1][-1] for _ in range(2))
    assert first["accuracy"] == again["accuracy"]
    assert first["revealed"] == again["revealed"]


@pytest.mark.parametrize("epsilon", [None, 0.5])
def test_what_a_simulation_holds_back_depends_on_labels_only_without_noise(
    epsilon: float | None,
) -> None:
    """Label the same examples first, once with other labels at two of four sites."""
    validation_rows = []
    for flip in (0, 2):
        simulation, _ = simulate(
            validation=0.5,
            flip=flip,
            rows=200,
            test_rows=80,
            sites=4,
            partition="patho:min_samples=2",
            privacy={"epsilon": epsilon},
        )
        members = simulation.members
        first = [e for name, s in members.items() for e in s.store.load_labels(name)]
        validation_rows.append([(e.row, e.is_validation) for e in first if e.cycle < 0])
    assert [row for row, _ in validation_rows[0]] == [row for row, _ in validation_rows[1]]
    assert (validation_rows[0] == validation_rows[1]) == (epsilon is not None)


def test_a_run_may_release_in_each_part_of_a_cycle() -> None:
    config = ExperimentConfig(
        "a", privacy=Privacy(epsilon=0.5), cycles=3, queries_per_cycle=2
    )
    assert config.protected.total == 3.0


# -- numbers ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wrong", [0, -0.0, -1.0, math.nan, math.inf, 1e300, 1e-300, 5e-324, 2e6, True]
)
def test_an_epsilon_that_protects_nothing_or_cannot_be_computed_with_is_refused(
    wrong: object,
) -> None:
    with pytest.raises(ValueError, match=r"privacy\.epsilon is"):
        Privacy(epsilon=wrong)  # type: ignore[arg-type]


def test_an_epsilon_in_quotes_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^epsilon is '1'; it must be a number or none$"):
        Privacy(epsilon="1")  # type: ignore[arg-type]


@pytest.mark.parametrize("epsilon", [1e-6, 0.1, 1 / 3, 0.7, 1.1, 3.3, 1e6])
@pytest.mark.parametrize("mechanism", ["laplace", "discrete_laplace"])
@pytest.mark.parametrize("sensitivity", [1.0, 2.0, 6.0])
def test_noise_never_costs_a_bit_more_than_what_is_entered(
    epsilon: float, mechanism: str, sensitivity: float
) -> None:
    """Check that `draw_from_os` raises if OpenDP does not prove the cost."""
    pytest.importorskip("opendp")
    noisy = draw_from_os(
        torch.zeros(3),
        sensitivity=sensitivity,
        epsilon=epsilon,
        mechanism=mechanism,  # type: ignore[arg-type]
    )
    assert bool(noisy.isfinite().all())


def test_a_total_that_is_a_little_too_small_is_too_small() -> None:
    federation = protected(Privacy(epsilon=0.1, total=0.3 - 1e-12))
    for cycle in range(2):
        asking(federation, cycle=cycle).sum(Asker().share)
    with pytest.raises(ValueError, match="rejects another one, which would cost"):
        asking(federation, cycle=2).sum(Asker().share)


@pytest.mark.parametrize("epsilon", [0.1, 0.57, 1.1, 1 / 3, 0.7, 2.0])
@pytest.mark.parametrize("strategies", [1, 3, 7, 100])
def test_the_total_of_all_queries_lets_each_of_them_release_and_no_more(
    epsilon: float, strategies: int
) -> None:
    total = Privacy(epsilon=epsilon).over(strategies).total
    assert total is not None
    spent = add_up([epsilon] * strategies)
    assert spent <= as_written(total) < spent + as_written(epsilon)
    assert float(Fraction(total) - spent) == pytest.approx(0, abs=1e-12 * strategies)


def test_what_was_spent_is_never_rounded() -> None:
    assert add_up([0.1] * 10) == 1
    assert add_up([1e6, 1e-6]) == Fraction(10**12 + 1, 10**6)


# -- AHFAL -----------------------------------------------------------------------------


def test_a_site_whose_noisy_counts_are_all_below_0_answers_with_equal_shares() -> None:
    release = AHFAL().share(SiteView(_make_labeled(), 0))
    assert release.post_noisy is not None
    sent = release.post_noisy(torch.tensor([-1.0, -3.0], dtype=torch.float64))
    assert torch.equal(torch.as_tensor(sent["share"]), torch.tensor([0.5, 0.5]).double())
    assert torch.equal(torch.as_tensor(sent["square"]), torch.tensor([0.25, 0.25]).double())
    assert float(torch.as_tensor(sent["one"])) == 1.0
    some = torch.tensor([-1.0, 3.0], dtype=torch.float64)
    assert {
        n: torch.as_tensor(v).tolist() for n, v in release.post_noisy(some).items()
    } == {n: torch.as_tensor(v).tolist() for n, v in release.post(some).items()}


def test_every_site_is_in_the_mean_behind_noise_and_none_without_labels_else() -> None:
    counts = torch.zeros(2, dtype=torch.float64)
    assert float(torch.as_tensor(AHFAL().post(counts)["one"])) == 0.0
    assert float(torch.as_tensor(AHFAL().post_noisy(counts)["one"])) == 1.0


def test_the_guard_sends_what_noisy_counts_are_made_into() -> None:
    """Check cycles in which all noisy counts of a site are below 0."""
    cycles = 20
    federation = protected(
        Privacy(epsilon=0.001), AHFAL(), strategies=cycles, noise="seeded"
    )
    for cycle in range(cycles):
        total = asking(federation, cycle=cycle).sum(Asker().share)
        assert float(total["one"]) == len(federation.members)
        assert float(total["share"].sum()) == pytest.approx(len(federation.members))


def _make_labeled() -> LocalSite:
    site = LocalSite("a", torch.zeros(3, 2), parts(), MemoryStore())
    site.buy([Label(0, 1.0, -1)])
    return site


def test_a_release_that_is_kept_is_no_release() -> None:
    """Check that a kept release, which has no noise, is neither declared nor sent."""
    assert declared(AHFAL())["share"].operation == "sum"
    assert isinstance(AHFAL().share(SiteView(_make_labeled(), 0)), Release)
