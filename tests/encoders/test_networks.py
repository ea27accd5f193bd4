"""Frozen networks as encoders: a module or a function, and text examples."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import fallow as fl
from fallow.encoders.base import encode_rows, encoder_digest
from fallow.encoders.module import encoder_class
from fallow.encoders.texts import rows_to_texts, texts_to_rows
from tests.encoders.asks import draw_pictures


class Net(nn.Module):
    """Small network for images, in training mode by default."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        self.body = nn.Conv2d(3, 5, 3, stride=2)
        self.drop = nn.Dropout(0.5)
        draw = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for weights in self.parameters():
                weights.copy_(torch.randn(weights.shape, generator=draw))

    def forward(self, x: Tensor) -> Tensor:
        dropped: Tensor = self.drop(self.body(x))
        return dropped.mean((2, 3))


class Embedding(Net):
    """Network that also returns features."""

    def embed(self, x: Tensor) -> Tensor:
        features: Tensor = self.body(x)
        return features


# -- modules and functions -------------------------------------------------------------


def test_a_module_encodes_in_evaluation_mode_as_it_was_when_it_was_given() -> None:
    net = Net()
    encoder = encoder_class(net)()
    x = draw_pictures(300, 3, 9, 9)
    wanted = net.body(x).mean((2, 3)).detach()
    with torch.no_grad():
        net.body.weight.zero_()
    assert torch.allclose(encode_rows(encoder, x, {}), wanted, atol=1e-6)
    assert encoder.width((3, 9, 9)) == 5
    assert net.training


def test_embed_is_used_where_a_module_has_it() -> None:
    encoder = encoder_class(Embedding())()
    assert encoder.width((3, 9, 9)) == 5 * 4 * 4


def test_other_weights_are_another_encoder() -> None:
    one, same, other = (encoder_class(Net(seed)) for seed in (0, 0, 1))
    assert one.__name__ == same.__name__
    assert encoder_digest(one()) == encoder_digest(same())
    assert one.__name__ != other.__name__
    assert encoder_digest(one()) != encoder_digest(other())


def test_functions_that_refer_to_other_numbers_are_other_encoders() -> None:
    def scaled(by: float) -> Any:
        return lambda x: x.flatten(1) * by

    assert encoder_class(scaled(2.0)).__name__ == encoder_class(scaled(2.0)).__name__
    assert encoder_class(scaled(2.0)).__name__ != encoder_class(scaled(3.0)).__name__


def test_a_module_refuses_rows_that_it_cannot_take() -> None:
    with pytest.raises(ValueError, match="Net cannot encode examples of shape 2 x 9 x 9"):
        encoder_class(Net())().width((2, 9, 9))


@pytest.mark.parametrize("kind", ["module", "function"])
def test_a_run_takes_a_module_or_a_function_for_an_encoder(kind: str) -> None:
    body = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.AvgPool2d(3))
    network: Any = body if kind == "module" else (lambda x: x[:, :, ::2, ::2])
    run = fl.run(
        "digits",
        encoder=network,
        training="fedavg",
        model="linear",
        cycles=0,
        rounds=1,
        progress=False,
    )
    assert isinstance(run.model, nn.Module)
    head = run.model.head
    assert isinstance(head, nn.Linear) and head.in_features == 16
    assert run.predict(fl.load("digits").x_test).shape == (359,)


# -- text examples ---------------------------------------------------------------------


def test_texts_come_back_from_their_rows() -> None:
    texts = ["naïve 🙂", "", "a\nb", "x" * 30]
    assert rows_to_texts(texts_to_rows(texts)) == texts
    assert rows_to_texts(texts_to_rows(texts, length=2)) == ["na", "", "a\n", "xx"]
    assert texts_to_rows([]).shape == (0, 0)


@pytest.mark.parametrize("number", [0.5, -1.0, 0xD800, 2e6, float("nan")])
def test_rows_that_are_no_texts_are_refused(number: float) -> None:
    with pytest.raises(
        ValueError, match=r"row 2 is not a text: .* is not the code of a charact"
    ):
        rows_to_texts(torch.tensor([[97.0, 0.0], [number, 0.0]]))
