"""Custom PyTorch models, written in different styles, work without changes."""

from __future__ import annotations

import copy
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import fallow as fl
from fallow.api.fingerprints import digest_of_class
from fallow.models.custom import Template
from tests.each import mark_long


class Net(nn.Module):
    """A small CNN with a named last layer."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3, padding=1)
        self.fc1 = nn.Linear(4 * 16, 16)
        self.fc = nn.Linear(16, 10)

    def forward(self, x: Tensor) -> Tensor:
        seen = nn.functional.max_pool2d(self.conv(x).relu(), 2).flatten(1)
        logits: Tensor = self.fc(self.fc1(seen).relu())
        return logits


class Wide(nn.Module):
    """Model with a constructor argument."""

    def __init__(self, width: int, activation: type[nn.Module] = nn.ReLU) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(64, width), nn.BatchNorm1d(width))
        self.activation = activation()
        self.drop = nn.Dropout(0.1)
        self.out = nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        seen = self.activation(self.layers(x.view(x.size(0), -1)))
        logits: Tensor = self.out(self.drop(seen))
        return logits


class Block(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(channels)

    def forward(self, x: Tensor) -> Tensor:
        changed: Tensor = self.norm(self.conv(x))
        return (changed + x).relu()


class ResNet(nn.Module):
    """Residual blocks with the weight initialization of torchvision."""

    def __init__(self, blocks: int, in_channels: int = 3, num_classes: int = 1000) -> None:
        super().__init__()
        self.conv = nn.Conv2d(in_channels, 4, 3, padding=1, bias=False)
        self.layers = nn.Sequential(*(Block(4) for _ in range(blocks)))
        self.pool = nn.AdaptiveAvgPool2d(2)
        self.fc = nn.Linear(16, num_classes)
        for layer in self.modules():
            if isinstance(layer, nn.Conv2d):
                nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.fc(torch.flatten(self.pool(self.layers(self.conv(x))), 1))
        return logits


FIVE_USERS: dict[str, Any] = {
    "a Sequential": nn.Sequential(
        nn.Flatten(), nn.Linear(64, 8), nn.ReLU(), nn.Linear(8, 10)
    ),
    "an instance of a class": Net(),
    "a class": Net,
    "a partial of a class": partial(Wide, width=12),
    "a partial that TOML cannot hold": partial(Wide, 12, activation=nn.Tanh),
    "a partial of a residual network": partial(ResNet, blocks=2),
    "a function": lambda: ResNet(1, 1, 10),
    "a model on flat rows": nn.Sequential(nn.Linear(64, 8), nn.Tanh(), nn.Linear(8, 10)),
}


@pytest.fixture(scope="module")
def digits() -> fl.Federation:
    rows = fl.load("digits")
    return fl.Federation(rows, fl.Dirichlet(alpha=1.0), sites=3)


SHORT: dict[str, Any] = {
    "training": "fedavg",
    "initial": 20,
    "budget": 5,
    "cycles": 1,
    "rounds": 1,
}


@pytest.mark.long
@pytest.mark.parametrize("model", FIVE_USERS.values(), ids=FIVE_USERS)
def test_a_custom_model_works_at_the_first_attempt(
    model: Any, digits: fl.Federation
) -> None:
    run = fl.run(digits, fl.BADGE(), model=model, **SHORT)
    assert run.records["accuracy"].notna().all()
    assert run.predict_proba(digits.dataset.x_test).shape == (359, 10)
    assert isinstance(run.model, nn.Module)


@pytest.mark.long
@pytest.mark.filterwarnings("default:.*the training is the problem:RuntimeWarning")  # tiny
@pytest.mark.parametrize(
    "name",
    mark_long(
        ["a Sequential", "a function", "a partial of a class"],
        ["a Sequential", "a function"],
    ),
)
def test_jobs_do_not_change_the_results_of_a_custom_model(
    name: str, digits: fl.Federation
) -> None:
    scores = []
    for jobs in (1, 2):
        study = fl.compare(
            digits,
            model=FIVE_USERS[name],
            seeds=2,
            jobs=jobs,
            **SHORT,
        )
        scores.append(study.records[["strategy", "seed", "cycle", "accuracy"]])
    assert scores[0].equals(scores[1])
    by_seed = scores[0].query("cycle == 0").groupby("seed")["accuracy"].first()
    assert by_seed.nunique() == 2, "each seed draws weights of its own"


def test_a_run_leaves_the_users_instance_as_it_was(digits: fl.Federation) -> None:
    net = Net().train()
    before = copy.deepcopy(net.state_dict())
    run = fl.run(digits, model=net, **SHORT)
    assert isinstance(run.model, Net) and run.model is not net
    assert net.training
    for name, value in net.state_dict().items():
        assert torch.equal(value, before[name])


def test_a_kept_run_goes_on_with_the_same_model_and_refuses_another(
    digits: fl.Federation, tmp_path: Path
) -> None:
    def go(model: Any) -> fl.Run:
        return fl.run(digits, model=model, out=tmp_path / "run", **SHORT)

    first = go(nn.Sequential(nn.Linear(64, 8), nn.Linear(8, 10)))
    again = go(nn.Sequential(nn.Linear(64, 8), nn.Linear(8, 10)))
    assert first.records.equals(again.records)
    with pytest.raises(
        ValueError, match=r"Sequential has been edited since .* was started"
    ):
        go(nn.Sequential(nn.Linear(64, 9), nn.Linear(9, 10)))


def test_select_reads_a_module_whose_last_layer_has_any_name() -> None:
    x = torch.randn(20, 1, 8, 8)
    net = Net()
    with torch.no_grad():
        outputs = net.eval()(x)
    by_model = fl.select(x, fl.Entropy(), model=net, n=4)
    assert by_model.tolist() == fl.select(x, fl.Entropy(), outputs=outputs, n=4).tolist()
    assert len(fl.select(x, fl.BADGE(), model=net, n=4)) == 4


def test_a_model_that_cannot_serve_is_refused_before_anything_is_trained(
    digits: fl.Federation,
) -> None:
    softmaxed = nn.Sequential(nn.Flatten(), nn.Linear(64, 10), nn.Softmax(1))
    with pytest.raises(ValueError) as error:
        fl.run(digits, model=softmaxed, **SHORT)
    assert str(error.value) == (
        "Sequential changes the output of its last nn.Linear '1' by softmax; return that output "
        "itself, the logits"
    )


def test_a_digest_covers_the_weights_that_runs_start_from() -> None:
    net = Net()
    digests = set()
    for frozen in (0.5, 0.5, 0.7):
        net.get_parameter("conv.bias").requires_grad_(False).fill_(frozen)
        digests.add(digest_of_class(Template(net)))
    assert len(digests) == 2
    nn.init.zeros_(net.fc.weight)
    assert digest_of_class(Template(net)) in digests, "they are drawn anew"
    before = digest_of_class(lambda: net)
    nn.init.ones_(net.fc.weight)
    assert digest_of_class(lambda: net) != before
