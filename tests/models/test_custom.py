"""Custom models: head detection, new weights, and errors for unsupported modules."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Generator, Tensor, nn
from torch.testing import assert_close

from fallow.core.model_vectors import Layout
from fallow.engine.loop import look, predict
from fallow.models.custom import (
    CustomModel,
    Template,
    adapt_model,
    build_custom,
    redraw,
    unwrap_model,
)

SHAPE = (1, 8, 8)
Net = Callable[[Tensor], Tensor]


def gen(seed: int = 0) -> Generator:
    return Generator().manual_seed(seed)


class Small(nn.Module):
    """Model with a named last layer."""

    def __init__(self, num_classes: int = 10, width: int = 6) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.hidden = nn.Linear(4 * 64, width)
        self.drop = nn.Dropout(0.5)
        self.fc = nn.Linear(width, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        seen = self.norm(self.conv(x)).relu().flatten(1)
        logits: Tensor = self.fc(self.drop(self.hidden(seen).relu()))
        return logits


class Changed(nn.Module):
    """Network with a function applied to its outputs."""

    def __init__(self, change: Callable[[Tensor], Any], outputs: int = 10) -> None:
        super().__init__()
        self.fc = nn.Linear(64, outputs)
        self.change = change

    def forward(self, x: Tensor) -> Any:
        return self.change(self.fc(x.flatten(1)))


def test_the_last_linear_layer_is_the_head_and_its_input_the_features() -> None:
    net = Small()
    model = adapt_model(net, SHAPE, 10)
    assert model.head is net.fc
    x = torch.randn(5, *SHAPE)
    model.eval()
    features = model.embed(x)  # type: ignore[operator]
    assert features.shape == (5, 6)
    assert_close(net.fc(features), net(x))


def test_an_adapted_module_works_with_flat_weights() -> None:
    net = Small().eval()
    model = adapt_model(net, SHAPE, 10)
    layout = Layout.of(model)
    head = layout.part("head")
    assert head is not None and int(head.sum()) == 6 * 10 + 10
    assert layout.d == sum(weight.numel() for weight in net.parameters())
    state = layout.flatten(model)
    other = {"w": state["w"] + 0.1, "stats": state["stats"]}
    x = torch.randn(5, *SHAPE)
    z, out = look(model, layout, other, x)
    assert_close(out, predict(model, layout, other, x))
    assert not torch.equal(out, net(x))
    layout.load(model, other)
    assert_close(out, net.eval()(x))
    assert_close(z, model.embed(x))  # type: ignore[operator]


def test_no_hook_stays_at_the_module_of_a_user() -> None:
    net = Small().train()
    net.norm.eval()
    model = adapt_model(net, SHAPE, 10)
    model.embed(torch.zeros(2, *SHAPE))  # type: ignore[operator]
    hooks = [*net.fc._forward_hooks, *net.fc._forward_pre_hooks]
    assert not hooks
    assert net.training and net.drop.training and not net.norm.training
    assert unwrap_model(model) is net


def test_a_module_on_flat_rows_takes_images() -> None:
    net = nn.Sequential(nn.Linear(64, 5), nn.ReLU(), nn.Linear(5, 10))
    model = adapt_model(net, SHAPE, 10)
    x = torch.randn(3, *SHAPE)
    assert_close(model(x), net(x.flatten(1)))


def test_a_module_with_both_halves_is_used_as_it_is() -> None:
    class Whole(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(64, 10)

        def embed(self, x: Tensor) -> Tensor:
            return x.flatten(1)

        def forward(self, x: Tensor) -> Tensor:
            logits: Tensor = self.head(self.embed(x))
            return logits

    net = Whole()
    assert adapt_model(net, SHAPE, 10) is net


class Twice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(64, 64)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.fc(self.fc(x.flatten(1)))
        return logits


class Permuting(nn.Module):
    """Network for images with channels last."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)
        self.fc = nn.Linear(4, 10)

    def forward(self, x: Tensor) -> Tensor:
        seen = self.conv(x.permute(0, 3, 1, 2)).mean((2, 3))
        logits: Tensor = self.fc(seen)
        return logits


