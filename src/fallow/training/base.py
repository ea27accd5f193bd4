"""Helpers of training algorithms: weighted averages, and batch-norm statistics of sites."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor

from fallow.core import client
from fallow.core.local import TrainState
from fallow.core.methods import BatchNormSetting
from fallow.core.types import State, Values
from fallow.core.values import Count, Kind, Model, Statistics
from fallow.core.view import View


def sends_statistics(training: object) -> bool:
    """Return whether sites send batch-norm statistics with a model.

    >>> from fallow.training import FedAvg
    >>> sends_statistics(FedAvg()), sends_statistics(FedAvg(bn="local"))
    (True, False)
    """
    return not (isinstance(training, BatchNormSetting) and training.bn == "local")


def model_fields(training: object) -> dict[str, Kind]:
    """Return the fields of `contribution`: batch-norm statistics may stay at the sites."""
    fields: dict[str, Kind] = {"n": Count(of="labels"), "w": Model()}
    if sends_statistics(training):
        fields["stats"] = Statistics()
    return fields


uploads = client.sum(
    "aggregates of numbers of examples and of weighted models",
    returns=model_fields,
)
"""Declaration of a client function that returns the result of `contribution`."""


def contribution(view: View, bn: str = "average") -> Values:
    """Return the contribution of a site: n_i w_i (d,), n_i and batch-norm statistics n_i s_i (s,).

    w_i is the model after local training.  With ``bn="local"`` statistics stay at the site.
    """
    n = float(len(view.labels))
    model = view.memory["local"]
    reply: Values = {"n": n, "w": _times(n, model["w"])}
    if bn != "local":
        reply["stats"] = _times(n, model["stats"])
    return reply


def _times(n: float, part: Tensor) -> Tensor:
    """Return a multiple of a vector in float64, which is a new tensor."""
    return part.to(torch.float64, copy=True).mul_(n)


def average(
    total: dict[str, Tensor], state: State, keys: Iterable[str] = ("w", "stats")
) -> State:
    """Return the weighted mean of contributions; ``state`` without labels.

    total: number of examples and weighted sums.  Those under ``keys``, if sites sent them, are
    averaged in the dtype of the global model.

    >>> import torch
    >>> total = {"n": torch.tensor(4.0), "w": torch.tensor([2.0, 6.0])}
    >>> average(total, {"w": torch.zeros(2)})["w"]
    tensor([0.5000, 1.5000])
    """
    if float(total["n"]) == 0:
        return state
    mean = dict(state)
    for name in keys:
        if name in total:
            mean[name] = (total[name] / total["n"]).to(state["w"].dtype)
    return mean


def with_own_statistics(w: TrainState, own: dict[str, TrainState]) -> TrainState:
    """Return the received model with the statistics that the site kept (FedBN)."""
    if "bn" not in own:
        return w
    return w._replace(stats=own["bn"].stats)


def own_statistics(w: TrainState, bn: str) -> dict[str, TrainState]:
    """Return the statistics that stay at a site with ``bn="local"``, else nothing."""
    if bn != "local":
        return {}
    # statistics have no parameters and no momentum: these tensors are empty
    statistics = w._replace(w=w.w[..., :0], m1=w.m1[..., :0], m2=w.m2[..., :0])
    return {"bn": statistics}


def model_at_site(state: State, memory: Mapping[str, State]) -> State:
    """Return the global model with the statistics of the site."""
    if "own/bn" not in memory:
        return state
    return {**state, "stats": memory["own/bn"]["stats"]}
