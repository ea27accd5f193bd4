"""BADGE, LoGo and Noise Stability as in AHFAL's public code."""

from __future__ import annotations

import os
from typing import Any

import pytest
import torch
from threadpoolctl import threadpool_limits
from torch import Tensor, nn

from fallow.core.methods import Methods
from fallow.core.model_vectors import Layout
from fallow.core.streams import stream
from fallow.data import load
from fallow.engine import look
from fallow.models import build_model
from fallow.sites import LocalSite, RunComponents
from fallow.sites.store import Label, MemoryStore
from fallow.sites.view import SiteView
from fallow.strategies import BADGE, LoGo, Random
from fallow.strategies.feal import FEAL
from fallow.strategies.parts.top import rank_rows
from fallow.training import FedAvg
from fallow_papers.ahfal.codes import PixelBADGE, PlainFEAL, PlainLoGo, PlainNoise
from fallow_papers.ahfal.codes.baselines import features, pixel_gradients, shake_weights
from fallow_papers.ahfal.codes.kmeans import k_means
from tests.simulations import Table, simulation, tables

DATA = os.environ.get("FALLOW_DATA")


def site_of(model: nn.Module, x: Tensor, labels: int = 4) -> LocalSite:
    """Return a site with both models equal to ``model``; the last examples are labeled."""
    layout = Layout.of(model)
    state = layout.flatten(model)
    methods: Methods = {"query": Random(), "training": FedAvg(), "plain": FedAvg()}
    parts = RunComponents(model, layout, methods, 3, 0, fresh=lambda generator: state)
    site = LocalSite("a", x, parts, MemoryStore())
    site.buy([Label(len(x) - 1 - i, i % 3, -1) for i in range(labels)])
    site.remember("local", state)
    site.remember("global", state)
    return site


@pytest.fixture
def view() -> Any:
    model = build_model("digits-cnn", (1, 8, 8), 3, stream(0, "init")).double()
    x = torch.randn(24, 1, 8, 8, generator=stream(0, "x"), dtype=torch.float64)
    return SiteView(site_of(model, x), cycle=0)


# -- pixel gradients -------------------------------------------------------------------


def test_a_pixel_gradient_is_the_slope_of_the_largest_logit(view: Any) -> None:
    state = view.model("local")
    rows = view.rows()[:2]
    gradient = pixel_gradients(view, state, rows)
    assert gradient.shape == (2, 64)
    best = view.logits("local")[:2].max(1)
    for at in (0, 9, 63):
        moved = rows.clone()
        moved.flatten(1)[:, at] += 1e-6
        slope = view.forward(state, moved)[torch.arange(2), best.indices] - best.values
        torch.testing.assert_close(gradient[:, at], slope / 1e-6, rtol=1e-4, atol=1e-5)


def test_k_means_finds_groups_and_their_middles() -> None:
    x = torch.tensor([[0.0], [0.2], [0.9], [10.0], [10.3], [11.0]])
    cluster, centers = k_means(x, 2, stream(0, "x"))
    assert len(set(cluster[:3].tolist())) == len(set(cluster[3:].tolist())) == 1
    assert sorted(centers.flatten().tolist()) == pytest.approx([1.1 / 3, 31.3 / 3])


def test_the_middles_are_the_same_to_the_last_bit_whatever_the_number_of_threads() -> None:
    x = torch.randn(3000, 4, generator=stream(0, "x"))
    k_means(x[:2], 1, stream(0, "x"))  # loads the libraries whose threads are limited
    values = []
    for threads in (1, 3):
        with threadpool_limits(threads):
            values.append(k_means(x, 5, stream(0, "x"))[1])
    assert torch.equal(*values)


def test_pixel_badge_picks_the_row_nearest_to_each_center(view: Any) -> None:
    gradient = pixel_gradients(view, view.model("local"), view.rows())
    order = rank_rows(torch.zeros(20), view.stream("ties"))
    _, centers = k_means(gradient[order], 5, view.stream("k-means"))
    nearest = {int((gradient - center).norm(dim=1).argmin()) for center in centers}
    assert set(PixelBADGE().select(view, 5).rows.tolist()) >= nearest


def test_pixel_badge_is_not_badge(view: Any) -> None:
    pixel = PixelBADGE().select(view, 6).rows
    real = BADGE().select(view, 6).rows
    assert len(set(pixel.tolist())) == 6
    assert set(pixel.tolist()) != set(real.tolist())


