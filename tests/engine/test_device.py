"""The device executor against the loop, and its errors when a device runs out of memory.

No GPU is needed: the CPU is also a device, and so is PyTorch's "meta", which has no values
but, like a GPU, rejects tensors on other devices.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, final

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from fallow import training
from fallow.core.build import names
from fallow.core.local import LocalTraining
from fallow.core.model_vectors import Layout
from fallow.core.streams import stream
from fallow.core.training_config import Optimizer, TrainingConfig, TrainingStage
from fallow.engine import Fitted, Job, row_loss
from fallow.engine.device import (
    Device,
    DeviceCopies,
    ForwardPasses,
    SitesInFlight,
    describe_failure,
    ignore_message,
    is_device_error,
)
from fallow.engine.forward import check_draws, forward
from fallow.engine.placement import DeviceFailed, Placement, check_machine
from fallow.models.init import drawing_from
from fallow.models.networks import ResNet8
from fallow.training import FedAvg, personal
from tests.engine.jobs import (
    DEVICE,
    SHAPES,
    assert_agree,
    drawn,
    dropout,
    in_single,
    jobs,
    linear,
    loop,
    mlp,
    norm,
    over_rounds,
    regression,
    with_pools,
)
from tests.engine.methods import Beside, LookAhead, Pupil

SGD = Optimizer("sgd", 0.05, momentum=0.9, weight_decay=0.01)
ADAM = Optimizer("adam", 0.01, weight_decay=0.01)
CONFIG = TrainingConfig((TrainingStage(2),), 4, SGD)
NORM_ROWS = (12, 6, 4)
META = Placement(torch.device("meta"))


def resnet() -> nn.Module:
    return drawn(ResNet8((3, 8, 8), 3))


SHAPES[resnet] = (3, 8, 8)
MODELS = (linear, mlp, regression, norm, resnet, dropout)


def device(
    make: Callable[[], nn.Module], placement: Placement | None = None, **options: Any
) -> Device:
    model = make()
    where = placement or Placement.open(DEVICE)
    kind = "classification"
    if make is regression:
        kind = "regression"
    return Device(model, Layout.of(model), row_loss(kind), placement=where, **options)


def rows_of(make: Callable[[], nn.Module]) -> tuple[int, ...]:
    if make in (norm, resnet):
        return NORM_ROWS
    return (11, 5, 0, 8, 3)


def assert_same(ours: Sequence[Fitted], theirs: Sequence[Fitted]) -> None:
    for a, b in zip(ours, theirs, strict=True):
        assert_agree(a.sent, b.sent)
        assert a.steps == b.steps
        assert a.own.keys() == b.own.keys()
        for name in a.own:
            assert_agree(a.own[name].state, b.own[name].state)


# -- equality with the loop ------------------------------------------------------------


@pytest.mark.parametrize("optimizer", [SGD, ADAM], ids=str)
@pytest.mark.parametrize("make", MODELS)
def test_it_makes_the_models_of_the_loop(
    make: Callable[[], nn.Module], optimizer: Optimizer
) -> None:
    training_config = replace(CONFIG, optimizer=replace(optimizer, persist=True))
    value = jobs(make, rows_of(make), weighted=True)
    ours = over_rounds(device(make), FedAvg(), training_config, value, 3)
    theirs = over_rounds(loop(make), FedAvg(), training_config, value, 3)
    for mine, others in zip(ours, theirs, strict=True):
        assert_same(mine, others)


METHODS = {
    name: cls
    for name, cls in names((training, personal)).items()
    if issubclass(cls, LocalTraining)
}


@pytest.mark.long
@pytest.mark.parametrize("name", METHODS)
def test_every_method_of_training_makes_the_models_of_the_loop(name: str) -> None:
    method = METHODS[name]()
    training_config = replace(CONFIG, mix=0.4 if name == "KCFU" else None)
    pools = with_pools(jobs(norm, (12, 8, 4, 8, 16)))
    theirs = over_rounds(loop(norm), method, training_config, pools, 2)
    assert_same(
        over_rounds(device(norm), method, training_config, pools, 2)[-1], theirs[-1]
    )


@pytest.mark.parametrize("method", [Beside(), LookAhead(), Pupil()], ids=str)
def test_methods_of_newcomers_do_too(method: LocalTraining) -> None:
    training_config = replace(CONFIG, mix=0.4)
    pools = with_pools(jobs(mlp))
    theirs = over_rounds(loop(mlp), method, training_config, pools, 2)
    assert_same(over_rounds(device(mlp), method, training_config, pools, 2)[-1], theirs[-1])


STOPPING = {
    "an accuracy": replace(CONFIG, stop_at=0.5),
    "patience": replace(CONFIG, stages=(TrainingStage(6),), patience=1),
    "parts": replace(CONFIG, stages=(TrainingStage(1, "head"), TrainingStage(1, "body"))),
    "crops": replace(CONFIG, augment=("flip", "crop2")),
}


@pytest.mark.parametrize("training_config", STOPPING.values(), ids=STOPPING)
def test_every_kind_of_training_config_is_carried_out_as_by_the_loop(
    training_config: TrainingConfig,
) -> None:
    many_jobs = jobs(norm, NORM_ROWS)
    theirs = loop(norm).fit(FedAvg(), training_config, 0, many_jobs)
    assert_same(device(norm).fit(FedAvg(), training_config, 0, many_jobs), theirs)


def test_nothing_is_changed_that_a_job_brought() -> None:
    value = jobs(norm, NORM_ROWS)
    before = [(job.x.clone(), job.start["w"].clone()) for job in value]
    device(norm).fit(FedAvg(), CONFIG, 0, value)
    for job, (x, w) in zip(value, before, strict=True):
        assert_close(job.x, x, rtol=0, atol=0)
        assert_close(job.start["w"], w, rtol=0, atol=0)


@final
class Draws(nn.Module):
    """Model with custom random draws in training."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Identity()
        self.head = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        outputs: Tensor = self.head(x + 0.1 * torch.randn_like(x))
        return outputs


