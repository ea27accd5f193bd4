"""Labels reserved for validation are visible for validation only."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar, cast

import pytest
import torch
from torch import Tensor

from fallow.core.contract import Contract
from fallow.core.messages import Request, Step
from fallow.core.methods import Methods
from fallow.core.model_vectors import Layout
from fallow.core.streams import stream
from fallow.core.training_config import Optimizer, TrainingConfig, TrainingStage
from fallow.core.types import State
from fallow.core.view import View
from fallow.engine import predict
from fallow.sites import LocalSite, RunComponents
from fallow.sites.store import Label, MemoryStore
from fallow.sites.view import SiteView
from fallow.training import FedAvg
from tests.engine.jobs import mlp
from tests.keys import key_of

LABELS = [
    Label(row, row % 3, 0, weight=1.0 + row, is_validation=row in (2, 5))
    for row in range(8)
]


class Constant:
    """A training method that predicts the same number for every row."""

    contract: ClassVar[Contract] = Contract("constant", "a test", 2024)

    def predict(self, view: View, state: State, rows: Tensor) -> Tensor:
        return torch.full((len(rows), view.classes), 7.0)


def site(
    store: MemoryStore | None = None, training: object = FedAvg(), classes: int = 3
) -> LocalSite:
    model = mlp()
    methods = cast(
        Methods,
        {"training": training, "plain": FedAvg()},
        # toys with the requested attributes
    )
    layout = Layout.of(model)
    parts = RunComponents(
        model, layout, methods, classes, seed=0, fresh=lambda gen: layout.flatten(model)
    )
    x = torch.randn(12, 6, generator=stream(0, "rows"), dtype=torch.float64)
    return LocalSite("a", x, parts, store or MemoryStore())


def site_with_labels(**more: object) -> LocalSite:
    made = site(**more)  # type: ignore[arg-type]
    made.buy(LABELS)
    return made


def test_a_row_is_in_the_pool_or_trains_or_validates() -> None:
    made = site_with_labels()
    kinds = {"pool": [8, 9, 10, 11], "labeled": [0, 1, 3, 4, 6, 7], "validation": [2, 5]}
    view = SiteView(made, 0)
    for kind, rows in kinds.items():
        assert torch.equal(view.rows(kind), made.x[rows])  # type: ignore[arg-type]
    assert view.pool == 4
    assert view.labels.tolist() == [0, 1, 0, 1, 0, 1]
    assert view.validation_labels.tolist() == [2, 2]
    assert view.weights.tolist() == [1, 2, 4, 5, 7, 8]
    assert view.validation_weights.tolist() == [3, 6]
    assert view.counts.tolist() == made.counts.tolist() == [3, 3, 0]


def test_a_row_is_never_bought_twice() -> None:
    made = site_with_labels()
    with pytest.raises(ValueError, match="site a already has a label for example 3"):
        made.buy([Label(9, 0, 1), Label(3, 1, 1)])
    assert made.pool.tolist() == [8, 9, 10, 11]


def test_held_labels_do_not_train() -> None:
    made = site_with_labels()
    step = Step("fit", "local", {}, TrainingConfig((TrainingStage(1),), 4, Optimizer()))
    job = made.job(step, Request(key_of("0/query/0"), "training", 0, 0, (step,)))
    assert torch.equal(job.x, made.x[[0, 1, 3, 4, 6, 7]])
    assert job.y.tolist() == [0, 1, 0, 1, 0, 1]
    assert job.counts.tolist() == [3, 3, 0]


def test_they_are_held_back_after_the_store_is_opened_again() -> None:
    store = MemoryStore()
    site_with_labels(store=store)
    assert site(store).validation.tolist() == [2, 5]


def test_held_numbers_are_in_the_units_that_were_agreed_on() -> None:
    made = site_with_labels(classes=0)
    made.remember("targets", {"mean": torch.tensor(1.0), "std": torch.tensor(0.5)})
    assert SiteView(made, 0).validation_labels.tolist() == [2, 2]
    assert SiteView(made, 0).validation_labels.dtype == made.x.dtype


def test_looking_gives_features_and_the_outputs_of_a_forward_pass() -> None:
    made, view = site_with_labels(), SiteView(site_with_labels(), 0)
    state = Layout.of(mlp()).flatten(mlp())
    features, outputs = view.look(state, made.x)
    assert not outputs.requires_grad
    head = made.parts.model.head(features)  # type: ignore[operator]
    assert torch.allclose(head, outputs)
    assert torch.allclose(outputs, view.forward(state, made.x))
    assert torch.equal(
        view.outputs(state, made.x), predict(made.parts.model, view.layout, state, made.x)
    )


def test_a_training_method_may_predict_in_its_own_way() -> None:
    made = site_with_labels(training=Constant())
    state = Layout.of(mlp()).flatten(mlp())
    assert SiteView(made, 0).outputs(state, made.x[:2]).tolist() == [[7.0] * 3] * 2


def test_secret_draws_come_from_the_sites_own_secret_where_it_has_one() -> None:
    simulated, real = site(), site()
    simulated.parts = replace(simulated.parts, noise="seeded")
    real.parts = replace(real.parts, secret=77)
    drawn = [
        torch.rand(3, generator=SiteView(one, 2).secret("mask"))
        for one in (simulated, real, real)
    ]
    assert torch.equal(drawn[0], torch.rand(3, generator=simulated.streams("mask", 2)))
    assert not torch.equal(drawn[0], drawn[1])
    assert torch.equal(drawn[1], drawn[2])


def test_the_training_examples_follow_labels_that_come_leave_or_are_held_back() -> None:
    here = site_with_labels()

    def check(*rows: int) -> None:
        assert here.labeled.tolist() == list(rows)
        assert here.labels.tolist() == [row % 3 for row in rows]
        assert float(here.counts.sum()) == len(rows)
        assert here.job_weight.tolist() == pytest.approx(
            (here.weight[list(rows)] / here.weight[list(rows)].mean()).tolist()
        )

    check(0, 1, 3, 4, 6, 7)
    here.buy([Label(9, 0, 1)])
    check(0, 1, 3, 4, 6, 7, 9)
    here.leave([4])
    check(0, 1, 3, 6, 7, 9)
    with here.hold_back([9]):
        check(0, 1, 3, 6, 7)
        assert 9 in here.validation.tolist()
    check(0, 1, 3, 6, 7, 9)
