"""MobileNetV2: sizes from AHFAL's experiments, feature maps, and federated training."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Generator, nn
from torch.testing import assert_close

from fallow.core.model_vectors import Layout
from fallow.core.streams import stream
from fallow.core.training_config import Optimizer, TrainingConfig
from fallow.engine import Job, Loop, row_loss
from fallow.experiment.event_log import EventLog
from fallow.experiment.run import ExperimentRun
from fallow.experiment.simulation import build_environment
from fallow.models import build_model
from fallow.settings.config import ExperimentConfig
from fallow.settings.spec import Spec
from fallow.training import FedAvg


def model(shape: tuple[int, ...] = (1, 8, 8), outputs: int = 3, head: str = "1x1") -> Any:
    return build_model(
        "mobilenet-v2", shape, outputs, Generator().manual_seed(0), head=head
    )


@pytest.mark.parametrize(
    ("shape", "outputs", "head", "count"),
    [
        ((3, 32, 32), 10, "3x3", 5_513_482),
        ((3, 32, 32), 100, "3x3", 5_628_772),
        ((1, 28, 28), 10, "3x3", 5_512_906),
        ((3, 32, 32), 10, "1x1", 2_236_682),
    ],
)
def test_it_has_as_many_parameters_as_the_published_experiments_say(
    shape: tuple[int, ...], outputs: int, head: str, count: int
) -> None:
    assert sum(p.numel() for p in model(shape, outputs, head).parameters()) == count


def test_the_3x3_head_is_the_default() -> None:
    default: Any = build_model("mobilenet-v2", (1, 8, 8), 3, Generator().manual_seed(0))
    kernels = [m.kernel_size for m in default.body.children() if isinstance(m, nn.Conv2d)]
    assert kernels == [(3, 3), (3, 3)]  # the stem and the last one


def test_32_pixels_end_as_8_and_1280_features() -> None:
    net, x = model((3, 32, 32), head="1x1").eval(), torch.zeros(1, 3, 32, 32)
    assert net.body[:-2](x).shape == (1, 1280, 8, 8)
    assert net.embed(x).shape == (1, 1280)


def test_ten_of_seventeen_blocks_add_their_input() -> None:
    blocks = [m for m in model().modules() if hasattr(m, "adds_input")]
    assert len(blocks) == 17 and sum(block.adds_input for block in blocks) == 10
    block: Any = next(b for b in blocks if b.adds_input).eval()
    x = torch.randn(
        1, block.residual[0].in_channels, 4, 4, generator=Generator().manual_seed(1)
    )
    assert_close(block(x), x + block.residual(x))
    assert (block(x) < 0).any()  # no ReLU after the sum


def test_the_head_starts_small_and_without_bias() -> None:
    head = model(outputs=50).head
    assert float(head.weight.detach().std()) == pytest.approx(0.01, rel=0.05)
    assert not head.bias.any()


def test_an_unknown_head_is_refused_with_the_choices() -> None:
    with pytest.raises(ValueError, match="no head '5x5'; known: 1x1, 3x3"):
        model(head="5x5")


@pytest.mark.long
def test_a_step_on_eight_rows_moves_every_parameter_and_the_statistics() -> None:
    net = model()
    layout = Layout.of(net)
    norms = [m for m in net.modules() if isinstance(m, nn.BatchNorm2d)]
    start = layout.flatten(net)
    assert len(start["stats"]) == 2 * sum(m.num_features for m in norms)  # no counters
    x = torch.randn(8, 1, 8, 8, generator=stream(0, "x"))
    job = Job(
        "a", x, torch.arange(8) % 3, torch.ones(8), start, lambda *p: stream(0, *p), {}
    )
    training_config = TrainingConfig(batch_size=8, optimizer=Optimizer(lr=0.01))
    method = FedAvg(training_config=training_config)
    (done,) = Loop(net, layout, row_loss("classification")).fit(
        method, training_config, 0, [job]
    )
    moved = layout.views((done.sent["w"] - start["w"]).abs())
    assert all(bool(part.any()) for part in moved.values())
    assert bool((done.sent["stats"] != start["stats"]).float().mean() > 0.9)


@pytest.mark.long
def test_batch_statistics_of_the_sites_are_averaged_as_the_weights_are() -> None:
    config = ExperimentConfig(
        "tiny",
        model=Spec("mobilenet-v2", {"head": "1x1"}),
        rows=60,
        test_rows=10,
        sites=2,
        rounds=1,
        cycles=0,
        score_rounds=1,
        initial=8,
        training_config=TrainingConfig(batch_size=8, optimizer=Optimizer(lr=0.01)),
    )
    event_log = EventLog()
    made = build_environment(config, 0, event_log)
    run = ExperimentRun(made, event_log)
    run.initial()
    state = run.train(0, None)["state"]
    event_log.close()
    sites = [site.memory["local"] for site in made.members.values()]
    for part in ("w", "stats"):
        assert_close(state[part], (sites[0][part] + sites[1][part]) / 2)
    assert not torch.equal(sites[0]["stats"], sites[1]["stats"])
