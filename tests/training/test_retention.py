"""The model kept by a site over a given history."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from fallow.core.methods import Methods
from fallow.core.model_vectors import Layout
from fallow.models.networks import Linear
from fallow.sites import LocalSite, RunComponents
from fallow.sites.store import Label, MemoryStore
from fallow.sites.view import SiteView
from fallow.strategies import Random
from fallow.training import FedAvg
from fallow.training.retention import Retention


def site_of(labels: Sequence[Label], rows: int = 4) -> LocalSite:
    """Return examples with one feature each; every label is class 0."""
    model = Linear((rows,), 2)
    layout = Layout.of(model)
    first = layout.flatten(model)
    methods: Methods = {"query": Random(), "training": FedAvg(), "plain": FedAvg()}
    parts = RunComponents(model, layout, methods, 2, 0, fresh=lambda generator: first)
    site = LocalSite("a", torch.eye(rows), parts, MemoryStore())
    site.buy(labels)
    return site


def right_on(k: int, rows: int = 4) -> dict[str, torch.Tensor]:
    """Return a model that is correct on the first ``k`` examples."""
    model = Linear((rows,), 2)
    with torch.no_grad():
        model.head.bias.zero_()
        model.head.weight[0] = torch.where(torch.arange(rows) < k, 1.0, -1.0)
        model.head.weight[1] = 0.0
    return Layout.of(model).flatten(model)


def keep_best(
    site: LocalSite, history: Sequence[dict[str, torch.Tensor]]
) -> tuple[int, float]:
    """Return the round and the score that are kept after a history of models."""
    retention = Retention(FedAvg())
    for turn, state in enumerate(history):
        reply = retention.best(SiteView(site, 0), state["w"], state["stats"], turn)
        site.remember("best", {key: torch.as_tensor(value) for key, value in reply.items()})
    best = site.memory["best"]
    assert torch.equal(best["w"], history[int(best["turn"])]["w"])
    return int(best["turn"]), float(best["score"])


VALIDATION = [Label(row, 0, 0, is_validation=True) for row in range(4)]


def test_the_best_round_is_retained_and_of_equals_the_later() -> None:
    assert keep_best(site_of(VALIDATION), [right_on(k) for k in (2, 4, 3, 4, 1)]) == (
        3,
        1.0,
    )


def test_without_validation_rows_the_latest_model_is_kept() -> None:
    assert keep_best(site_of([Label(0, 0, 0)]), [right_on(k) for k in (4, 2, 1)])[0] == 2


def test_a_model_that_is_not_finite_is_kept_only_until_there_is_another() -> None:
    spoilt = {**right_on(4), "w": torch.full_like(right_on(4)["w"], torch.nan)}
    assert keep_best(site_of(VALIDATION), [spoilt, right_on(1), spoilt]) == (1, 0.25)
