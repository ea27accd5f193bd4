"""What the personalized methods share: a weighted average, and who has been here before.

A personalized method is a `fallow.core.methods.Training` whose sites deploy different models.
What it may define beside that, such as a prediction of its own, stands there too.  Its contract
says how many gradients a batch takes (``gradients_per_batch``): to give every method the same
number, give those with 2 half the epochs.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from fallow.core.types import Answer, SiteId, State
from fallow.core.view import View


def model(state: State) -> State:
    """What is sent of a state: the model, and nothing that the server remembers beside it."""
    return {"w": state["w"], "stats": state["stats"]}


def addend(view: View, name: str = "local") -> Answer:
    """A site's weighted model: n_k w_k and n_k; batch-norm statistics are averaged alike."""
    n = float(len(view.labels))
    own = view.memory[name]
    return {"n": n, "w": n * own["w"].double(), "stats": n * own["stats"].double()}


def average(
    total: dict[str, Tensor], state: State, keys: Iterable[str] = ("w", "stats")
) -> State:
    """The weighted mean of what sites added; ``state`` where nobody had a label.

    total: the number of rows and the weighted totals under ``keys``, each in the shape that the
    state has it in.  Means have the dtype of the common model ``w``.
    """
    if float(total["n"]) == 0:
        return state
    mean = dict(state)
    for key in keys:
        mean[key] = (total[key] / total["n"]).to(state["w"].dtype)
    return mean


def encode_sites(sites: Iterable[SiteId]) -> Tensor:
    """Names of sites as a tensor, so that they can stand in a state.  -> (bytes,) uint8

    >>> sorted(decode_sites(encode_sites(["b", "a"])))
    ['a', 'b']
    """
    return torch.tensor(list("\n".join(sorted(sites)).encode()), dtype=torch.uint8)


def decode_sites(sites: Tensor | None) -> frozenset[SiteId]:
    """The sites that `encode_sites` wrote down; none for None."""
    if sites is None or len(sites) == 0:
        return frozenset()
    text = bytes(sites.tolist()).decode()
    return frozenset(text.split("\n"))