def pair(x: Tensor) -> tuple[Tensor, Tensor]:
    return x, x


@pytest.mark.parametrize(
    ("module", "shape", "words"),
    [
        (Small(7), SHAPE, "Small has 7 outputs (its last nn.Linear 'fc'), and needs 10"),
        (Changed(nn.Softmax(1)), SHAPE, "the output of its last nn.Linear 'fc' by softmax"),
        (Changed(nn.LogSoftmax(1)), SHAPE, "nn.Linear 'fc' by log_softmax; return that"),
        (
            Changed(torch.sigmoid),
            SHAPE,
            "by sigmoid; return that output itself, the logits",
        ),
        (Changed(lambda z: 2 * z), SHAPE, "changes the output of its last nn.Linear 'fc';"),
        (
            Changed(pair),
            SHAPE,
            "Changed returns a tuple; return only the logits, a tensor",
        ),
        (
            Changed(lambda z: {"out": z}),
            SHAPE,
            "Changed returns a dict; return only the logits",
        ),
        (
            Changed(lambda z: z[:, None]),
            SHAPE,
            "a tensor of shape (2, 1, 10) for 2 examples",
        ),
        (Twice(), SHAPE, "calls its last nn.Linear 'fc' more than once"),
        (nn.Flatten(), SHAPE, "Flatten calls no torch.nn.Linear"),
        (Permuting(), (3, 9, 8), "(channels, height, width): remove its permutation"),
        (
            Small(),
            (8, 8, 1),
            "it interprets their last dimension as channels: convert them to (n, ",
        ),
        (
            Small(),
            (64,),
            "it has convolutions, and the data has no images: convert them to",
        ),
        (
            Small(),
            (1, 9, 9),
            "Small does not accept examples of shape (1, 9, 9) (mat1 and mat2",
        ),
        (nn.Linear(64, 3), (64,), "Linear has 3 outputs, and needs 10 outputs"),
        (Small, SHAPE, "a model must be a torch.nn.Module, not type"),
    ],
)
def test_a_module_that_cannot_serve_is_refused_in_one_sentence(
    module: nn.Module, shape: tuple[int, ...], words: str
) -> None:
    with pytest.raises(ValueError, match=re.escape(words)) as error:
        adapt_model(module, shape, 10)
    assert "\n" not in str(error.value)


def test_a_regression_needs_one_output() -> None:
    with pytest.raises(ValueError, match="needs 1 output, because the task is"):
        adapt_model(Small(), SHAPE, 1)


# -- classes and functions -------------------------------------------------------------


def make_small(in_channels: int, num_classes: int, width: int = 4) -> nn.Module:
    assert in_channels == 1
    return Small(num_classes, width)


class Lazy(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.LazyLinear(4), nn.LazyLinear(10))

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.layers(x)
        return logits


@pytest.mark.parametrize(
    "factory",
    [
        Small,
        make_small,
        partial(make_small, width=3),
        partial(Small, 10, 7),
        lambda: Small(),
        Lazy,
        Template(Small()),
        Template(Lazy()),
    ],
)
def test_weights_follow_from_the_generator_alone(factory: Callable[..., Any]) -> None:
    before = torch.get_rng_state()
    models = [build_custom(factory, SHAPE, 10, gen(seed), {}, "net") for seed in (3, 3, 4)]
    assert torch.equal(torch.get_rng_state(), before)
    one, two, other = [Layout.of(model).flatten(model)["w"] for model in models]
    assert torch.equal(one, two)
    assert (one - other).abs().mean() > 0.01


