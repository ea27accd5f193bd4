"""What a site holds while it chooses collaborators: its model, others, the choice so far, and the
validation rows by which it judges."""

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
    """The site's model after local training, and how many labels it has."""
    return Member(view.memory["local"]["w"], len(view.labels))


def load_models(view: View) -> list[Member]:
    """The models that the last relay brought, in the order of their senders' names."""
    held = [view.memory[name] for name in sorted(view.memory) if name.startswith("model/")]
    return [Member(peer["w"], float(peer["labels"])) for peer in held]


def load_search(view: View) -> Greedy:
    """The choice as the last batch left it."""
    kept = view.memory["search"]
    return Greedy._make(kept[name] for name in Greedy._fields)


def draw_order(view: View, candidates: int, purpose: str) -> Tensor:
    """The site's own order of its candidates, (m,)."""
    return torch.randperm(candidates, generator=view.stream(purpose))


def begin_search(view: View, candidates: int, room: int, turn: int, rounds: int) -> Greedy:
    """A choice that begins, with an order and coins of its own.

    rounds: of the main loop, whose gains count beside those of this choice.
    """
    order = draw_order(view, candidates, f"ggc order {turn}")
    gen = view.stream(f"ggc coins {turn}")
    coins = torch.rand(candidates, dtype=torch.float64, generator=gen)
    past = None
    if turn >= 2 and "search" in view.memory:  # turn 0 is preprocessing, 1 the first choice
        past = remember_gains(load_search(view), candidates, rounds)
    return begin(own_model(view), order, coins, room, past)


def reward(view: View, by_row: bool = False) -> Reward:
    """Minus the mean cross-entropy on the site's validation rows, each weighing what the query
    attached to its label, or the part of each in that mean; 0 for every model without any row."""
    rows = view.rows("validation")
    labels = view.held
    local = view.memory["local"]
    share = view.held_weights.double()
    share = share / share.mean()  # (v,)
    if rows.ndim == 4:  # images in the memory layout that suits the CPU's convolutions
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