OTHERS = {
    "its own code": Draws(),
    "whole maps": nn.Sequential(nn.Linear(6, 3), nn.Dropout1d(0.5)),
    "between layers": nn.GRU(6, 3, num_layers=2, dropout=0.2),
    "leaky units": nn.Sequential(nn.Linear(6, 3), nn.RReLU()),
}


@pytest.mark.parametrize("model", OTHERS.values(), ids=OTHERS)
def test_a_model_that_draws_elsewhere_is_refused_and_not_changed(model: nn.Module) -> None:
    outside = torch.get_rng_state()
    with pytest.raises(ValueError, match=r"draws random numbers outside of nn\.Drop"):
        check_draws(model, (6,))
    assert torch.equal(torch.get_rng_state(), outside)


def test_trying_whether_a_model_draws_leaves_it_as_it_was() -> None:
    for make in (norm, dropout, resnet):
        model = make()
        before = {name: part.clone() for name, part in model.state_dict().items()}
        check_draws(model, SHAPES[make])
        for name, part in model.state_dict().items():
            assert torch.equal(part, before[name])


# -- all tensors on one device ---------------------------------------------------------

COMES_BACK = "Cannot copy out of meta tensor"


@pytest.mark.long
@pytest.mark.parametrize("make", MODELS)
def test_no_tensor_of_a_step_stays_behind_on_the_processor(
    make: Callable[[], nn.Module],
) -> None:
    value = jobs(make, rows_of(make), weighted=True)
    for training_config in (CONFIG, replace(CONFIG, optimizer=ADAM), STOPPING["parts"]):
        with pytest.raises(NotImplementedError, match=COMES_BACK):
            device(make, placement=META).fit(FedAvg(), training_config, 0, value)


def test_crops_and_teachers_are_there_too() -> None:
    pictures = jobs(norm, NORM_ROWS)
    with pytest.raises(NotImplementedError, match=COMES_BACK):
        device(norm, placement=META).fit(FedAvg(), STOPPING["crops"], 0, pictures)
    pools = with_pools(jobs(mlp))
    with pytest.raises(NotImplementedError, match=COMES_BACK):
        device(mlp, placement=META).fit(Pupil(), replace(CONFIG, mix=0.4), 0, pools)


@pytest.mark.parametrize("make", MODELS)
def test_predictions_are_made_where_the_model_is(make: Callable[[], nn.Module]) -> None:
    model = make()
    layout = Layout.of(model)
    state = layout.flatten(model)
    x = torch.randn(9, *SHAPES.get(make, (6,)), dtype=torch.float64)
    there = ForwardPasses(model, layout, META)
    for way in (there.predict, there.look, there.forward):
        with pytest.raises(NotImplementedError, match=COMES_BACK):
            way(state, x)


