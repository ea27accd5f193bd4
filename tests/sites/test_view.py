"""The view of a site's examples."""

from __future__ import annotations

import pytest
import torch

from fallow.core.methods import Methods
from fallow.core.model_vectors import Layout
from fallow.core.streams import stream
from fallow.core.types import State
from fallow.core.view import Rows
from fallow.engine.loop import look
from fallow.models import build_model
from fallow.sites import LocalSite, RunComponents
from fallow.sites.store import Label, MemoryStore
from fallow.sites.view import SiteView
from fallow.strategies import Random
from fallow.training import FedAvg


def site_with(model_name: str) -> LocalSite:
    """Return a site of nine examples of 3 x 2 numbers, two labeled, and a global model."""
    draw = stream(0, "rows")
    model = build_model(model_name, (3, 2), 4, stream(0, "model"))
    layout = Layout.of(model)
    state = layout.flatten(model)
    state["w"] = torch.randn(layout.d, generator=draw)

    def fresh(_: torch.Generator) -> State:
        return state

    methods: Methods = {"query": Random(), "training": FedAvg(), "plain": FedAvg()}
    parts = RunComponents(model, layout, methods, 4, 0, fresh)
    site = LocalSite("a", torch.randn(9, 3, 2, generator=draw), parts, MemoryStore())
    site.buy([Label(row, row, -1) for row in (2, 5)])
    site.remember("global", state)
    return site


@pytest.mark.parametrize("model", ["linear", "mlp"])
@pytest.mark.parametrize("is_logits_first", [True, False])
def test_features_and_outputs_are_those_of_a_pass(
    model: str, is_logits_first: bool
) -> None:
    site = site_with(model)
    view = SiteView(site, 0)
    kinds: tuple[Rows, ...] = ("pool", "labeled")
    for which in kinds:
        rows = {"pool": site.pool, "labeled": site.labeled}[which]
        expected = look(site.parts.model, view.layout, view.model("global"), site.x[rows])
        if is_logits_first:
            outputs = view.logits("global", which)
            features = view.embed("global", which)
        else:
            features = view.embed("global", which)
            outputs = view.logits("global", which)
        assert torch.equal(features, expected[0])
        assert torch.equal(outputs, expected[1])


def test_a_model_that_nobody_remembers_has_no_features_either() -> None:
    view = SiteView(site_with("linear"), 0)
    with pytest.raises(ValueError, match="site a has no model 'kd'"):
        view.embed("kd")


def test_a_site_whose_round_did_not_count_uses_the_global_model() -> None:
    site = site_with("linear")
    site.buy([Label(0, 1.0, cycle=-1)])
    view = SiteView(site, 0)
    expected = view.logits("global")
    assert "local" not in site.memory
    assert torch.equal(view.logits("local"), expected)
    assert torch.equal(view.embed("local"), view.embed("global"))
