"""Helpers of personalized algorithms: the model in a state, and sites seen before.

A personalized algorithm is a `fallow.core.methods.TrainingAlgorithm` whose sites deploy different
models.  Optional functions, such as its own prediction, are documented there.  Its contract states the
number of gradients per batch (``gradients_per_batch``).  For equal numbers of gradients, algorithms
with two need half the epochs.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from fallow.core.types import SiteId, State


def model(state: State) -> State:
    """Return the part of a state that is sent: the model."""
    return {"w": state["w"], "stats": state["stats"]}


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
