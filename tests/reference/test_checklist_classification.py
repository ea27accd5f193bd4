"""Properties of all strategies that no other test checks, and further published values."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fallow.data import load
from fallow.data.catalog.idx import FASHION_SCALE
from fallow.data.catalog.photos import CIFAR10_SCALE
from fallow.data.partition.dirichlet import KAFAL_SIZES
from fallow.settings.budgets import allocate_budget
from fallow.sites.view import SiteView
from fallow.strategies import AHFAL, FairFAL, Typical, TypicalUnsure
from tests.contracts.strategies import every
from tests.data.published import draw_pixels, write_cifar10, write_fashion_mnist
from tests.simulations import Simulation, Table, Tables, simulation, tables

# -- sites that lack classes -----------------------------------------------------------


def without_class(table: Table, c: int) -> Table:
    """Return the site without a label or a prediction of class ``c``."""
    local, common = table.local.clone(), table.common.clone()
    local[:, c], common[:, c] = -30.0, -30.0
    return Table(local, common, [y for y in table.labels if y != c] or [0])


def are_whole(selected: dict[str, list[int]], n: int) -> bool:
    return (
        all(len(rows) == len(set(rows)) == n for rows in selected.values())
        and len(selected) == 3
    )


@pytest.mark.long
@every
def test_a_class_that_no_site_has_or_predicts_stops_nobody(strategy: Any) -> None:
    sites = {name: without_class(t, 2) for name, t in tables(classes=4).items()}
    assert are_whole(simulation(sites, strategy).selected(5), 5)


@pytest.mark.long
@every
def test_sites_with_labels_of_one_class_each_pick_as_many_as_asked(strategy: Any) -> None:
    sites = {
        name: replace(table, labels=[c] * 4)
        for c, (name, table) in enumerate(tables(classes=4).items())
    }
    assert are_whole(simulation(sites, strategy).selected(5), 5)


@pytest.mark.long
@every
def test_a_federation_with_labels_of_one_class_picks_as_many_as_asked(
    strategy: Any,
) -> None:
    sites = {name: replace(table, labels=[1] * 4) for name, table in tables().items()}
    assert are_whole(simulation(sites, strategy).selected(5), 5)


@pytest.mark.long
@every
def test_a_budget_below_the_number_of_missing_classes_is_spent(strategy: Any) -> None:
    sites = {name: replace(t, labels=[0] * 4) for name, t in tables(classes=6).items()}
    assert are_whole(simulation(sites, strategy).selected(2), 2)


# -- forward passes --------------------------------------------------------------------


class Counted(nn.Module):
    """Linear model that records its inputs."""

    def __init__(self, inner: Any) -> None:
        super().__init__()
        self.head = inner.head
        self.seen: list[tuple[bytes, bytes]] = []

    def embed(self, x: Tensor) -> Tensor:
        weight, bias = self.head.weight.detach(), self.head.bias.detach()
        model = weight.numpy().tobytes() + bias.numpy().tobytes()
        self.seen.append((model, x.detach().numpy().tobytes()))
        return x.flatten(1)

    def forward(self, x: Tensor) -> Tensor:
        outputs: Tensor = self.head(self.embed(x))
        return outputs


def counted(strategy: Any, sites: Tables) -> tuple[Simulation, Counted]:
    federation = simulation(sites, strategy)
    model = Counted(next(iter(federation.members.values())).parts.model)
    for site in federation.members.values():
        site.parts = replace(site.parts, model=model)
    return federation, model


AGAIN = {Typical: 3, TypicalUnsure: 3}
"""How often strategies that ask sites several times look at features: they keep none in between."""


@pytest.mark.long
@every
def test_a_query_never_runs_the_pool_twice_through_the_same_model(strategy: Any) -> None:
    """Check that one pass gives outputs and features.

    The few labeled examples may run once for each client function (FairFAL's first query
    has two).
    """
    federation, model = counted(strategy, tables(rows=20))
    for cycle in range(2):
        model.seen.clear()
        pools = {
            site.x[site.pool].numpy().tobytes() for site in federation.members.values()
        }
        federation.buy(federation.selected(3, cycle), label=0, cycle=cycle)
        passes = [seen for seen in model.seen if seen[1] in pools]
        allowed_passes = AGAIN.get(type(strategy), 1)
        assert max(Counter(passes).values(), default=0) <= allowed_passes


@pytest.mark.parametrize(("toggle", "passes"), [("always", 2), ("never", 1)])
def test_ahfal_runs_the_pool_once_through_each_model_that_it_reads(
    toggle: Any, passes: int
) -> None:
    federation, model = counted(AHFAL(toggle=toggle), tables())
    federation.query(4)
    assert len(model.seen) == len(set(model.seen)) == passes * 3


# -- FairFAL's anchors -----------------------------------------------------------------


def test_fairfal_spreads_picks_from_labeled_rows_whose_class_is_the_true_one() -> None:
    """Check Section 3.6: e_y of an anchor is its label, whatever the model predicts."""
    site = tables(3, rows=40)["a"]
    federation = simulation({"a": replace(site, labels=[1] * 6)}, FairFAL())
    view = SiteView(federation.members["a"], 0)
    bucket, q = torch.arange(40), 6
    selected = FairFAL(kappa=10.0).two_stage(view, bucket, 1, q, 0.0)

    def gradients(which: Any, label: Tensor | None = None) -> Tensor:
        p = view.logits("global", which).softmax(1)
        y = p.argmax(1) if label is None else label
        return torch.einsum(
            "nc,nd->ncd", torch.eye(3).double()[y] - p, view.embed("global", which)
        )

    def spread(anchors: Tensor) -> list[int]:
        g, selected = gradients("pool").flatten(1), list[int]()
        nearest = torch.cdist(g, anchors.flatten(1)).square().amin(1)
        for _ in range(q):
            selected.append(int(nearest.argmax()))
            nearest = torch.minimum(nearest, (g - g[selected[-1]]).square().sum(1))
        return selected

    by_label = spread(gradients("labeled", view.labels))
    assert selected.tolist() == by_label != spread(gradients("labeled"))


# -- published values ------------------------------------------------------------------


def test_proportional_budgets_are_those_of_the_published_split_of_cifar10() -> None:
    sizes = {str(i): n for i, n in enumerate(KAFAL_SIZES)}
    bought = [
        sum(allocate_budget(share, "proportional", sizes).values())
        for share in (0.1, 0.05, 0.05)
    ]
    assert list(accumulate(bought)) == [5005, 7511, 10017]


# -- images of a data folder -----------------------------------------------------------


def scaled(raw: np.ndarray[Any, Any], scale: Any) -> Tensor:
    mean, std = (torch.tensor(numbers).view(1, -1, 1, 1) for numbers in scale)
    return (torch.from_numpy(np.ascontiguousarray(raw)).float() / 255 - mean) / std


def test_cifar10_is_read_in_the_order_of_its_five_files(tmp_path: Path) -> None:
    d = load("cifar10", write_cifar10(tmp_path, train=40, test=10))
    raw = draw_pixels(50, 32, 32, 3).transpose(0, 3, 1, 2)
    torch.testing.assert_close(d.x, scaled(raw[:40], CIFAR10_SCALE))
    torch.testing.assert_close(d.x_test, scaled(raw[40:], CIFAR10_SCALE))
    assert d.y.tolist() == [*range(10)] * 4 and d.y_test.tolist() == [*range(10)]
    assert d.classes[3] == "cat"


def test_fashion_mnist_has_training_and_test_images(tmp_path: Path) -> None:
    d = load("fashion_mnist", write_fashion_mnist(tmp_path, train=20, test=10))
    raw = draw_pixels(30, 28, 28)
    torch.testing.assert_close(d.x, scaled(raw[:20, None], FASHION_SCALE))
    torch.testing.assert_close(d.x_test, scaled(raw[20:, None], FASHION_SCALE))
    assert d.y.tolist() == [*range(10)] * 2 and d.y_test.tolist() == [*range(10)]


def test_a_world_where_rows_run_twice_is_noticed() -> None:
    federation, model = counted(AHFAL(), tables())
    site = federation.members["a"]
    for _ in range(2):
        SiteView(site, 0).logits("local")  # a new view each time, so nothing is cached
    assert len(model.seen) == 2 and len(set(model.seen)) == 1
