"""Helpers of personalized algorithms: weighted averages, and sites seen before.

A personalized algorithm is a `fallow.core.methods.TrainingAlgorithm` whose sites deploy different
models.  Optional functions, such as its own prediction, are documented there.  Its contract states the
number of gradients per batch (``gradients_per_batch``).  For equal numbers of gradients, algorithms
with two need half the epochs.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from fallow.core.types import SiteId, State, Values
from fallow.core.view import View


def model(state: State) -> State:
    """Return the part of a state that is sent: the model."""
    return {"w": state["w"], "stats": state["stats"]}


def contribution(view: View, name: str = "local") -> Values:
    """Return the contribution of a site: n_k w_k, n_k, and batch-norm statistics likewise."""
    n = float(len(view.labels))
    own = view.memory[name]
    return {"n": n, "w": n * own["w"].double(), "stats": n * own["stats"].double()}


def average(
    total: dict[str, Tensor], state: State, keys: Iterable[str] = ("w", "stats")
) -> State:
    """Return the weighted mean of contributions; ``state`` without labels.

    total: the number of examples and the weighted sums under ``keys``, in the shapes of the state.
    Means have the dtype of the global model ``w``.
    """
    if float(total["n"]) == 0:
        return state
    mean = dict(state)
    for key in keys:
        mean[key] = (total[key] / total["n"]).to(state["w"].dtype)
    return mean


def encode_sites(sites: Iterable[SiteId]) -> Tensor:
    """Encode names of sites as a tensor, to store them in a state.  -> (bytes,) uint8

    >>> sorted(decode_sites(encode_sites(["b", "a"])))
    ['a', 'b']
    """
    return torch.tensor(list("\n".join(sorted(sites)).encode()), dtype=torch.uint8)


def decode_sites(sites: Tensor | None) -> frozenset[SiteId]:
    """Return the sites that `encode_sites` encoded; none for None."""
    if sites is None or len(sites) == 0:
        return frozenset()
    text = bytes(sites.tolist()).decode()
    return frozenset(text.split("\n"))
