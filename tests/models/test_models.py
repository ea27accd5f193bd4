"""Sizes from the papers, embed/head consistency, and reproducible initialization."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Generator, nn
from torch.func import functional_call
from torch.testing import assert_close

from fallow.core.build import names
from fallow.models import build_model, networks

COUNTS: list[tuple[str, tuple[int, ...], int, dict[str, Any], int]] = [
    ("Linear", (64,), 10, {}, 650),
    ("Linear", (1, 8, 8), 10, {"bias": False}, 640),
    ("MLP", (1, 8, 8), 10, {}, 4810),
    ("MLP", (64,), 3, {"hidden": [32, 16]}, 2659),
    ("LeNet", (3, 32, 32), 10, {}, 62_006),
    ("LeNet", (1, 28, 28), 10, {}, 44_426),
    ("LeNetFEMNIST", (1, 28, 28), 10, {}, 37_586),
    ("LeNetFEMNIST", (1, 28, 28), 62, {}, 42_838),
    ("CNN4", (3, 32, 32), 10, {}, 115_658),
    ("CNN4", (3, 32, 32), 100, {}, 138_788),
    ("CNN4", (1, 28, 28), 10, {}, 112_586),
    ("CNN4", (1, 28, 28), 4, {}, 112_196),
    ("CNN4", (3, 28, 28), 7, {}, 113_543),
    ("CNN4", (3, 28, 28), 10, {}, 113_738),
    ("DigitsCNN", (1, 8, 8), 10, {}, 6_090),
    ("MobileNetV1", (3, 32, 32), 10, {}, 3_217_226),
    ("ResNet18", (3, 32, 32), 10, {}, 11_173_962),
    ("ResNet8", (3, 32, 32), 10, {}, 77_946),
    ("ResNet8", (3, 32, 32), 100, {}, 83_796),
    ("ResNet8", (1, 28, 28), 10, {}, 77_658),
    ("ResNet8", (1, 28, 28), 10, {"variant": "mnist"}, 77_562),
    ("Trees", (13,), 2, {"stages": 20, "depth": 2}, 20 * (3 + 3 + 4) + 4),
    ("Trees", (13,), 3, {"stages": 20, "depth": 2}, 3 * 20 * (3 + 3 + 4) + 12),
]
EACH: list[tuple[str, tuple[int, ...], dict[str, Any]]] = [
    ("Linear", (1, 8, 8), {}),
    ("Linear", (1, 8, 8), {"init": "default"}),
    ("MLP", (1, 8, 8), {"hidden": (32, 16)}),
    ("LeNet", (3, 32, 32), {}),
    ("LeNet", (1, 28, 28), {}),
    ("LeNet", (1, 16, 16), {}),
    ("LeNetFEMNIST", (1, 28, 28), {}),
    ("CNN4", (3, 16, 20), {}),
    ("DigitsCNN", (1, 8, 8), {}),
    ("MobileNetV1", (1, 8, 8), {}),
    ("MobileNetV2", (1, 8, 8), {"head": "1x1"}),
    ("ResNet18", (1, 8, 8), {}),
    ("ResNet8", (3, 32, 32), {}),
    ("ResNet8", (1, 28, 28), {"variant": "mnist"}),
    ("Trees", (1, 8, 8), {"stages": 5}),
]
each_model = pytest.mark.parametrize(("name", "shape", "fields"), EACH)


def gen(seed: int = 0) -> Generator:
    return Generator().manual_seed(seed)


def rows(n: int, shape: tuple[int, ...]) -> torch.Tensor:
    return torch.randn(n, *shape, generator=gen(9))


@pytest.mark.parametrize(("name", "shape", "outputs", "fields", "count"), COUNTS)
def test_a_model_has_as_many_parameters_as_its_paper_says(
    name: str, shape: tuple[int, ...], outputs: int, fields: dict[str, Any], count: int
) -> None:
    model = build_model(name, shape, outputs, gen(), **fields)
    assert sum(p.numel() for p in model.parameters()) == count


def test_every_model_stands_in_the_table_of_these_tests() -> None:
    assert {name for name, _, _ in EACH} == set(names(networks))


@pytest.mark.parametrize(
    ("name", "shape", "features"),
    [
        ("Linear", (1, 8, 8), 64),
        ("LeNet", (3, 32, 32), 84),
        ("LeNetFEMNIST", (1, 28, 28), 100),
        ("CNN4", (3, 32, 32), 256),
        ("CNN4", (1, 28, 28), 64),
        ("CNN4", (3, 64, 64), 1024),
        ("DigitsCNN", (1, 8, 8), 128),
        ("ResNet8", (3, 32, 32), 64),
    ],
)
def test_the_embedding_is_as_wide_as_its_paper_says(
    name: str, shape: tuple[int, ...], features: int
) -> None:
    model: Any = build_model(name, shape, 10, gen()).eval()
    assert model.embed(rows(2, shape)).shape == (2, features)


@pytest.mark.parametrize("variant", ["cifar", "mnist"])
def test_resnet8_has_seven_batch_norms(variant: str) -> None:
    model = build_model("resnet8", (1, 28, 28), 10, gen(), variant=variant)
    assert sum(isinstance(layer, nn.BatchNorm2d) for layer in model.modules()) == 7


def test_resnet8_for_cifar_carries_583_values_of_statistics() -> None:
    model = build_model("resnet8", (3, 32, 32), 10, gen())
    assert sum(b.numel() for b in model.buffers()) == 583


def test_blocks_of_resnet18_begin_as_their_shortcuts() -> None:
    model: Any = build_model("resnet18", (1, 8, 8), 10, gen()).eval()
    stem, block = model.body[:3], model.body[3]
    x = stem(rows(2, (1, 8, 8)))
    assert torch.equal(block(x), x)
    changed = model.body[5]  # to half the resolution, with batch norm in the shortcut
    assert torch.equal(changed(x), torch.relu(changed.shortcut(x)))


@each_model
@pytest.mark.parametrize("training", [True, False])
def test_forward_is_the_head_of_the_embedding(
    name: str, shape: tuple[int, ...], fields: dict[str, Any], training: bool
) -> None:
    model: Any = build_model(name, shape, 10, gen(), **fields).train(training)
    x = rows(3, shape)
    assert isinstance(model.head, nn.Linear)
    assert model(x).shape == (3, 10)
    assert_close(model(x), model.head(model.embed(x)))


@each_model
def test_a_pass_does_not_write_to_its_rows(
    name: str, shape: tuple[int, ...], fields: dict[str, Any]
) -> None:
    x = rows(2, shape)
    build_model(name, shape, 10, gen(), **fields)(x)
    assert torch.equal(x, rows(2, shape))


@each_model
def test_equal_generators_give_equal_weights(
    name: str, shape: tuple[int, ...], fields: dict[str, Any]
) -> None:
    one = build_model(name, shape, 10, gen(3), **fields).state_dict()
    torch.rand(5)  # other draws have no effect
    two = build_model(name, shape, 10, gen(3), **fields).state_dict()
    assert one.keys() == two.keys()
    assert all(torch.equal(one[key], two[key]) for key in one)


@each_model
def test_building_leaves_the_global_random_state_alone(
    name: str, shape: tuple[int, ...], fields: dict[str, Any]
) -> None:
    before = torch.get_rng_state()
    build_model(name, shape, 10, gen(), **fields)
    assert torch.equal(torch.get_rng_state(), before)


@each_model
def test_a_reset_sets_every_parameter_and_buffer(
    name: str, shape: tuple[int, ...], fields: dict[str, Any]
) -> None:
    model: Any = build_model(name, shape, 10, gen(1), **fields)
    fresh = {key: value.clone() for key, value in model.state_dict().items()}
    for value in model.state_dict().values():
        value.fill_(float("nan") if value.is_floating_point() else -7)
    model.reset(gen(1))
    assert_close(model.state_dict(), fresh, rtol=0, atol=0)


@each_model
def test_a_model_runs_with_weights_from_outside(
    name: str, shape: tuple[int, ...], fields: dict[str, Any]
) -> None:
    own = build_model(name, shape, 10, gen(1), **fields).eval()
    other = build_model(name, shape, 10, gen(2), **fields).eval()
    x = rows(2, shape)
    assert_close(functional_call(own, other.state_dict(), (x,)), other(x))


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("Linear", (1, 8, 8)),
        ("MLP", (64,)),
        ("LeNet", (1, 16, 16)),
        ("DigitsCNN", (1, 8, 8)),
    ],
)
def test_stacked_models_agree_with_each_model_alone(
    name: str, shape: tuple[int, ...]
) -> None:
    alone = [build_model(name, shape, 5, gen(site)).double() for site in range(3)]
    stacked = {
        key: torch.stack([model.state_dict()[key] for model in alone])
        for key in alone[0].state_dict()
    }
    x = rows(3, (4, *shape)).double()
    together = torch.vmap(lambda w, batch: functional_call(alone[0], w, (batch,)))(
        stacked, x
    )
    assert_close(
        together, torch.stack([model(b) for model, b in zip(alone, x, strict=True)])
    )


def test_different_generators_give_different_weights() -> None:
    one, two = (build_model("mlp", (4,), 2, gen(seed)).state_dict() for seed in (0, 1))
    assert not torch.equal(one["head.weight"], two["head.weight"])


def test_linear_starts_at_zero_and_on_request_as_in_pytorch() -> None:
    zero, drawn = (
        build_model("linear", (16,), 3, gen(), init=init).state_dict()["head.weight"]
        for init in ("zeros", "default")
    )
    assert not zero.any()
    assert 0 < drawn.abs().max() <= 1 / 4


def test_lenet_weights_fill_the_kaiming_interval_and_its_biases_are_zero() -> None:
    weights = build_model("lenet", (3, 32, 32), 10, gen()).state_dict()
    bound = (6 / 400) ** 0.5
    assert 0.99 * bound < weights["body.7.weight"].abs().max() <= bound
    assert not any(value.any() for key, value in weights.items() if key.endswith("bias"))


def test_resnet8_convolutions_have_the_fan_out_deviation() -> None:
    weights = build_model("resnet8", (3, 32, 32), 10, gen()).state_dict()
    assert weights["body.3.residual.3.weight"].std().item() == pytest.approx(
        (2 / (9 * 64)) ** 0.5, rel=0.02
    )


def test_the_head_of_cnn4_starts_without_bias() -> None:
    weights = build_model("cnn4", (3, 32, 32), 10, gen()).state_dict()
    assert not weights["head.bias"].any()
    assert weights["body.0.bias"].any()


def test_training_moves_batch_statistics_and_evaluation_does_not() -> None:
    model = build_model("resnet8", (3, 32, 32), 10, gen())
    mean = model.get_buffer("body.4.running_mean")
    model.eval()(rows(2, (3, 32, 32)))
    assert not mean.any()
    model.train()(rows(2, (3, 32, 32)))
    assert mean.any()


def test_the_mnist_block_adds_nothing_to_an_unchanged_input_but_its_residual() -> None:
    model: Any = build_model("resnet8", (1, 28, 28), 10, gen(), variant="mnist").eval()
    block, x = model.body[1], rows(1, (16, 4, 4))
    assert_close(block(x), x + block.residual(block.activation(x)))
    assert (block(x) < 0).any()  # no ReLU after the sum