@pytest.mark.skipif(not DATA, reason="FALLOW_DATA names no folder of data files")
def test_pixel_badge_picks_other_rows_of_mnist_than_badge() -> None:
    outcome = load("mnist", DATA)
    model = build_model("lenet", (1, 28, 28), 10, stream(0, "init"))
    view: Any = SiteView(site_of(model, outcome.x[:200].clone()), cycle=0)
    pixel = PixelBADGE().select(view, 20).rows
    real = BADGE().select(view, 20).rows
    assert len(set(pixel.tolist())) == 20
    assert len(set(pixel.tolist()) & set(real.tolist())) < 15


def test_where_gradients_are_few_the_rest_is_drawn() -> None:
    """A linear model has one pixel gradient for each class that it predicts."""
    site = tables(rows=20)["a"]
    first = simulation({"a": site}, PixelBADGE(), seed=0).selected(8)["a"]
    assert len(set(first)) == 8
    assert len(set(site.local.argmax(1)[first[:3]].tolist())) == 3


def test_rows_without_a_finite_logit_come_last() -> None:
    site = tables()["a"]
    local = site.local.clone()
    local[2, 0], local[5, 1] = torch.nan, torch.inf
    selected = simulation({"a": Table(local, site.common, [0])}, PixelBADGE()).selected(12)[
        "a"
    ]
    assert sorted(selected) == list(range(12)) and set(selected[-2:]) == {2, 5}


# -- LoGo ------------------------------------------------------------------------------


def test_plain_logo_does_not_scale_features_by_how_unsure_the_prediction_is() -> None:
    far = torch.tensor([[0.0, 0.1], [0.1, 0], [40.0, 0], [40.1, 0]], dtype=torch.float64)
    common = torch.tensor([[5.0, 0], [1, 0], [1.1, 0], [6, 0]], dtype=torch.float64)
    site = {"a": Table(far, common, [0, 1])}
    assert sorted(simulation(site, PlainLoGo()).selected(2)["a"]) == [1, 2]
    assert sorted(simulation(site, LoGo()).selected(2)["a"]) != [
        1,
        2,
    ]  # confident examples are all at the origin


def test_plain_logo_uses_the_model_of_the_last_round() -> None:
    assert PlainLoGo.contract.local_source == "last_round"
    assert LoGo.contract.local_source == "scratch"


def test_plain_feal_is_feal_whatever_the_models_were_trained_for() -> None:
    sites = tables(rows=20)
    assert simulation(sites, PlainFEAL()).selected(6) == simulation(sites, FEAL()).selected(
        6
    )


# -- noise -----------------------------------------------------------------------------


def test_features_are_read_exactly_through_heads_that_pass_them_on(view: Any) -> None:
    state = view.model("local")
    noisy = {**state, "w": shake_weights(view, state["w"], 0.1, stream(0, "noise"))}
    inner = view._site.parts
    assert torch.equal(
        features(view, noisy, 128), look(inner.model, inner.layout, noisy, view.rows())[0]
    )


def test_features_are_read_without_a_bias_in_the_head_too() -> None:
    model = build_model("linear", (5,), 3, stream(0, "init"), bias=False)
    x = torch.randn(9, 5, generator=stream(0, "x"))
    view: Any = SiteView(site_of(model, x), cycle=0)
    assert torch.equal(features(view, view.model("local"), 5), view.rows())


def test_every_tensor_is_shaken_in_proportion_to_its_norm(view: Any) -> None:
    w = view.model("local")["w"]
    before = w.clone()
    noisy, more = (shake_weights(view, w, eps, stream(0, "noise")) for eps in (0.01, 0.02))
    assert torch.equal(w, before)
    torch.testing.assert_close(more - w, 2 * (noisy - w))
    for name, part in view.layout.views(w).items():
        moved = view.layout.views(noisy)[name] - part
        low, high = (0.2, 5.0) if part.numel() < 20 else (0.7, 1.4)  # norms of two draws
        assert low < float(moved.norm() / (0.01 * part.norm())) < high


def test_plain_noise_picks_the_rows_whose_features_move_most(view: Any) -> None:
    selected = PlainNoise(draws=3).select(view, 5).rows
    state = view.model("local")
    inner = view._site.parts
    draw = view.stream("noise")
    z = view.embed("local")
    moved = torch.zeros(20, dtype=torch.float64)
    for _ in range(3):
        noisy = {**state, "w": shake_weights(view, state["w"], 1e-3, draw)}
        moved += (look(inner.model, inner.layout, noisy, view.rows())[0] - z).abs().mean(1)
    assert selected.tolist() == moved.argsort(descending=True)[:5].tolist()


@pytest.mark.parametrize(("field", "value"), [("draws", 0), ("epsilon", 0.0)])
def test_settings_that_shake_nothing_are_refused(field: str, value: float) -> None:
    with pytest.raises(ValueError, match=f"PlainNoise's {field} is {value}"):
        PlainNoise(**{field: value})  # type: ignore[arg-type]
