"""Client side of the selection of collaborators.

A site stores its model, received models, the state of the selection and its validation examples.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from fallow.core.view import View
from fallow.training.personal.parts.greedy import (
    Greedy,
    Member,
    Reward,
    begin,
    remember_gains,
)


def own_model(view: View) -> Member:
    """Return the model of the site after local training, and its number of labels."""
    return Member(view.memory["local"]["w"], len(view.labels))


def load_models(view: View) -> list[Member]:
    """Return the models of the last relay, in the order of the names of their senders."""
    models = [
        view.memory[name] for name in sorted(view.memory) if name.startswith("model/")
    ]
    return [Member(peer["w"], float(peer["labels"])) for peer in models]


def load_search(view: View) -> Greedy:
    """Return the state of the selection after the last batch."""
    kept = view.memory["search"]
    return Greedy._make(kept[name] for name in Greedy._fields)


def draw_order(view: View, candidates: int, purpose: str) -> Tensor:
    """Draw the order of the candidates at the site, (m,)."""
    return torch.randperm(candidates, generator=view.stream(purpose))


def begin_search(view: View, candidates: int, room: int, turn: int, rounds: int) -> Greedy:
    """Begin a selection, with an order and coins drawn by the site.

    rounds: number of rounds of the main loop whose gains are averaged with those of this selection.
    """
    order = draw_order(view, candidates, f"ggc order {turn}")
    gen = view.stream(f"ggc coins {turn}")
    coins = torch.rand(candidates, dtype=torch.float64, generator=gen)
    past = None
    if (
        turn >= 2 and "search" in view.memory
    ):  # turn 0 is preprocessing, 1 the first selection
        past = remember_gains(load_search(view), candidates, rounds)
    return begin(own_model(view), order, coins, room, past)


def reward(view: View, by_row: bool = False) -> Reward:
    """Return minus the mean cross-entropy on the validation examples of the site.

    Examples have the weights of the query strategy.  ``by_row``: return the term of each example.
    The reward is 0 without examples.
    """
    rows = view.rows("validation")
    labels = view.validation_labels
    local = view.memory["local"]
    share = view.validation_weights.double()
    share = share / share.mean()  # (v,)
    if rows.ndim == 4:  # memory layout for convolutions on the CPU
        rows = rows.contiguous(memory_format=torch.channels_last)

    def of(w: Tensor) -> float | Tensor:
        if len(labels) == 0:
            return 0.0
        outputs = view.forward({**local, "w": w.to(local["w"].dtype)}, rows).double()
        earned = -share * cross_entropy(outputs, labels, reduction="none")
        if by_row:
            return earned
        return earned.mean()

    return of