def test_the_number_of_classes_is_filled_in_unless_the_user_sets_it() -> None:
    assert isinstance(build_custom(Small, SHAPE, 3, gen(), {}, "net"), CustomModel)
    with pytest.raises(ValueError, match=r"Small has 10 outputs .* and needs 3"):
        build_custom(partial(Small, num_classes=10), SHAPE, 3, gen(), {}, "net")


def test_a_parameter_that_the_data_do_not_decide_is_named() -> None:
    def make(depth: int, outputs: int) -> nn.Module:
        raise AssertionError

    with pytest.raises(ValueError, match=r"needs depth, .* functools.partial\(..., depth="):
        build_custom(make, SHAPE, 10, gen(), {}, "make")


def test_a_function_that_returns_one_module_starts_each_seed_from_its_weights() -> None:
    net = Small()
    models = [build_custom(lambda: net, SHAPE, 10, gen(seed), {}, "net") for seed in (1, 2)]
    for model in models:
        assert unwrap_model(model) is not net
        assert_close(unwrap_model(model).state_dict(), net.state_dict())


# -- instances -------------------------------------------------------------------------


def test_an_instance_is_drawn_as_its_class_draws_it() -> None:
    net = nn.Sequential(nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.Linear(6, 2))
    redrawn = Template(net)(SHAPE)
    assert repr(net) == repr(redrawn)
    old, new = dict(net.named_parameters()), dict(redrawn.named_parameters())
    assert not torch.equal(old["0.weight"], new["0.weight"])
    assert torch.equal(old["1.weight"], new["1.weight"])


def test_frozen_weights_and_constants_of_an_instance_stay() -> None:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Sequential(nn.Flatten(), nn.Linear(64, 4), nn.BatchNorm1d(4))
            self.scale = nn.Parameter(torch.full((4,), 0.5))
            self.fc = nn.Linear(4, 10)

        def forward(self, x: Tensor) -> Tensor:
            logits: Tensor = self.fc(self.scale * self.body(x))
            return logits

    net = Scaled()
    net.body.requires_grad_(False)
    net.get_buffer("body.2.running_mean").fill_(1)
    old, new = net.state_dict(), Template(net)(SHAPE).state_dict()
    changed = {name for name, value in new.items() if not torch.equal(value, old[name])}
    assert changed == {"fc.weight", "fc.bias"}


class Token(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.token = nn.Parameter(torch.randn(64))
        self.fc = nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.fc(x.flatten(1) + self.token)
        return logits


def trained() -> nn.Module:
    net = Small()
    nn.init.normal_(net.hidden.weight, std=1.0)
    return net


def normalized() -> nn.Module:
    net = Small()
    nn.init.zeros_(net.norm.weight)
    return net


@pytest.mark.parametrize(
    ("net", "words"),
    [
        (
            Token(),
            "no reset_parameters() sets its parameter 'token'; give model=lambda: Token",
        ),
        (
            trained(),
            "its 'hidden.weight' differs from the draws of reset_parameters() (mean",
        ),
        (normalized(), "its 'norm.weight' differs from the draws of reset_parameters()"),
    ],
)
def test_weights_that_would_be_lost_are_refused(net: nn.Module, words: str) -> None:
    with pytest.raises(ValueError, match=re.escape(words)):
        Template(net)(SHAPE)


def test_attention_is_drawn_as_pytorch_draws_it() -> None:
    layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
    redrawn = Template(layer)((16,))
    assert isinstance(redrawn, nn.TransformerEncoderLayer)
    assert torch.equal(redrawn.self_attn.out_proj.bias, torch.zeros(16))
    assert not torch.equal(redrawn.self_attn.in_proj_weight, layer.self_attn.in_proj_weight)


def test_redrawing_draws_from_the_global_state() -> None:
    net = Small()
    torch.manual_seed(0)
    redraw(net)
    first = net.fc.weight.detach().clone()
    torch.manual_seed(0)
    redraw(net)
    assert torch.equal(first, net.fc.weight)
