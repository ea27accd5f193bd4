"""Invalid names, fields and shapes are refused with the reason; custom modules."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from torch import Generator

from fallow.models import build_model, check_model
from tests.models import owned

OWN = "tests.models.owned:"


def gen(seed: int = 0) -> Generator:
    return Generator().manual_seed(seed)


@pytest.mark.parametrize(
    ("name", "shape", "outputs", "fields", "sentence"),
    [
        ("lenett", (3, 32, 32), 10, {}, "did you mean 'lenet'?"),
        ("model", (64,), 10, {}, "is not one of the models"),
        (
            "mlp",
            (64,),
            10,
            {"hiden": (3,)},
            "mlp has no setting 'hiden'; did you mean 'hidden'?",
        ),
        ("mlp", (64,), 10, {"hidden": ()}, "without hidden layers it is Linear"),
        ("mlp", (64,), 10, {"hidden": (8, 0)}, "not (8, 0)"),
        (
            "linear",
            (64,),
            10,
            {"init": "one"},
            "Linear has no init 'one'; known: default, zeros",
        ),
        ("resnet8", (3, 32, 32), 10, {"variant": "svhn"}, "known: cifar, mnist"),
        (
            "lenet",
            (1, 8, 8),
            10,
            {},
            "LeNet needs images of at least 16x16, but the data has 8x8",
        ),
        (
            "cnn4",
            (1, 28, 15),
            10,
            {},
            "CNN4 needs images of at least 16x16, but the data has 28x15",
        ),
        ("digits-cnn", (1, 3, 8), 10, {}, "at least 4x4"),
        (
            "resnet8",
            (64,),
            10,
            {},
            "examples of shape (64,); Linear and MLP support any shape",
        ),
        ("linear", (), 10, {}, "an example of shape () is empty"),
        ("linear", (3, 0), 10, {}, "an example of shape (3, 0) is empty"),
    ],
)
def test_what_cannot_be_built_is_refused_with_the_reason(
    name: str, shape: tuple[int, ...], outputs: int, fields: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ValueError, match=re.escape(sentence)):
        build_model(name, shape, outputs, gen(), **fields)


@pytest.mark.parametrize(
    ("name", "fields", "sentence"),
    [
        ("TwoTooMany", {}, "the head has 12 outputs but the data has 10 classes"),
        ("NoEmbed", {}, "NoEmbed does not accept examples of shape (64,)"),
        ("ConvHead", {}, "ConvHead does not accept examples of shape (64,)"),
        ("Softmaxed", {}, "forward(x) of Softmaxed is not head(embed(x))"),
        ("Tall", {}, "Tall does not accept examples of shape (64,)"),
        (
            "Pair",
            {},
            "forward(x) of Pair must return a tensor of shape (2, 10) for 2 examples, not tuple",
        ),
        ("NoRoom", {}, "NoRoom does not accept examples of shape (64,)"),
        ("Own", {"witdh": 3}, "has no setting 'witdh'; did you mean 'width'?"),
        ("Missing", {}, "could not be loaded"),
        ("not_a_module", {}, "a model must be a torch.nn.Module, not Tensor"),
    ],
)
def test_a_module_of_the_user_that_breaks_the_contract_is_refused(
    name: str, fields: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ValueError, match=re.escape(sentence)):
        build_model(OWN + name, (64,), 10, gen(), **fields)


def test_a_head_with_two_outputs_is_refused_for_regression() -> None:
    module = build_model(OWN + "Own", (64,), 2, gen())
    with pytest.raises(ValueError, match="has 2 outputs but regression needs 1"):
        check_model(module, (64,), 1)


def test_rows_of_another_shape_than_the_module_takes_are_refused() -> None:
    module = build_model(OWN + "Own", (64,), 10, gen())
    with pytest.raises(
        ValueError, match=re.escape("Own does not accept examples of shape (63,)")
    ):
        check_model(module, (63,), 10)


def test_a_module_of_the_user_takes_its_weights_from_the_generator_alone() -> None:
    before = torch.get_rng_state()
    one = build_model(OWN + "Own", (64,), 10, gen(3), width=5).state_dict()
    assert torch.equal(torch.get_rng_state(), before)
    torch.rand(5)
    two, other = (
        build_model(OWN + "Own", (64,), 10, gen(seed), width=5).state_dict()
        for seed in (3, 4)
    )
    assert all(torch.equal(one[key], two[key]) for key in one)
    assert not torch.equal(one["head.weight"], other["head.weight"])


def test_the_generator_moves_on_when_a_module_of_the_user_draws_from_it() -> None:
    shared = gen(3)
    one, two = (build_model(OWN + "Own", (64,), 10, shared).state_dict() for _ in range(2))
    assert not torch.equal(one["head.weight"], two["head.weight"])


def test_the_global_random_state_survives_a_constructor_that_raises() -> None:
    before = torch.get_rng_state()
    with pytest.raises(ValueError, match="raised TypeError"):
        build_model(OWN + "Own", (64,), 10, gen(), width="wide")
    assert torch.equal(torch.get_rng_state(), before)


def test_a_check_leaves_weights_statistics_and_modes_as_they_were() -> None:
    module = owned.Own((64,), 10).train()
    module.norm.eval()
    before = {key: value.clone() for key, value in module.state_dict().items()}
    check_model(module, (64,), 10)
    assert module.training and module.body.training and not module.norm.training
    assert all(
        torch.equal(value, before[key]) for key, value in module.state_dict().items()
    )


def test_a_check_takes_a_module_in_float64() -> None:
    check_model(owned.Own((64,), 10).double(), (64,), 10)


def test_a_check_accepts_every_kind_of_model_of_the_package() -> None:
    for name, shape in {"linear": (1, 8, 8), "mlp": (7,), "lenet": (1, 28, 28)}.items():
        check_model(build_model(name, shape, 1, gen()), shape, 1)
