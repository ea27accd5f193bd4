"""Selection from arrays equals selection in a run, for every query strategy."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import fallow as fl
from fallow.core.model_vectors import Layout
from fallow.experiment.event_log import EventLog
from fallow.experiment.run import ExperimentRun
from fallow.experiment.simulation import SimulatedEnvironment, environment_of
from fallow.settings.spec import Spec
from tests.contracts.strategies import FOR_NUMBERS, STRATEGIES, every
from tests.simulations import simulation as made_up
from tests.simulations import tables

READS_VALIDATION = [fl.Entropy(model="better"), fl.Complementary(temperature=0.5)]
ON_NUMBERS = [s for s in STRATEGIES if s.contract.regression is not False]
ON_NUMBERS = [s for s in ON_NUMBERS if s.contract.regression or not s.contract.needs]


@pytest.fixture(scope="module")
def digits() -> fl.Dataset:
    values = fl.load("digits")
    return replace(
        values,
        x=values.x[:240].flatten(1),
        y=values.y[:240],
        x_test=values.x_test[:20].flatten(1),
        y_test=values.y_test[:20],
    )


@pytest.fixture(scope="module")
def numbers() -> fl.Dataset:
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(200, 5, generator=draw)
    y = x @ torch.randn(5, generator=draw) + 0.1 * torch.randn(200, generator=draw)
    return fl.from_arrays(x, y, name="numbers")


@dataclass(frozen=True)
class Begun:
    """A run of three sites after its first phase, and the data of its sites as arrays."""

    run: ExperimentRun
    event_log: EventLog
    state: dict[str, Tensor]
    sites: dict[str, fl.Site]
    rows: dict[str, Tensor]  # example at the site for each position in its pool

    def picks_of_run(self) -> dict[str, list[int]]:
        """Return the examples of each site that the first query selects, sorted."""
        wanted = self.run.simulation.budget_for(self.run.config.budget_of(0))
        self.run._query(0, 0, {}, self.state, wanted)
        return {
            name: [
                label.row for label in self.event_log.load_labels(name) if label.cycle == 0
            ]
            for name in self.sites
        }

    def picks_of_arrays(self, strategy: Any) -> dict[str, list[int]]:
        wanted = self.run.simulation.budget_for(self.run.config.budget_of(0))
        result = fl.select(self.sites, strategy, n=wanted, seed=3)
        return {name: sorted(self.rows[name][at].tolist()) for name, at in result.items()}


def begun(data: fl.Dataset, strategy: Any, **settings: Any) -> Begun:
    config = fl.ExperimentConfig(
        "same",
        data=data.name,
        model=Spec("mlp", {"hidden": [8]}),
        strategy=Spec.of(strategy),
        partition=Spec("iid"),
        local_source="last_round",
        sites=3,
        rounds=1,
        score_rounds=1,
        cycles=1,
        initial=0.2,
        budget=4,
        executor="loop",
        **settings,
    )
    event_log = EventLog()
    run = ExperimentRun(environment_of(config, 3, data, event_log), event_log)
    run.initial()
    state = run._load_state(run._phase(0, None))
    simulation = run.simulation
    assert isinstance(simulation, SimulatedEnvironment)
    sites, rows = {}, {}
    for name, site in simulation.members.items():
        rows[name] = site.pool
        sites[name] = fl.Site(
            pool=site.seen[site.pool].numpy(),
            labeled=(site.seen[site.labeled].numpy(), site.labels.numpy()),
            model={
                "local": module(site.memory["local"], site.parts.layout, data),
                "global": module(state, site.parts.layout, data),
            },
            validation=(site.seen[site.validation], site.targets(site.validation)),
            hidden=simulation.oracle.hidden[name][site.pool],
        )
    return Begun(run, event_log, state, sites, rows)


def module(state: dict[str, Tensor], layout: Layout, data: fl.Dataset) -> nn.Module:
    fresh = fl.MLP(hidden=[8]).build(data.x.shape[1:], data.n_classes or 1)
    return layout.load(fresh, {"w": state["w"], "stats": state["stats"]})


@pytest.mark.long
@every
def test_a_selection_picks_what_a_run_picks(strategy: Any, digits: fl.Dataset) -> None:
    outcome = begun(digits, strategy)
    assert outcome.picks_of_arrays(strategy) == outcome.picks_of_run()


@pytest.mark.parametrize("strategy", READS_VALIDATION, ids=str)
def test_validation_rows_are_read_as_in_a_run(strategy: Any, digits: fl.Dataset) -> None:
    outcome = begun(digits, strategy, validation=0.3)
    assert outcome.picks_of_arrays(strategy) == outcome.picks_of_run()


@pytest.mark.long
@pytest.mark.parametrize("strategy", ON_NUMBERS, ids=str)
def test_numbers_to_predict_give_the_picks_of_a_run(
    strategy: Any, numbers: fl.Dataset
) -> None:
    outcome = begun(numbers, strategy)
    assert outcome.picks_of_arrays(strategy) == outcome.picks_of_run()


def test_every_strategy_is_compared() -> None:
    assert {type(s) for s in ON_NUMBERS} >= set(FOR_NUMBERS)


@pytest.mark.long
@every
def test_a_selection_picks_in_the_order_of_the_contract_tests(strategy: Any) -> None:
    tables_ = tables()
    federation = made_up(tables_, strategy, seed=5)
    wanted = federation.selected(4)
    sites = {}
    for name, site in federation.members.items():
        models = {
            model: site.parts.layout.load(
                fl.Linear().build((6,), 3).to(torch.float64), site.memory[model]
            )
            for model in ("local", "global")
        }
        sites[name] = fl.Site(
            pool=site.x[site.pool],
            labeled=(site.x[site.labeled], site.labels),
            model=models,
            hidden=tables_[name].hidden()[: len(site.pool)],
        )
    values = fl.select(sites, strategy, n=4, seed=5)
    assert {name: rows.tolist() for name, rows in values.items() if len(rows)} == wanted


def list_sites(state: Begun) -> dict[str, fl.Site]:
    """Return the same sites with model outputs instead of a model."""
    sites = {}
    for name, site in state.sites.items():
        outputs, features = {}, {}
        assert isinstance(site.model, dict) and site.labeled is not None
        for model, network in site.model.items():
            parts = [torch.as_tensor(site.pool), torch.as_tensor(site.labeled[0])]
            with torch.no_grad():
                outputs[model] = tuple(network(rows).numpy() for rows in parts)
                features[model] = tuple(network.embed(rows).numpy() for rows in parts)
        sites[name] = replace(site, model=None, outputs=outputs, features=features)
    return sites


def needs_a_module(strategy: Any) -> bool:
    """Check whether a strategy reads weights or runs a model itself."""
    if isinstance(strategy, fl.BALD):
        return not strategy.ensemble
    if isinstance(strategy, fl.Entropy):
        return strategy.model not in ("local", "global")
    return isinstance(
        strategy, fl.Complementary | fl.DropQuery | fl.IFAL | fl.NoiseStability
    )


@pytest.fixture(scope="module")
def trained(digits: fl.Dataset) -> Begun:
    """Return models that no query strategy has an effect on."""
    return begun(digits, fl.Random())


@pytest.mark.long
@every
def test_outputs_and_features_stand_in_for_a_module(strategy: Any, trained: Begun) -> None:
    state = trained
    with_module = fl.select(state.sites, strategy, n=4, seed=3)
    try:
        without = fl.select(list_sites(state), strategy, n=4, seed=3)
    except ValueError as error:
        assert str(error).endswith("give model=module")
        assert needs_a_module(strategy)
    else:
        assert not needs_a_module(strategy)
        for name, rows in with_module.items():
            assert without[name].tolist() == rows.tolist()
