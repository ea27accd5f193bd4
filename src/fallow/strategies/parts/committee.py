"""Models available at a site, and their predictions for the unlabeled pool.

A training algorithm that averages models of peers stores its mixture, ``average``, the received
models, ``model/<site>``, each with its ``labels``, and which of them are in the mixture
(``average["peers"]``).  Other algorithms store none of these.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from fallow.core.types import State
from fallow.core.view import Rows, View


class Committee(NamedTuple):
    """Models of the site and its collaborators C_k, and their weights β, (m,)."""

    models: list[State]
    shares: Tensor

    @property
    def is_alone(self) -> bool:
        return len(self.models) == 1

    @property
    def collaborators(self) -> State:
        """Return f_col: the average of the collaborators' models without the site's own."""
        own, *peers = self.models
        shares = self.shares[1:] / self.shares[1:].sum()
        w = sum(
            share * peer["w"].double() for share, peer in zip(shares, peers, strict=True)
        )
        return {**own, "w": torch.as_tensor(w, dtype=own["w"].dtype)}


def averages_at_site(view: View) -> bool:
    """Return whether the training algorithm averages models at the site."""
    return "peers" in view.memory.get("average", {})


def gather_committee(view: View) -> Committee:
    """Return the committee of the site; without collaborators, only its own model."""
    own = view.model("local")
    peers = _collaborators(view)
    if not peers:
        return Committee([own], torch.ones(1, dtype=torch.float64))

    labels = [float(len(view.labels))] + [float(peer["labels"]) for peer in peers]
    weights = torch.tensor(labels, dtype=torch.float64)
    models = [own] + [{**own, "w": peer["w"]} for peer in peers]
    return Committee(models, weights / weights.sum())


def _collaborators(view: View) -> list[State]:
    """Return the received models in the mixture, in the order of their sites."""
    if not averages_at_site(view):
        return []
    names = sorted(name for name in view.memory if name.startswith("model/"))
    is_in_mixture = view.memory["average"]["peers"]  # (len(names),) bool
    members = []
    for name, is_in in zip(names, is_in_mixture, strict=True):
        if is_in:
            members.append(view.memory[name])
    return members


def personal_model(view: View) -> State:
    """Return f_per: the mixture of the last round, otherwise the deployed model."""
    if averages_at_site(view):
        return view.memory["average"]
    return view.model("global")


def logits(view: View, model: str, which: Rows = "pool") -> Tensor:
    """Return outputs of a model by name, (n, c).

    "personal": f_per; "collaborators": f_col, or the own model at a site without any;
    "better": the own or the personal model, whichever is correct on more validation examples (ties:
    personal).  Other names refer to models in the memory of the site.  Raises ValueError for
    collaborators if no site ever has any.
    """
    if model == "better":
        if _count_hits(view, "local") > _count_hits(view, "personal"):
            return logits(view, "local", which)
        return logits(view, "personal", which)
    if model == "personal":
        return view.outputs(personal_model(view), view.rows(which))
    if model == "collaborators":
        if not averages_at_site(view):
            raise ValueError(
                f"site {view.site} averages no models of other sites, so it has no "
                "collaborators; train with dpfl, or set model='personal'"
            )
        committee = gather_committee(view)
        if committee.is_alone:
            return view.forward(committee.models[0], view.rows(which))
        return view.forward(committee.collaborators, view.rows(which))
    return view.logits(model, which)


def _count_hits(view: View, model: str) -> int:
    """Count the validation examples that a model predicts correctly."""
    guesses = logits(view, model, "validation").argmax(1)  # (v,)
    return int((guesses == view.validation_labels).sum())


def predict(view: View, which: Rows = "pool") -> Tensor | None:
    """Return probabilities by the global model, (n, C); None without a model or for regression."""
    if "global" not in view.memory or not view.classes:
        return None
    return view.logits("global", which).softmax(1)


def margins(p: Tensor) -> Tensor:
    """Return the gap between the two largest probabilities, (n, C) -> (n,); to 0 for one class."""
    if p.shape[1] == 1:
        return p[:, 0]
    two = p.topk(2, 1).values
    return two[:, 0] - two[:, 1]
