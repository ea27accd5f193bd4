"""Batch norm needs two values per channel in every batch of training."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import fallow as fl
from fallow.api.runs import Run
from fallow.engine.banked import can_stack
from fallow.engine.batches import batch_sizes
from fallow.models.norms import needs_two_rows
from tests.each import each_of


class OnePixel(nn.Module):
    """Convolutional model with batch norm after pooling to one pixel."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, 4, 3), nn.AdaptiveAvgPool2d(1), nn.BatchNorm2d(4), nn.Flatten()
        )
        self.head = nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.head(self.layers(x))
        return result


MODELS = {
    "dense": (nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3)), (1, 4), True),
    "pixels": (nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2)), (1, 1, 8, 8), False),
    "one pixel": (nn.Sequential(nn.Conv2d(1, 2, 8), nn.BatchNorm2d(2)), (1, 1, 8, 8), True),
    "pooled": (OnePixel(), (1, 1, 8, 8), True),
    "layer norm": (nn.Sequential(nn.Linear(4, 3), nn.LayerNorm(3)), (1, 4), False),
    "group norm": (nn.Sequential(nn.Linear(4, 4), nn.GroupNorm(2, 4)), (1, 4), False),
}


@each_of("model, shape, needs", MODELS.values())
def test_a_model_needs_two_examples_exactly_if_pytorch_refuses_one(
    model: nn.Module, shape: tuple[int, ...], needs: bool
) -> None:
    assert needs_two_rows(model, torch.zeros(shape)) == needs
    model.train()
    if needs:
        with pytest.raises(ValueError, match="more than 1 value per channel"):
            model(torch.zeros(shape))
    else:
        model(torch.zeros(shape))


@each_of(
    "n, size, expected",
    [(17, 8, [8, 9]), (16, 8, [8, 8]), (18, 8, [8, 8, 2]), (9, 8, [9]), (1, 8, [1])],
)
def test_a_single_example_joins_the_batch_before_it(
    n: int, size: int, expected: list[int]
) -> None:
    assert batch_sizes(n, size, joins_last=True) == expected


def test_batch_norm_without_parameters_is_not_stacked() -> None:
    plain = nn.BatchNorm1d(3, affine=False, track_running_stats=False)
    assert not can_stack(nn.Sequential(nn.Linear(4, 3), plain, nn.Linear(3, 2)))


def study(batch_size: int, initial: int, executor: str = "loop") -> Run:
    x = np.random.default_rng(0).random((60, 4)).astype("float32")
    data = fl.from_arrays(x, (x[:, 0] > 0.5).astype(int), sites=np.repeat(["a", "b"], 30))
    net = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2))
    return fl.run(
        fl.Federation(data, fl.Natural()),
        "entropy",
        training=fl.FedAvg(batch_size=batch_size),
        model=net,
        initial=initial,
        budget=1,
        cycles=1,
        rounds=1,
        progress=False,
        executor=executor,
    )


def test_a_site_with_one_example_left_over_is_trained() -> None:
    run = study(batch_size=8, initial=16)
    assert run.records.accuracy.notna().all()


def test_batches_of_one_are_refused_before_the_study() -> None:
    with pytest.raises(
        ValueError, match=r"batch_size is 1, and batch norm .* batch_size to 2"
    ):
        study(batch_size=1, initial=8)


@pytest.mark.filterwarnings("ignore:.* is 1 label at each site")
def test_a_site_with_a_single_example_names_the_initial_labels() -> None:
    with pytest.raises(ValueError, match="one labeled example, and batch norm needs two"):
        study(batch_size=8, initial=1)
