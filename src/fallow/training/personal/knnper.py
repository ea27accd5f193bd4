"""kNN-Per (Marfoq, Neglia, Kameni, Vidal, 2022), Algorithm 1: global model and local kNN."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal, final

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from fallow.core.ask import Ask
from fallow.core.contract import Contract
from fallow.core.limits import Fraction, PositiveFloat, PositiveInt
from fallow.core.local import Batch, Learner, TrainState
from fallow.core.step_training import StepTraining
from fallow.core.suggestions import explain_constructor, refuse_unused
from fallow.core.types import State, Values
from fallow.core.view import View
from fallow.training.base import average, contribution, uploads

Kernel = Literal["normalized", "softmax_of_sums"]
CHUNK = 1024  # examples per block of distances


@explain_constructor
@final
@dataclass(frozen=True)
class KNNPer(StepTraining):
    """Interpolate the global model with a k-nearest-neighbor classifier at each site.

    The global model is trained by `FedAvg`, at the same cost.  A site predicts λ p_knn + (1 - λ)
    softmax(f(x)).  p_knn(c) is the share of class c among the k nearest labeled examples, weighted
    by exp(-d / (D σ)), where d is the squared distance between features and D their number.  A site
    with fewer than k labeled examples uses all of them; a site without labels uses the model alone.

    Parameters
    ----------
    k : int
        Number of nearest neighbors.
    weight : float
        Weight of the nearest neighbors (λ).
    sigma : float
        Width of the kernel (σ).
    kernel : {"normalized", "softmax_of_sums"}
        "softmax_of_sums" is the variant in the public code of a later comparison: weights exp(-d),
        and a softmax of their sums over classes instead of shares.  Distant examples then have no
        influence.

    Notes
    -----
    Outputs are log-probabilities, so that their softmax is the mixture.  All labeled examples are
    stored.

    References
    ----------
    Marfoq, Neglia, Kameni, Vidal. Personalized Federated Learning through Local Memorization. 2022.

    Examples
    --------
    >>> import fallow as fl
    >>> federation = fl.Federation("iris", fl.IID(), sites=3)
    >>> fl.run(federation, training=fl.KNNPer(k=3), model="mlp", cycles=0, rounds=5)
    Run(random on iris, seed 0: 1 phases, 12 labels, accuracy 0...)
    """

    k: PositiveInt = 10
    weight: Fraction = 0.5  # λ
    sigma: PositiveFloat = 1.0  # σ
    kernel: Kernel = "normalized"

    contract: ClassVar[Contract] = Contract(
        title="kNN-Per",
        paper="Personalized Federated Learning through Local Memorization",
        year=2022,
        authors="Marfoq, Othmane and Neglia, Giovanni and "
        "Kameni, Laetitia and Vidal, Richard",
        regression=False,
    )

    def check(self) -> None:
        refuse_unused(self, "sigma", switch="kernel", used_with=("normalized",))

    def round(self, state: State, ask: Ask) -> State:
        ask.fit(self.training_config, "local", None, **state)
        return average(ask.sum(self.upload), state)

    @uploads
    def upload(self, view: View) -> Values:
        return contribution(view)

    def deploy(self, state: State, memory: Mapping[str, State]) -> State:
        return state

    def predict(self, view: View, state: State, rows: Tensor) -> Tensor:
        """Return log-probabilities.  rows: (n, *shape) -> (n, C)"""
        z, outputs = view.look(state, rows)
        p = outputs.softmax(1)
        if len(view.labels):
            stored, _ = view.look(state, view.rows("labeled"))
            votes = one_hot(view.labels, view.classes).to(p.dtype)
            near = [self.neighbors(part, stored, votes) for part in torch.split(z, CHUNK)]
            p = self.weight * torch.cat(near) + (1 - self.weight) * p
        return p.clamp_min(torch.finfo(p.dtype).tiny).log()

    def neighbors(self, z: Tensor, stored: Tensor, votes: Tensor) -> Tensor:
        """Return p_knn from features (n, D), stored features (m, D) and classes (m, C) -> (n, C)

        >>> z, stored = torch.tensor([[0.0]]), torch.tensor([[0.0], [1.0], [5.0]])
        >>> KNNPer(k=2).neighbors(
        ...     z, stored, torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
        ... )
        tensor([[0.7311, 0.2689]])
        """
        exact = "donot_use_mm_for_euclid_dist"
        far = torch.cdist(z, stored, compute_mode=exact).square()  # (n, m)
        d, at = far.topk(min(self.k, len(stored)), largest=False)  # (n, k)
        if self.kernel == "softmax_of_sums":
            return ((-d).exp().unsqueeze(2) * votes[at]).sum(1).softmax(1)
        share = (-d / (z.shape[1] * self.sigma)).softmax(1)
        return (share.unsqueeze(2) * votes[at]).sum(1)

    def start(self, w: TrainState, own: dict[str, TrainState]) -> dict[str, TrainState]:
        return {"w": w}

    def step(
        self, s: dict[str, TrainState], w_t: TrainState, b: Batch, learn: Learner
    ) -> dict[str, TrainState]:
        return {"w": learn.descend(s["w"], b)}

    def finish(self, s: dict[str, TrainState]) -> tuple[TrainState, dict[str, TrainState]]:
        return s["w"], {}
