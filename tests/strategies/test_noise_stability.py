from collections.abc import Iterator

import torch
from torch import Tensor
from torch.testing import assert_close

from fallow.core.model_vectors import Layout
from fallow.core.streams import stream
from fallow.models.networks import ResNet8
from fallow.sites import LocalSite
from fallow.sites.view import SiteView
from fallow.strategies import NoiseStability
from fallow.strategies.noise_stability import add_noise
from tests.simulations import Table, simulation, tables


def noise(member: LocalSite, draws: int, epsilon: float) -> Iterator[Tensor]:
    """Return the noise of each draw on the 3 x 6 weight of the linear model."""
    weight = member.parts.layout.views(member.memory["local"]["w"])["head.weight"]
    generator = member.streams("noise", 0)
    for _ in range(draws):
        xi = torch.randn(3, 6, generator=generator, dtype=torch.float64)
        yield epsilon * weight.norm() * xi / xi.norm()


def test_the_changes_of_a_linear_model_have_a_closed_form() -> None:
    strategy = NoiseStability(draws=4)
    member = simulation({"a": tables()["a"]}, strategy).members["a"]
    rows = member.x[:12]
    p = rows[:, :3].softmax(1)
    moved = strategy.measure_changes(SiteView(member, 0))
    assert moved.shape == (12, 4 * 3)
    for change, added in zip(torch.split(moved, 3, 1), noise(member, 4, 1e-3), strict=True):
        there = (rows[:, :3] + rows @ added.T).softmax(1)
        assert_close(change, (there - p) / p.norm(dim=1, keepdim=True))


def test_small_noise_moves_a_prediction_along_its_slope() -> None:
    strategy = NoiseStability(draws=1, epsilon=1e-6)
    member = simulation({"a": tables()["a"]}, strategy).members["a"]
    p = member.x[:12, :3].softmax(1)
    (added,) = noise(member, 1, 1e-6)
    d = (
        member.x[:12] @ added.T
    )  # change of the logits; that of the softmax is p * (d - <p, d>)
    slope = p * (d - (p * d).sum(1, keepdim=True)) / p.norm(dim=1, keepdim=True)
    assert_close(
        strategy.measure_changes(SiteView(member, 0)), slope, rtol=1e-4, atol=1e-10
    )


def test_picks_are_the_farthest_from_the_origin_and_from_all_earlier_picks() -> None:
    strategy = NoiseStability(draws=6)
    federation = simulation({"a": tables(rows=30)["a"]}, strategy)
    moved = strategy.measure_changes(SiteView(federation.members["a"], 0))
    centers = [torch.zeros_like(moved[0])]
    for row in federation.selected(12)["a"]:
        distance = torch.cdist(moved, torch.stack(centers)).amin(1)
        assert int(distance.argmax()) == row
        centers.append(moved[row])


def test_weights_of_batch_norm_are_shaken_and_biases_are_not() -> None:
    model = ResNet8((3, 16, 16), 2)
    layout = Layout.of(model)
    model.reset(stream(0, "weights"))
    w = layout.flatten(model)["w"]
    before, kept = layout.views(w), w.clone()
    after = layout.views(add_noise(layout, w, 1e-3, stream(0, "noise")))
    assert sum(name.endswith(".weight") and v.ndim == 1 for name, v in before.items()) == 7
    for name, value in before.items():
        length = (after[name] - value).norm()
        if name.endswith(".weight"):
            assert_close(length, 1e-3 * value.norm(), rtol=1e-2, atol=0)
        else:
            assert length == 0
    assert torch.equal(w, kept)


def test_the_bits_of_the_model_stay_as_they_were() -> None:
    federation = simulation(tables(), NoiseStability(draws=3))
    memory = federation.members["a"].memory["local"]
    before = {name: value.clone() for name, value in memory.items()}
    federation.selected(5)
    assert all(torch.equal(before[name], memory[name]) for name in before)


def test_saturated_predictions_do_not_move_and_come_last() -> None:
    site = tables()["a"]
    local = site.local.clone()
    local[:6, 0] = 500.0
    selected = simulation(
        {"a": Table(local, site.common, [0, 1])}, NoiseStability(draws=5)
    ).selected(12)["a"]
    assert set(selected[:6]) == set(range(6, 12))
