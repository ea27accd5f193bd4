"""Numbers of gradients per algorithm, and descriptions of all algorithms."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from fallow.core.local import Batch, LocalTraining, slot
from fallow.core.methods import Method
from fallow.core.training_config import Optimizer, TrainingStage
from fallow.engine import Loop
from fallow.engine.learner import Autograd
from fallow.training.personal import DPFL
from tests.engine.jobs import loop, mlp
from tests.training.personal.collaborators import CONFIG, N, dpfl, ran
from tests.training.personal.federation import METHODS, TRAINING_ANY_MODEL, first_state

each_method = pytest.mark.parametrize(
    "method", METHODS, ids=lambda method: type(method).__name__
)


@each_method
def test_a_step_takes_as_many_gradients_as_the_method_says(method: Any) -> None:
    executor: Loop = loop(mlp)
    learn = Autograd(executor.network, executor.loss, Optimizer(), batch_losses=[])
    x = torch.linspace(-1, 1, 24, dtype=torch.float64).view(4, 6)
    batch = Batch(x, torch.tensor([0, 1, 2, 0]), torch.ones(4).double(), 0.1)
    w = slot(first_state(mlp), Optimizer())
    method.step(method.start(w, {}), w, batch, learn)
    batches = 2 if type(method).__name__ == "PerFedAvg" else 1  # which takes two per step
    assert len(learn.batch_losses or ()) == method.contract.gradients_per_batch * batches


@each_method
def test_every_method_has_a_contract_and_a_step(method: Any) -> None:
    assert isinstance(method, Method)
    assert isinstance(method, LocalTraining)


ROUNDS = 5
EXACT = ("full", "static", "resampled")


@pytest.mark.long
@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"budget": 3},
        {"budget": [1, 2, 3, 9, 4], "counts_self": False},
        {"reach": "ring-1"},
        {"reach": "random-3", "budget": 2, "tau_init": 0},
        {"reach": [[1], [0, 2], [], [4], [0]]},
        {"period": 2},
        {"period": 2, "between": "local", "tau_init": 3},
        {"graph": "symmetric-or", "budget": 3},
        {"graph": "symmetric-and"},
        {"graph": "degree", "budget": 3},
        {"graph": "full"},
        *({"graph": graph, "budget": 3} for graph in ("static", "resampled")),
    ],
    ids=str,
)
def test_no_run_of_dpfl_costs_more_than_it_says(fields: dict[str, Any]) -> None:
    result = ran(ROUNDS, **fields)
    output = result.method.load(N, ROUNDS)
    received = sum(result.watch.received.values())
    tried = [
        s["evaluations"].sum()
        for s, t in zip(result.history, result.history[1:], strict=False)
        if "evaluations" in s and s["evaluations"] is not t.get("evaluations")
    ]
    assert 0 < received <= output.models
    assert int(sum(tried)) <= output.evaluations
    if fields.get("graph") in EXACT:
        assert (received, output.evaluations) == (output.models, 0)
    else:
        assert output.models < 3 * received


def test_the_published_bounds_are_reached_where_nothing_is_spared() -> None:
    training_config = replace(CONFIG, stages=(TrainingStage(5),))
    per_site = {
        None: 9801,
        20: 2060,
        10: 1080,
        5: 590,
    }  # 100 sites, 98 rounds after preprocessing
    for budget, models in per_site.items():
        output = DPFL(training_config, budget=budget).load(100, 100)
        assert output.models == 100 * models
    assert DPFL(training_config).load(100, 100).evaluations == 100 * (200 + 98 * 200)
    assert DPFL(training_config, budget=10).load(100, 100).evaluations == 100 * (
        200 + 98 * 20
    )


def test_a_phase_that_goes_on_has_one_round_of_preprocessing() -> None:
    whole, on = (dpfl(budget=3).load(N, ROUNDS, resumed) for resumed in (False, True))
    one = dpfl(budget=3, tau_init=2).load(N, ROUNDS)
    assert on == one != whole
    assert dpfl(graph="full").load(N, ROUNDS, resumed=True).models == ROUNDS * N * (N - 1)


def test_every_method_but_dpfl_stands_in_these_tables() -> None:
    in_tables = {type(method).__name__ for method in METHODS}
    assert in_tables == set(TRAINING_ANY_MODEL) - {"DPFL"}