def test_a_pass_with_dropout_draws_what_it_draws_on_the_processor() -> None:
    model = dropout()
    layout = Layout.of(model)
    state = layout.flatten(model)
    x = torch.randn(9, 2, 5, 5, dtype=torch.float64)
    ours = ForwardPasses(model, layout, Placement.open(DEVICE))
    wanted = forward(model, layout, state, x, stream(0, "draws"))
    values = ours.forward(state, x, stream(0, "draws"))
    assert_close(values, wanted, rtol=0, atol=1e-10)
    assert not torch.allclose(values, ours.forward(state, x))


def test_masks_of_dropout_are_drawn_on_the_processor_wherever_the_model_is() -> None:
    network = device(dropout, META).loop.model.train()
    generator = torch.Generator()
    before = generator.get_state()
    with drawing_from(generator):
        network(torch.zeros(9, 2, 5, 5, dtype=torch.float64, device="meta"))
    assert not torch.equal(generator.get_state(), before)


def test_a_gradient_reaches_rows_from_which_a_pass_was_made() -> None:
    model = mlp()
    layout = Layout.of(model)
    x = torch.randn(5, 6, dtype=torch.float64, requires_grad=True)
    outputs = ForwardPasses(model, layout, Placement()).forward(layout.flatten(model), x)
    (slope,) = torch.autograd.grad(outputs.sum(), x)
    model.eval()
    (wanted,) = torch.autograd.grad(model(x).sum(), x)
    assert_close(slope, wanted, rtol=0, atol=1e-12)


# -- examples are copied once ----------------------------------------------------------


def test_rows_are_copied_again_only_where_they_are_others_or_were_changed() -> None:
    copies = DeviceCopies(torch.device("meta"))
    x = torch.ones(3, 2)
    first = copies.copy_of("a", "x", x)
    assert copies.copy_of("a", "x", x) is first
    assert copies.copy_of("b", "x", x) is not first
    assert copies.copy_of("a", "x", x.clone()) is not first
    again = copies.copy_of("a", "x", x)
    x[0] = 2
    assert copies.copy_of("a", "x", x) is not again


def test_rows_to_test_on_are_dropped_with_the_last_who_looks_at_them() -> None:
    copies = DeviceCopies(torch.device("meta"))
    x = torch.ones(3, 2)
    assert copies.copy_of_tests(x) is copies.copy_of_tests(x)
    seen = weakref.ref(x)
    del x
    assert seen() is None


# -- memory ----------------------------------------------------------------------------


@final
class Greedy(nn.Module):
    """Linear model that requests an exabyte in its third pass or in every pass.

    This simulates memory used by another program, for a while or permanently.
    """

    def __init__(self, *, always: bool) -> None:
        super().__init__()
        self.body = nn.Identity()
        self.head = nn.Linear(6, 3)
        self.always = always
        self.passes = 0

    def forward(self, x: Tensor) -> Tensor:
        self.passes += 1
        if self.always or self.passes == 3:
            torch.empty(2**60, dtype=torch.uint8)
        outputs: Tensor = self.head(x)
        return outputs


def greedy(*, always: bool) -> tuple[Device, list[Job], list[str]]:
    model = drawn(Greedy(always=always))
    notes: list[str] = []
    layout = Layout.of(model)
    start = layout.flatten(model)
    many_jobs = [replace(job, start=start) for job in jobs(linear, (4, 4, 4, 4, 4))]
    loss = row_loss("classification")
    return Device(model, layout, loss, tell=notes.append), many_jobs, notes


def test_where_memory_is_short_half_of_the_sites_are_trained_at_a_time() -> None:
    ours, value, output = greedy(always=False)
    values = ours.fit(FedAvg(), CONFIG, 0, value)
    assert output == [
        "device cpu has not enough memory for 5 sites at once: 2 at a time from now on"
    ]
    assert_same(values, ours.loop.fit(FedAvg(), CONFIG, 0, value))


def test_where_not_one_site_fits_the_run_says_what_to_do() -> None:
    ours, value, output = greedy(always=True)
    with pytest.raises(
        DeviceFailed,
        match=r"even one site \(site site-0\); lower batch_size",
    ):
        ours.fit(FedAvg(), CONFIG, 0, value)
    assert [sentence.partition(": ")[2] for sentence in output] == [
        "2 at a time from now on",
        "1 at a time from now on",
    ]


def test_pytorchs_own_error_for_gpus_is_known_too() -> None:
    notes: list[str] = []
    sizes: list[int] = []
    value = jobs(linear, (4, 4, 4, 4))

    def train(some: Sequence[Job]) -> list[Fitted]:
        sizes.append(len(some))
        if len(some) > 1:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB")
        return [Fitted(job.start, {}, 0) for job in some]

    sites = SitesInFlight("cuda", notes.append)
    trained = sites.train(value, train, free=lambda: None)
    assert len(trained) == 4
    assert sizes == [4, 2, 1, 1, 1, 1]
    assert sites.train(value[:1], train, free=lambda: None)  # it is remembered
    assert len(notes) == 2


