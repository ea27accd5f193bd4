"""Worked examples of FedAvg's client and server side, without training."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from fallow.core.aggregation import sum_replies
from fallow.core.types import State, Values
from fallow.training import FedAvg, FedProx
from fallow.training.base import average

START = {"w": torch.tensor([9.0, 9.0]), "stats": torch.tensor([5.0])}


def view(labels: int, w: list[float], stats: list[float]) -> Any:
    """Return a view of a site's labels and the result of local training."""
    local = {"w": torch.tensor(w), "stats": torch.tensor(stats)}
    return SimpleNamespace(labels=torch.zeros(labels), memory={"local": local})


VIEWS = {"a": view(1, [1.0, 2.0], [0.0]), "b": view(3, [3.0, 4.0], [1.0])}


def totals(method: FedAvg | FedProx, views: dict[str, Any] = VIEWS) -> dict[str, Tensor]:
    replies: dict[str, Values] = {
        site: method.upload(values) for site, values in views.items()
    }
    return {
        name: torch.as_tensor(value)
        for name, value in sum_replies(replies, "upload", None).items()
    }


@pytest.mark.parametrize("method", [FedAvg, FedProx])
def test_the_mean_is_weighted_by_labels(method: type[FedAvg] | type[FedProx]) -> None:
    state = average(totals(method()), START)
    assert_close(state["w"], torch.tensor([2.5, 3.5]))
    assert_close(state["stats"], torch.tensor([0.75]))


@pytest.mark.parametrize("method", [FedAvg, FedProx])
def test_with_local_statistics_they_are_not_sent(
    method: type[FedAvg] | type[FedProx],
) -> None:
    values = totals(method(bn="local"))
    assert values.keys() == {"n", "w", "sites"}
    assert_close(average(values, START)["stats"], START["stats"])


def test_without_any_label_the_model_stays() -> None:
    empty = {"a": view(0, [1.0, 2.0], [0.0]), "b": view(0, [3.0, 4.0], [1.0])}
    state: State = average(totals(FedAvg(), empty), START)
    assert torch.equal(state["w"], START["w"])


def test_the_average_is_taken_in_float64_and_kept_in_the_model_s_precision() -> None:
    many = {str(i): view(1, [1e8, float(i)], [0.0]) for i in range(7)}
    state = average(totals(FedAvg(), many), START)
    assert state["w"].dtype == torch.float32
    assert state["w"].tolist() == [1e8, 3.0]
