"""Frozen features of a data set, and images with regression targets."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from fallow.data import Dataset, embed_rows
from fallow.data.reading import note


class Net(nn.Module):
    """Batch norm and dropout, whose outputs differ in training mode."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.Dropout(0.5))
        self.head = nn.Linear(12, 1)

    def embed(self, x: Tensor) -> Tensor:
        features: Tensor = self.body(x)
        return features

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.embed(x).flatten(1))
        return logits


def toy(n: int = 11, m: int = 4) -> Dataset:
    g = torch.Generator().manual_seed(0)
    x = torch.randn(n, 1, 4, 4, generator=g)
    x_test = torch.randn(m, 1, 4, 4, generator=g)
    sites = torch.arange(n) % 2
    return Dataset(
        "toy",
        x,
        torch.arange(n) / 2,
        x_test,
        torch.arange(m) / 2,
        sites=sites,
        site_names=("a", "b"),
        findings=(note("first"),),
    )


def test_rows_are_the_features_in_evaluation_mode_whatever_the_batch() -> None:
    d = toy()
    net = Net().train()
    before = {name: value.clone() for name, value in net.state_dict().items()}
    features = embed_rows(d, net, batch=3)
    assert net.training and net.body.training
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    assert features.x.shape == (11, 12) and features.x_test.shape == (4, 12)
    assert features.x.dtype == torch.float32 and not features.x.requires_grad
    net.eval()
    torch.testing.assert_close(features.x, net.embed(d.x).flatten(1).detach())
    torch.testing.assert_close(features.x_test, net.embed(d.x_test).flatten(1).detach())
    torch.testing.assert_close(embed_rows(d, net, batch=100).x, features.x)


def test_labels_sites_and_notes_stay_and_a_note_is_added() -> None:
    d = toy()
    values = embed_rows(d, Net())
    assert torch.equal(values.y, d.y) and torch.equal(values.y_test, d.y_test)
    assert values.sites is d.sites and values.name == "toy"
    assert values.notes == ("first", "rows are the 12 features of a frozen Net")


def test_any_module_will_do_in_its_own_type_and_without_test_rows() -> None:
    x = torch.arange(6.0).reshape(3, 2)
    d = Dataset(
        "t", x, torch.rand(3), torch.zeros(0, 2), torch.zeros(0), columns=("a", "b")
    )
    linear = nn.Linear(2, 5).double()
    result = embed_rows(d, linear)
    torch.testing.assert_close(result.x, linear(x.double()).float().detach())
    assert result.x_test.shape == (0, 5) and result.columns == ()
    assert torch.equal(embed_rows(d, nn.Identity()).x, x)
    features = result.x.requires_grad_()
    # inference tensors have no gradient
    (gradient,) = torch.autograd.grad(features.sum(), features)
    assert torch.equal(gradient, torch.ones_like(features))


def test_features_that_are_not_finite_and_a_batch_of_nothing_are_refused() -> None:
    broken = nn.Linear(2, 1)
    nn.init.constant_(broken.weight, float("inf"))
    d = Dataset("t", torch.ones(3, 2), torch.rand(3), torch.zeros(0, 2), torch.zeros(0))
    with pytest.raises(ValueError, match="t: column 0 of the training rows has 3 values"):
        embed_rows(d, broken)
    with pytest.raises(ValueError, match="the batch is 0"):
        embed_rows(d, broken, batch=0)