def test_another_error_is_not_taken_for_a_lack_of_memory() -> None:
    def train(some: Sequence[Job]) -> list[Fitted]:
        raise RuntimeError("shapes differ")

    with pytest.raises(RuntimeError, match="shapes differ"):
        SitesInFlight("cpu", ignore_message).train(jobs(linear), train, free=lambda: None)


# -- failing devices -------------------------------------------------------------------


@final
class Faulty(nn.Module):
    """Model whose forward pass fails as on a broken GPU."""

    def __init__(self, error: RuntimeError) -> None:
        super().__init__()
        self.body = nn.Identity()
        self.head = nn.Linear(6, 3)
        self.error = error

    def forward(self, x: Tensor) -> Tensor:
        raise self.error


def test_a_device_that_fails_ends_the_run_with_the_way_to_go_on() -> None:
    error = torch.AcceleratorError("CUDA error: unspecified launch failure\nCompile with")
    model = drawn(Faulty(error))
    layout = Layout.of(model)
    value = [replace(job, start=layout.flatten(model)) for job in jobs(linear)]
    ours = Device(model, layout, row_loss("classification"))
    way_out = r"\(CUDA error: unspecified launch failure\); finished steps are stored: continue with"
    with pytest.raises(DeviceFailed, match=way_out):
        ours.fit(FedAvg(), CONFIG, 0, value)


def test_a_mistake_of_a_model_is_left_as_it_is() -> None:
    assert not is_device_error(RuntimeError("mat1 and mat2 shapes cannot be multiplied"))
    assert is_device_error(RuntimeError("cuDNN error: CUDNN_STATUS_EXECUTION_FAILED"))
    assert "--set device=cpu" in describe_failure(
        Placement(), RuntimeError("CUDA error: x")
    )


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_a_machine_without_a_gpu_says_so() -> None:
    with pytest.raises(
        ValueError, match="PyTorch finds no GPU on this machine; set device=cpu"
    ):
        check_machine("cuda", "float32")


@pytest.mark.skipif(torch.backends.mps.is_available(), reason="this machine has one")
def test_a_machine_without_a_gpu_of_apple_says_so() -> None:
    with pytest.raises(ValueError, match="no Apple GPU that PyTorch supports"):
        check_machine("mps", "float32")


# -- bfloat16 --------------------------------------------------------------------------


def rough(make: Callable[[], nn.Module], precision: str) -> Device:
    model = make().float()
    where = Placement(torch.device("cpu"), precision)
    return Device(model, Layout.of(model), row_loss("classification"), placement=where)


@pytest.mark.parametrize("make", [mlp, norm, resnet])
def test_bfloat16_is_near_to_float32_and_keeps_what_it_promises(
    make: Callable[[], nn.Module],
) -> None:
    value = in_single(jobs(make, NORM_ROWS))
    training_config = replace(
        CONFIG, stages=(TrainingStage(1),), optimizer=Optimizer(lr=0.01)
    )
    fine = rough(make, "float32").fit(FedAvg(), training_config, 0, value)
    ours = rough(make, "bf16").fit(FedAvg(), training_config, 0, value)
    again = rough(make, "bf16").fit(FedAvg(), training_config, 0, value)
    for a, b, c in zip(ours, fine, again, strict=True):
        assert a.sent["w"].dtype == a.sent["stats"].dtype == torch.float32
        assert torch.equal(a.sent["w"], c.sent["w"])  # the same bits each time
        assert not torch.equal(a.sent["w"], b.sent["w"])  # products are rounded to bfloat16
        assert_close(a.sent["w"], b.sent["w"], rtol=0.05, atol=0.02)
        assert_close(a.sent["stats"], b.sent["stats"], rtol=0.05, atol=0.02)


def test_predictions_are_never_made_in_bfloat16() -> None:
    model = mlp().float()
    layout = Layout.of(model)
    state = layout.flatten(model)
    x = torch.randn(5, 6)
    ours = ForwardPasses(model, layout, Placement(torch.device("cpu"), "bf16"))
    fine = ForwardPasses(model, layout, Placement())
    assert torch.equal(ours.predict(state, x), fine.predict(state, x))
    assert torch.equal(ours.look(state, x)[1], fine.look(state, x)[1])
