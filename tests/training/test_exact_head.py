"""Closed-form last layer of a trained model against scikit-learn on its features."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import pytest
import torch
from sklearn.linear_model import Ridge
from torch.testing import assert_close

import fallow as fl
from fallow.core.ask import Ask
from fallow.core.client import declared, find_wrong_argument
from fallow.core.disclosure import Disclosure
from fallow.core.exchange_key import ExchangeKey
from fallow.core.methods import Methods
from fallow.core.model_vectors import Layout
from fallow.core.streams import stream
from fallow.core.types import State
from fallow.core.values import SenderFacts, resolve_dims
from fallow.engine import Loop, row_loss
from fallow.models.networks import MLP
from fallow.settings.config import ExperimentConfig
from fallow.sites import LocalSite, RunComponents
from fallow.sites.in_process import InProcessChannel
from fallow.sites.store import Label, MemoryStore
from fallow.strategies import Random
from fallow.training import FedAvg
from fallow.training.exact_head import ExactHead
from tests.simulations import Forgetful
from tests.training.closed import CLASSES, FEATURES, rows_with_classes, targets

HIDDEN = 5
HALVES = (range(0, 20), range(20, 50))  # ten more examples are unlabeled


def solve(parts_of: Sequence[range]) -> tuple[State, State, MLP]:
    """Return both states and the model for 60 examples, 50 of them labeled."""
    rows = rows_with_classes()
    model = MLP((FEATURES,), CLASSES, hidden=(HIDDEN,)).double()
    layout = Layout.of(model)
    model.reset(stream(0, "init"))
    before = layout.flatten(model)
    methods: Methods = {
        "query": Random(),
        "training": FedAvg(),
        "plain": FedAvg(),
        "head": ExactHead(),
    }
    parts = RunComponents(
        model, layout, methods, CLASSES, 0, lambda _: before, noise="seeded"
    )
    members = {}
    for name, part in zip("abc", parts_of, strict=False):
        at = list(part)
        if name == "a":
            at += list(range(50, 60))
        site = LocalSite(name, rows.z[at], parts, MemoryStore())
        site.buy([Label(i, int(rows.y[row]), 0) for i, row in enumerate(part)])
        members[name] = site
    channel = InProcessChannel(members, Loop(model, layout, row_loss("classification")))
    ask = Ask(channel, Forgetful(), Disclosure(), ExchangeKey("train", "head"), "head")
    return before, ExactHead().solve(before, ask), model


def test_it_is_scikit_learns_ridge_on_the_features_of_the_body() -> None:
    _, after, model = solve(HALVES)
    rows = rows_with_classes()
    features = model.embed(rows.z).detach()
    deviation = features.std(0, correction=0)
    varies = deviation > 0
    unit = torch.where(varies, 1 / (deviation * HIDDEN**0.5), 0.0)
    z = (features - features.mean(0)) * unit

    fitted = Ridge(alpha=float(after["penalty"]) * 50, solver="svd")
    fitted.fit(z[:50].numpy(), targets(rows)[:50].numpy())
    Layout.of(model).load(model, after)
    result = model(rows.z).detach() / after["temperature"]
    assert_close(result, torch.from_numpy(fitted.predict(z.numpy())), rtol=0, atol=1e-9)


def test_the_body_stays_as_it_was_trained() -> None:
    before, after, _ = solve(HALVES)
    last = CLASSES * HIDDEN + CLASSES
    assert torch.equal(after["w"][:-last], before["w"][:-last])
    assert not torch.allclose(after["w"][-last:], before["w"][-last:])


def test_who_holds_a_row_does_not_matter() -> None:
    _, shared, _ = solve(HALVES)
    _, whole, _ = solve([range(0, 50)])
    assert_close(shared["w"], whole["w"], rtol=0, atol=1e-9)
    assert shared["temperature"] == whole["temperature"]


def test_without_a_label_the_head_stays() -> None:
    before, after, _ = solve([range(0, 0), range(50, 50)][:1])
    assert torch.equal(after["w"], before["w"])


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("mean", torch.zeros(HIDDEN + 1)),
        ("mean", torch.full((HIDDEN,), torch.nan)),
        ("unit", torch.ones(1, HIDDEN)),
        ("unit", -torch.ones(HIDDEN)),
    ],
)
def test_units_that_are_none_of_the_body_are_refused_in_words(
    name: str, wrong: torch.Tensor
) -> None:
    layout = Layout.of(MLP((FEATURES,), CLASSES, hidden=[HIDDEN]))
    known = SenderFacts(resolve_dims(layout, CLASSES, 2))
    sent = {"mean": torch.zeros(HIDDEN), "unit": torch.ones(HIDDEN)}
    takes = declared(ExactHead())["totals"].takes
    assert takes is not None
    assert find_wrong_argument(takes, sent, known) is None
    why = find_wrong_argument(takes, {**sent, name: wrong}, known)
    assert why is not None
    assert why.startswith(f"{name} ")


def test_many_rows_have_the_units_of_all_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Check scaling if the examples of a site are processed block by block."""
    _, whole, _ = solve(HALVES)
    monkeypatch.setattr("fallow.training.exact_head.BLOCK", 7)
    _, blocks, _ = solve(HALVES)
    assert_close(blocks["w"], whole["w"], rtol=0, atol=1e-9)


@pytest.mark.long
def test_a_run_scores_the_model_with_its_exact_head() -> None:
    simulation = fl.Federation(fl.load("digits"), fl.Dirichlet(alpha=0.05), sites=4)

    def run(head: Literal["trained", "exact"]) -> fl.Run:
        return fl.run(
            simulation,
            "random",
            training="fedavg",
            model=fl.MLP(),
            cycles=1,
            rounds=3,
            head=head,
            progress=False,
        )

    exact, trained = run("exact"), run("trained")
    last = exact.records[exact.records["final"]].groupby("cycle").last()
    assert len(last) == 2
    assert last["left_out"].between(0.5, 1).all()
    trained_last = trained.records.groupby("cycle").last()
    assert (last["accuracy"] > trained_last["accuracy"] + 0.1).all()
    assert "left_out" not in trained.records.columns


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"validation": 0.2}, "validation is 0.2: a model with the best validation"),
        ({"training": "closed-form"}, "has a closed-form solution anyway"),
        ({"training": "ditto"}, "trains personalized models"),
    ],
)
def test_where_there_is_no_head_to_solve_for_it_says_so(
    settings: dict[str, Any], message: str
) -> None:
    simulation = fl.Federation(fl.load("digits"), fl.Dirichlet(alpha=1.0), sites=3)
    with pytest.raises(ValueError, match=message):
        fl.run(
            simulation,
            "random",
            cycles=0,
            head="exact",
            **{"training": "fedavg", **settings},
        )


def test_a_recipe_without_it_keeps_its_digest() -> None:
    assert ExperimentConfig("a").digest == ExperimentConfig("a", head="trained").digest
    assert ExperimentConfig("a").digest != ExperimentConfig("a", head="exact").digest
