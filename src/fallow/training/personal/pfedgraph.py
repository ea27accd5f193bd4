"""pFedGraph (Ye et al., 2023): a mixture of models for each site, by their similarity."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, final

import torch
from torch import Tensor

from fallow.core import client
from fallow.core.ask import Ask
from fallow.core.contract import Contract
from fallow.core.fit_declarations import STORED, Fit, FitDeclaration
from fallow.core.limits import Conflict, NonNegativeFloat, PositiveFloat
from fallow.core.local import Batch, Learner, TrainState
from fallow.core.messages import To
from fallow.core.model_vectors import StackedModels
from fallow.core.step_training import StepTraining
from fallow.core.suggestions import explain_constructor
from fallow.core.training_config import TrainingConfig
from fallow.core.types import SiteId, State, Values
from fallow.core.values import Count, Model, Statistics
from fallow.core.view import View
from fallow.training.personal.base import decode_sites, encode_sites, model

ALIKE = 0.9  # cosines above it count as 1
TINY = 1e-12


@explain_constructor
@final
@dataclass(frozen=True)
class PFedGraph(StepTraining):
    """Mix the models of all sites by a learned collaboration graph.

    Row i of the graph solves min α ||x||² + (d_i - 2 α p)·x on the simplex, where d_ij is minus the
    cosine similarity of the updates of models i and j since the common start.  Site i continues
    from Σ_j x_ij w_j.  From the second round of a cycle on, the local loss contains lam_sign · λ
    cos(w, m_i), where m_i = Σ_j x_ij w_j / ||w_j||.  A site deploys the model that it has trained.
    α -> ∞ is `FedAvg`, and α -> 0 is `Local`.  The coordinator sees each model, because it compares
    them.

    Parameters
    ----------
    alpha : float
        Regularization of the graph (α).
    lam : float
        Weight of the similarity term in the local loss (λ).
    lam_sign : {-1, 1}
        -1 rewards similar models, as intended by the paper; +1 is the sign in the public code.

    Notes
    -----
    The problem is a projection of p - d_i / (2 α) onto the simplex, solved by sorting.  All layers
    are compared.  As for all personalized algorithms here, the model is evaluated after local
    training; the public code also evaluates it before.  Sites that miss a round stay in the graph
    with their last model, and a site that joins later begins at the common start.  A site without
    labels has weight 0 in all mixtures.  A non-finite model is replaced by the last finite one of
    the site, and ``state["refused"]`` contains the name of the site (see `decode_sites`).

    References
    ----------
    Ye, Ni, Wu, Chen, Wang. Personalized Federated Learning with Inferred Collaboration Graphs.
    2023.

    Examples
    --------
    >>> import fallow as fl
    >>> federation = fl.Federation("iris", fl.IID(), sites=3)
    >>> fl.run(
    ...     federation, training=fl.PFedGraph(alpha=0.5), model="mlp", cycles=0, rounds=5
    ... )
    Run(random on iris, seed 0: 1 phases, 12 labels, accuracy 0...)
    """

    alpha: PositiveFloat = 0.8  # α
    lam: NonNegativeFloat = 0.01  # λ
    lam_sign: Literal[-1, 1] = -1

    CONFLICTS = (
        Conflict(
            ("lam_sign", "lam"),
            lambda lam_sign, lam: lam_sign == 1 and lam == 0,
            ", so lam_sign has no effect; set lam above 0 or omit lam_sign",
        ),
    )
    contract: ClassVar[Contract] = Contract(
        title="pFedGraph",
        paper="Personalized Federated Learning with Inferred Collaboration Graphs",
        year=2023,
        authors="Ye, Rui and Ni, Zhenyang and Wu, Fangzhao and Chen, Siheng and Wang, Yanfeng",
        secure_sum=False,
        fit=FitDeclaration(
            {"local": Fit(by=lambda training, _: training.configs), "mixture": STORED},
            server=("sites", "models", "statistics", "rows", "weights", "refused"),
        ),
    )

    # -- server side ------------------------------------------------------------------------

    @property
    def configs(self) -> tuple[TrainingConfig, TrainingConfig]:
        """Return the training configurations of a round: from the received model, or a mixture."""
        return self.training_config, replace(self.training_config, start="mixture")

    def round(self, state: State, ask: Ask) -> State:
        self.order(state, ask)
        replies = ask.each(self.upload)
        sent = {site: reply for site, reply in replies.items() if is_finite(reply)}
        stacked, n = newest_models(state, sent)
        p = torch.full_like(n, 1 / len(n))
        if float(n.sum()) > 0:
            p = n / n.sum()
        x = graph(stacked.w - state["w"], p, self.alpha)
        return {
            **model(state),
            "sites": encode_sites(stacked.sites),
            "models": stacked.w,
            "statistics": stacked.stats,
            "rows": n,
            "weights": x,
            "refused": encode_sites(replies.keys() - sent.keys()),
        }

    def order(self, state: State, ask: Ask) -> None:
        """Train locally, from the mixture of each site once it exists."""
        if "weights" not in state:
            ask.fit(self.training_config, "local", None, **model(state))
            return
        stacked = stack_newest(state)
        x = state["weights"]  # (N, N)
        mixtures = stacked.mix(x)
        begin: dict[SiteId, Values] = {}
        for site in ask.cohort:
            if site in stacked.sites:
                begin[site] = {**mixtures.row(site)}
            else:  # a site that joins later begins at the common start
                begin[site] = {**model(state)}
        if self.lam == 0 or ask.round == 0:
            ask.fit(self.training_config, "local", begin)
            return

        towards = dict(
            zip(stacked.sites, directions(x.to(stacked.w), stacked.w), strict=True)
        )
        nowhere = torch.zeros_like(state["w"])
        no_statistics = state["stats"][:0]
        beside: To = {
            site: {"w": towards.get(site, nowhere), "stats": no_statistics}
            for site in ask.cohort
        }
        ask.fit(None, "mixture", begin)
        _, from_mixture = self.configs
        ask.fit(from_mixture, "local", beside)

    # -- client side --------------------------------------------------------------------------

    @client.each(
        "each site's model and its number of examples",
        returns={"n": Count(of="labels"), "w": Model(), "stats": Statistics()},
    )
    def upload(self, view: View) -> Values:
        return {"n": float(len(view.labels)), **model(view.memory["local"])}

    def deploy(self, state: State, memory: Mapping[str, State]) -> State:
        return memory.get("local", model(state))

    def start(self, w: TrainState, own: dict[str, TrainState]) -> dict[str, TrainState]:
        return {"w": w}

    def step(
        self, s: dict[str, TrainState], w_t: TrainState, b: Batch, learn: Learner
    ) -> dict[str, TrainState]:
        def alike(w: Tensor) -> Tensor:
            norm: Tensor = w.norm(dim=-1)
            return self.lam_sign * self.lam * (w * w_t.w).sum(-1) / norm.clamp_min(TINY)

        if b.round == 0 or self.lam == 0:  # w_t is not a direction then
            return {"w": learn.descend(s["w"], b)}
        return {"w": learn.descend(s["w"], b, alike)}

    def finish(self, s: dict[str, TrainState]) -> tuple[TrainState, dict[str, TrainState]]:
        return s["w"], {}


def stack_newest(state: State) -> StackedModels:
    """Return the models that the server side has received."""
    sites = tuple(sorted(decode_sites(state.get("sites"))))
    none = state["w"][:0]
    return StackedModels(sites, state.get("models", none), state.get("statistics", none))


def newest_models(
    state: State, replies: Mapping[SiteId, Values]
) -> tuple[StackedModels, Tensor]:
    """Return the newest model of every site that sent one, and numbers of examples (N,) float64."""
    old = stack_newest(state)
    models = {site: old.row(site) for site in old.sites}
    rows = dict(zip(old.sites, state.get("rows", torch.zeros(0)), strict=True))
    if not models and not replies:
        raise ValueError(
            "all models that sites sent to PFedGraph have NaN or infinite numbers: "
            "training diverged; lower the learning rate (lr)"
        )
    for site, reply in replies.items():
        models[site] = {name: torch.as_tensor(reply[name]) for name in ("w", "stats")}
        rows[site] = torch.as_tensor(reply["n"], dtype=torch.float64)
    n = torch.stack([rows[site] for site in sorted(rows)])
    return StackedModels.stack(models), n


def is_finite(reply: Values) -> bool:
    """Return whether a received model is finite."""
    parts = [torch.as_tensor(reply[name]) for name in ("w", "stats")]
    return all(bool(part.isfinite().all()) for part in parts)


def graph(moved: Tensor, p: Tensor, alpha: float) -> Tensor:
    """Return the mixture weights of all sites, each row on the simplex.

    Updates of the models (N, d), shares of examples (N,) -> (N, N).

    >>> graph(torch.tensor([[1.0, 0.0], [0.0, 1.0]]), torch.tensor([0.5, 0.5]), alpha=1.0)
    tensor([[0.7500, 0.2500],
            [0.2500, 0.7500]], dtype=torch.float64)
    """
    unit = moved.double()
    unit = unit / unit.norm(dim=1, keepdim=True).clamp_min(TINY)
    cosine = unit @ unit.T
    cosine = torch.where(cosine > ALIKE, 1.0, cosine).fill_diagonal_(1.0)
    v = p.double() + cosine / (2 * alpha)
    v = v.masked_fill(p == 0, -torch.inf)  # sites without labels have weight 0
    return simplex(v)


def directions(x: Tensor, w: Tensor) -> Tensor:
    """Return m_i = Σ_j x_ij w_j / ||w_j||.  (N, N), models (N, d) -> (N, d)

    >>> directions(
    ...     torch.tensor([[0.5, 0.5], [0.0, 1.0]]), torch.tensor([[3.0, 4.0], [0.0, 2.0]])
    ... )
    tensor([[0.3000, 0.9000],
            [0.0000, 1.0000]])
    """
    length: Tensor = w.norm(dim=1, keepdim=True)
    return x @ (w / length.clamp_min(TINY))


def simplex(v: Tensor) -> Tensor:
    """Project points onto the simplex; entries of -inf become 0.  (..., n) -> (..., n)

    >>> simplex(torch.tensor([0.5, 1.0, -1.0]))
    tensor([0.2500, 0.7500, 0.0000])
    """
    # a shift does not change the result and avoids large numbers
    v = v - v.amax(-1, keepdim=True)
    u = v.sort(descending=True).values
    # if the k largest are positive, each is reduced by over[k - 1]
    over = (u.cumsum(-1) - 1) / torch.arange(1, v.shape[-1] + 1)
    last = (u > over).sum(-1, keepdim=True) - 1
    return (v - over.gather(-1, last)).clamp_min(0)
