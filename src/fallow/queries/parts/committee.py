"""The models that a site may ask where training gives each site its own.

A training method that averages peers' models at the site leaves there its mixture, ``average``, the
models that it was brought, ``model/<site>``, each with its ``labels``, and which of them are in the
mixture (``average["peers"]``).  Other methods leave none of these.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from fallow.core.types import State
from fallow.core.view import Rows, View


class Committee(NamedTuple):
    """The site's own model and those of its collaborators C_k, and what each weighs: β, (m,)."""

    models: list[State]
    shares: Tensor

    @property
    def is_alone(self) -> bool:
        return len(self.models) == 1

    @property
    def collaborators(self) -> State:
        """f_col: the average of the collaborators' models without the site's own."""
        own, *peers = self.models
        share = self.shares[1:] / self.shares[1:].sum()
        w = sum(b * peer["w"].double() for b, peer in zip(share, peers, strict=True))
        return {**own, "w": torch.as_tensor(w, dtype=own["w"].dtype)}


def averages_at_site(view: View) -> bool:
    """Whether the training method averages models at the site at all."""
    return "peers" in view.memory.get("average", {})


def gather_committee(view: View) -> Committee:
    """The site's committee; without collaborators it is the site's own model alone."""
    own = view.model("local")
    brought = [view.memory[n] for n in sorted(view.memory) if n.startswith("model/")]
    is_in = (
        view.memory["average"]["peers"]
        if averages_at_site(view)
        else [False] * len(brought)
    )
    peers = [peer for peer, chosen in zip(brought, is_in, strict=True) if chosen]
    labels = [float(len(view.labels)), *(float(peer["labels"]) for peer in peers)]
    shares = torch.tensor(labels, dtype=torch.float64) if peers else torch.ones(1).double()
    return Committee(
        [own, *({**own, "w": peer["w"]} for peer in peers)], shares / shares.sum()
    )


def personal_model(view: View) -> State:
    """f_per: the mixture of the last round, or else what the site deploys."""
    return view.memory["average"] if averages_at_site(view) else view.model("global")


def logits(view: View, model: str, which: Rows = "pool") -> Tensor:
    """Outputs of a model by its name, (n, c).

    ``personal_model``: f_per; ``collaborators``: f_col, and the own model at a site that has none;
    ``better``: of the site's own and its personal model the one that gets more validation rows
    right, the personal one of equals.  Every other name is that of a model in the site's memory.
    Raises ValueError for collaborators where no site ever has any.
    """
    if model == "better":
        scores = [_right(view, name) for name in ("personal", "local")]
        return logits(view, "personal" if scores[0] >= scores[1] else "local", which)
    if model == "personal":
        return view.outputs(personal_model(view), view.rows(which))
    if model == "collaborators":
        if not averages_at_site(view):
            raise ValueError(
                f"site {view.site} averages no models of other sites, so there are no collaborators"
                " to ask; train with dpfl, or ask model='personal'"
            )
        who = gather_committee(view)
        return view.forward(
            who.models[0] if who.is_alone else who.collaborators, view.rows(which)
        )
    return view.logits(model, which)


def _right(view: View, model: str) -> int:
    return int((logits(view, model, "validation").argmax(1) == view.held).sum())
