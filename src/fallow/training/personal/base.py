"""What the personalised methods share: a weighted average, and who has been here before.

A personalised method is a training method (`start`, `step`, `finish`, `round`, `deploy`) whose
sites deploy different models.  Beside that it may have ``predict(view, state, rows)``, where a
site predicts by more than a forward pass, and ``last(state, ask)``, asked once after the last round
of a phase.  ``gradients_per_batch`` says what a batch costs beside FedAvg's 1: to give every method
the same number of gradients, give those with 2 half the epochs.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor

from fallow.core.types import Answer, SiteId, State
from fallow.core.view import View


class Load(NamedTuple):
    """What choosing collaborators costs in a phase, at all sites together and at most: ``models``
    that go from site to site, ``evaluations`` of a model on a site's validation rows."""

    models: int
    evaluations: int


@runtime_checkable
class Choosing(Protocol):
    """A method whose sites choose whose models to average; ``resumed``: not the first phase of a
    run that goes on from its last models."""

    def load(self, sites: int, rounds: int, resumed: bool = False) -> Load: ...


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
