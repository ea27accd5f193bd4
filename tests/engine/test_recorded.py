"""Steps on fixed places against the loop.  Without CUDA a step is called where it would be played:
all but the recording itself is what a GPU runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, final

import pytest
import torch
from torch import Tensor, nn

from fallow.core.banks import Layout
from fallow.core.local import LocalTraining
from fallow.core.training_config import Optimizer, Schedule, TrainingConfig, TrainingStage
from fallow.engine import Fitted, Job, Loop, row_loss
from fallow.engine.device import Device, bring_back
from fallow.engine.placement import Placement
from fallow.engine.recorded import MOST_LANES, Recorder
from fallow.models import ResNet8
from fallow.training import FedAvg, FedProx
from tests.engine.jobs import (
    DEVICE,
    SHAPES,
    agree,
    drawn,
    dropout,
    jobs,
    linear,
    loop,
    mlp,
    norm,
    over_rounds,
    streams,
)
from tests.engine.methods import Beside

SGD = Optimizer("sgd", 0.01, momentum=0.9, weight_decay=0.01)
ADAM = Optimizer("adam", 0.003, weight_decay=0.01)
CONFIG = TrainingConfig((TrainingStage(2),), 4, SGD)
CPU = torch.device("cpu")


def resnet() -> nn.Module:
    return drawn(ResNet8((3, 8, 8), 3))


SHAPES[resnet] = (3, 8, 8)
MODELS = (linear, mlp, norm, resnet, dropout)


@final
@dataclass
class Returning:
    """A recorder whose models come back to the processor, as an executor brings them."""

    recorder: Recorder

    def fit(
        self,
        method: LocalTraining,
        training_config: TrainingConfig,
        round_: int,
        given: Sequence[Job],
    ) -> list[Fitted]:
        done = self.recorder.fit(method, training_config, round_, given)
        assert done is not None
        return [bring_back(one) for one in done]


def recorder(make: Callable[[], nn.Module]) -> tuple[Recorder, list[str]]:
    told: list[str] = []
    model = make()
    made = Device(
        model,
        Layout.of(model),
        row_loss("classification"),
        placement=Placement.open(DEVICE),
        tell=told.append,
    )
    return made.recorder, told


def rows_of(make: Callable[[], nn.Module]) -> tuple[int, ...]:
    if make in (norm, resnet):
        return (12, 6, 4)
    return (11, 5, 0, 8, 3)


CONFIGS = {
    "momentum": CONFIG,
    "moments that persist": replace(CONFIG, optimizer=replace(SGD, persist=True)),
    "adam": replace(CONFIG, optimizer=replace(ADAM, persist=True)),
    "a falling rate": replace(CONFIG, schedule=Schedule((1, 3), 0.3, "epoch")),
    "parts": replace(CONFIG, stages=(TrainingStage(1, "head"), TrainingStage(1, "body"))),
}


@pytest.mark.parametrize("training_config", CONFIGS.values(), ids=CONFIGS)
@pytest.mark.parametrize("make", MODELS)
def test_it_makes_the_models_of_the_loop(
    make: Callable[[], nn.Module], training_config: TrainingConfig
) -> None:
    given = jobs(make, rows_of(make), weighted=True)
    ours, told = recorder(make)
    assert ours.can_fit(FedAvg(), training_config, given)
    theirs = over_rounds(loop(make), FedAvg(), training_config, given, 3)
    found = over_rounds(Returning(ours), FedAvg(), training_config, given, 3)
    for mine, others in zip(found, theirs, strict=True):
        for a, b in zip(mine, others, strict=True):
            agree(a.sent, b.sent)
            assert a.steps == b.steps
            assert a.own.keys() == b.own.keys()
    assert ours.is_checked
    assert told == []


@pytest.mark.parametrize("make", [norm, resnet, dropout])
def test_crops_are_those_that_the_loop_draws(make: Callable[[], nn.Module]) -> None:
    training_config = replace(CONFIG, augment=("flip", "crop2"))
    given = jobs(make, (12, 6, 4))
    ours, _ = recorder(make)
    found = Returning(ours).fit(FedAvg(), training_config, 1, given)
    for a, b in zip(
        found, loop(make).fit(FedAvg(), training_config, 1, given), strict=True
    ):
        agree(a.sent, b.sent)


def test_places_grow_with_the_rows_of_a_site_and_are_kept_where_they_suffice() -> None:
    ours, _ = recorder(mlp)
    rooms = []
    for n in (5, 7, 9, 10, 3):
        (job,) = jobs(mlp, (n,))
        (done,) = Returning(ours).fit(FedAvg(), CONFIG, 0, [job])
        (wanted,) = loop(mlp).fit(FedAvg(), CONFIG, 0, [job])
        agree(done.sent, wanted.sent)
        (lane,) = ours.lanes.values()
        rooms.append(len(lane.y))
    assert rooms == [5, 10, 10, 10, 10]


def test_rows_that_were_changed_in_place_are_read_again() -> None:
    ours, _ = recorder(mlp)
    (job,) = jobs(mlp, (8,))
    ours.fit(FedAvg(), CONFIG, 0, [job])
    job.x.mul_(2)
    (done,) = Returning(ours).fit(FedAvg(), CONFIG, 0, [job])
    agree(done.sent, loop(mlp).fit(FedAvg(), CONFIG, 0, [job])[0].sent)


def test_what_comes_back_is_not_the_fixed_place_itself() -> None:
    ours, _ = recorder(mlp)
    (job,) = jobs(mlp, (8,))
    (first,) = ours.fit(FedAvg(), CONFIG, 0, [job]) or []
    kept = first.sent["w"].clone()
    ours.fit(FedAvg(), CONFIG, 1, [replace(job, streams=streams(0, 1))])
    assert torch.equal(first.sent["w"], kept)


def test_steps_that_do_more_than_descend_are_left_to_the_loop() -> None:
    ours, _ = recorder(mlp)
    given = jobs(mlp)
    assert ours.can_fit(FedAvg(), CONFIG, given)
    assert not ours.can_fit(Beside(), CONFIG, given)
    assert not ours.can_fit(FedProx(mu=0.1), CONFIG, given)
    for training_config in (
        replace(CONFIG, patience=1),
        replace(CONFIG, stop_at=0.9),
        replace(CONFIG, mix=0.4),
    ):
        assert not ours.can_fit(FedAvg(), training_config, given)
    assert not ours.can_fit(FedAvg(), CONFIG, jobs(mlp, (4,) * (MOST_LANES + 1)))


@final
class Unrecordable(nn.Module):
    """A model whose pass PyTorch refuses to record, as one that waits for the device."""

    waits: ClassVar[bool] = True

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Identity()
        self.head = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        if Unrecordable.waits:
            raise torch.AcceleratorError("CUDA error: operation not permitted\nmore")
        outputs: Tensor = self.head(x)
        return outputs


@final
class Moody(nn.Module):
    """A model that is another one each time: what was recorded would not be what is called."""

    passes: ClassVar[int] = 0

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Identity()
        self.head = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        Moody.passes += 1
        outputs: Tensor = self.head(x) * Moody.passes
        return outputs


def of(model: nn.Module) -> tuple[Recorder, list[str], list[Job]]:
    told: list[str] = []
    layout = Layout.of(model)
    start = layout.flatten(model)
    given = [replace(job, start=start) for job in jobs(linear, (8, 5))]
    trained = Loop(model, layout, row_loss("classification"))
    return Recorder(trained, CPU, told.append), told, given


def test_steps_that_differ_when_they_are_played_are_not_used() -> None:
    ours, told, given = of(drawn(Moody()))
    assert ours.fit(FedAvg(), CONFIG, 0, given) is None
    assert not ours.can_fit(FedAvg(), CONFIG, given)
    assert ours.lanes == {}
    (sentence,) = told
    assert "could not play recorded steps (it came to other weights)" in sentence


def test_a_model_that_cannot_be_recorded_is_trained_by_the_loop() -> None:
    ours, told, given = of(drawn(Unrecordable()))
    assert ours.fit(FedAvg(), CONFIG, 0, given) is None
    (sentence,) = told
    assert "(CUDA error: operation not permitted); sites are trained one after" in sentence
