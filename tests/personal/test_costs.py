"""How many gradients each method takes, and that every method says what it is."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import fallow.personal
from fallow.core import Method
from fallow.core.build import names
from fallow.core.local import Batch, Local, slot
from fallow.core.plan import Optimiser
from fallow.engine import Loop
from fallow.engine.learner import Autograd
from tests.engine.jobs import loop, mlp
from tests.personal.federation import METHODS, begun

each_method = pytest.mark.parametrize("method", METHODS, ids=lambda method: type(method).__name__)


@each_method
def test_a_step_takes_as_many_gradients_as_the_method_says(method: Any) -> None:
    executor: Loop = loop(mlp)
    learn = Autograd(executor.network, executor.loss, Optimiser(), heard=[])
    x = torch.linspace(-1, 1, 24, dtype=torch.float64).view(4, 6)
    batch = Batch(x, torch.tensor([0, 1, 2, 0]), torch.ones(4).double(), 0.1)
    w = slot(begun(mlp), Optimiser())
    method.step(method.start(w, {}), w, batch, learn)
    batches = 2 if type(method).__name__ == "PerFedAvg" else 1  # which takes two for a step
    assert len(learn.heard or ()) == method.gradients_per_batch * batches


@each_method
def test_every_method_has_a_contract_and_a_step(method: Any) -> None:
    assert isinstance(method, Method)
    assert isinstance(method, Local)


def test_every_method_but_dpfl_stands_in_these_tables() -> None:
    assert {type(method).__name__ for method in METHODS} == set(names(fallow.personal)) - {"DPFL"}
