"""Baselines in AHFAL's public code under the names of other algorithms."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor

from fallow.core.ask import Ask
from fallow.core.contract import Contract
from fallow.core.types import State
from fallow.core.view import SelectedExamples, View
from fallow.models.scores import entropy
from fallow.strategies.base import Budget, Memo, label_counts, selects
from fallow.strategies.feal import FEAL
from fallow.strategies.logo import take_in_turn
from fallow.strategies.parts.top import rank_rows, top
from fallow_papers.ahfal.codes.kmeans import k_means

CHUNK = 256  # examples whose pixel gradients are computed at once


@final
@dataclass(frozen=True)
class PixelBADGE:
    """Run k-means on gradients with respect to pixels, in place of BADGE. For reproduction
    only.

    >>> import fallow as fl
    >>> federation = fl.Federation("iris", fl.IID(), sites=3)
    >>> fl.run(
    ...     federation,
    ...     "fallow_papers.ahfal.codes:PixelBADGE",
    ...     training="fedavg",
    ...     model="mlp",
    ...     cycles=1,
    ...     rounds=1,
    ... )
    Run(fallow_papers.ahfal.codes:PixelBADGE on iris, seed 0: 2 phases, ... labels, accuracy 0...)

    Notes
    -----
    Differences from `fallow.strategies.BADGE`: the gradient is that of the largest logit with respect
    to the *pixels*, not that of the loss with respect to the last layer; clusters are from
    a full k-means with ten starts, not from k-means++ seeding; the example nearest to each
    center is selected.  The code uses mixed precision and one fixed seed, unlike this
    class.  If several centers share an example, random examples are added.  Examples whose
    prediction or gradient is not finite are ranked last.
    """

    contract: ClassVar[Contract] = Contract(
        title="BADGE (AHFAL's public code)",
        paper="Federated Active Learning via Class-Adaptive Local-Global Balancing",
        year=2025,
        authors="Anonymous",
        needs=("local",),
        draws=True,
    )

    def query(self, ask: Ask, budget: Budget, memo: Memo) -> Memo:
        ask.keep(self.select, to=label_counts(budget))
        return memo

    @selects()
    def select(self, view: View, n: int) -> SelectedExamples:
        state = view.model("local")
        parts = torch.split(view.rows(), CHUNK)
        gradient = torch.cat([pixel_gradients(view, state, rows) for rows in parts])
        order = rank_rows(0 * gradient.sum(1), view.stream("ties"))  # 0 · NaN is NaN: last
        good = order[gradient[order].isfinite().all(1)]
        if n >= len(good):
            return SelectedExamples(order[:n])
        _, centers = k_means(gradient[good], n, view.stream("k-means"))
        nearest = torch.cdist(centers, gradient[good].to(centers)).argmin(1)
        return SelectedExamples(
            torch.cat([good[torch.unique(nearest)], without(good, nearest)])[:n]
        )


def pixel_gradients(view: View, state: State, rows: Tensor) -> Tensor:
    """Return the gradient of the largest logit with respect to the example; NaN for a
    non-finite logit.

    rows: (m, *shape) -> (m, product of shape)
    """
    rows = rows.clone().requires_grad_()
    best = view.forward(state, rows).max(1).values
    (gradient,) = torch.autograd.grad(best.sum(), rows)
    return gradient.flatten(1).masked_fill(~best.detach().isfinite()[:, None], torch.nan)


def without(rows: Tensor, at: Tensor) -> Tensor:
    """Return ``rows`` without those at the positions ``at``."""
    is_left = torch.ones(len(rows), dtype=torch.bool)
    is_left[at] = False
    return rows[is_left]


@final
@dataclass(frozen=True)
class PlainFEAL:
    """Use FEAL's query on networks trained with cross-entropy. For reproduction only.

    >>> import fallow as fl
    >>> federation = fl.Federation("iris", fl.IID(), sites=3)
    >>> fl.run(
    ...     federation,
    ...     "fallow_papers.ahfal.codes:PlainFEAL",
    ...     training="fedavg",
    ...     model="mlp",
    ...     cycles=1,
    ...     rounds=1,
    ... )
    Run(fallow_papers.ahfal.codes:PlainFEAL on iris, seed 0: 2 phases, ... labels, accuracy 0...)

    Notes
    -----
    The query is that of `fallow.strategies.FEAL`, and only the training differs.  FEAL
    trains evidential models, while AHFAL's code uses relu(logit) + 1 of any network. The
    name distinguishes both in tables: ``feal@training=evidential`` is the published algorithm.
    """

    contract: ClassVar[Contract] = Contract(
        title="FEAL (AHFAL's public code)",
        paper="Federated Active Learning via Class-Adaptive Local-Global Balancing",
        year=2025,
        authors="Anonymous",
        needs=("local", "global"),
    )

    def query(self, ask: Ask, budget: Budget, memo: Memo) -> Memo:
        return FEAL().query(ask, budget, memo)

    @selects()
    def select(self, view: View, n: int) -> SelectedExamples:
        return FEAL().select(view, n)


@final
@dataclass(frozen=True)
class PlainLoGo:
    """Use LoGo without gradients and without a model from scratch. For reproduction only.

    >>> import fallow as fl
    >>> federation = fl.Federation("iris", fl.IID(), sites=3)
    >>> fl.run(
    ...     federation,
    ...     "fallow_papers.ahfal.codes:PlainLoGo",
    ...     training="fedavg",
    ...     model="mlp",
    ...     cycles=1,
    ...     rounds=1,
    ... )
    Run(fallow_papers.ahfal.codes:PlainLoGo on iris, seed 0: 2 phases, ... labels, accuracy 0...)

    Notes
    -----
    Differences from `fallow.strategies.LoGo`: k-means (ten starts) runs on the plain features, not
    scaled by how unsure the prediction is; the local model is that of the last round.  The
    example of each cluster with the largest uncertainty under the global model is selected,
    as in LoGo.
    """

    contract: ClassVar[Contract] = Contract(
        title="LoGo (AHFAL's public code)",
        paper="Federated Active Learning via Class-Adaptive Local-Global Balancing",
        year=2025,
        authors="Anonymous",
        needs=("local", "global"),
        draws=True,
    )

    def query(self, ask: Ask, budget: Budget, memo: Memo) -> Memo:
        ask.keep(self.select, to=label_counts(budget))
        return memo

    @selects()
    def select(self, view: View, n: int) -> SelectedExamples:
        z = view.embed("local")
        h = entropy(view.logits("global"))
        h = h.masked_fill(~z.isfinite().all(1), torch.nan)
        order = rank_rows(h, view.stream("ties"))
        good = order[h[order].isfinite()]
        if n >= len(good):
            return SelectedExamples(order[:n])
        cluster, _ = k_means(z[good], n, view.stream("k-means"))
        return SelectedExamples(take_in_turn(cluster, good)[:n])


@final
@dataclass(frozen=True)
class PlainNoise:
    """Select the examples whose features change most under noise on the weights. For
    reproduction only.

    >>> import fallow as fl
    >>> federation = fl.Federation("iris", fl.IID(), sites=3)
    >>> fl.run(
    ...     federation,
    ...     "fallow_papers.ahfal.codes:PlainNoise",
    ...     training="fedavg",
    ...     model="mlp",
    ...     cycles=1,
    ...     rounds=1,
    ... )
    Run(fallow_papers.ahfal.codes:PlainNoise on iris, seed 0: 2 phases, ... labels, accuracy 0...)

    Notes
    -----
    Differences from Noise Stability (Li et al., 2024): the score of an example is the mean
    over draws and dimensions of the absolute change of its *features*, and the examples
    with the largest scores are selected, without k-center; noise ε ‖w‖ ξ / ‖ξ'‖ is scaled
    by the norm of another draw ξ'; biases and batch-norm parameters have noise too.  The
    head has none, because features do not depend on it.
    """

    draws: int = 50
    epsilon: float = 1e-3  # ε, size of the noise relative to each tensor

    contract: ClassVar[Contract] = Contract(
        title="Noise Stability (AHFAL's public code)",
        paper="Federated Active Learning via Class-Adaptive Local-Global Balancing",
        year=2025,
        authors="Anonymous",
        needs=("local",),
        draws=True,
    )

    def __post_init__(self) -> None:
        if self.draws < 1:
            raise ValueError(f"PlainNoise's draws is {self.draws}; it must be 1 or more")
        if not self.epsilon > 0:
            raise ValueError(f"PlainNoise's epsilon is {self.epsilon}; it must be above 0")

    def query(self, ask: Ask, budget: Budget, memo: Memo) -> Memo:
        ask.keep(self.select, to=label_counts(budget))
        return memo

    @selects()
    def select(self, view: View, n: int) -> SelectedExamples:
        state = view.model("local")
        z = view.embed("local")  # (m, d)
        draw = view.stream("noise")
        moved = torch.zeros(view.pool, dtype=torch.float64)
        for _ in range(self.draws):
            noisy = {**state, "w": shake_weights(view, state["w"], self.epsilon, draw)}
            moved += (features(view, noisy, z.shape[1]) - z).abs().mean(1)
        return SelectedExamples(top(moved / self.draws, n, view.stream("ties")))


def shake_weights(view: View, w: Tensor, epsilon: float, draw: torch.Generator) -> Tensor:
    """Return a copy of ``w`` (d,) with noise on every tensor, in proportion to its norm."""
    noisy = w.clone()
    for part in view.layout.views(noisy).values():
        shake = torch.randn(part.shape, generator=draw, dtype=w.dtype)
        scale = torch.randn(part.shape, generator=draw, dtype=w.dtype)
        part += epsilon * part.norm() * shake / scale.norm()
    return noisy


def features(view: View, state: State, d: int) -> Tensor:
    """Return the features (m, d) of the pool at ``state``, computed by heads that copy
    them.

    A head of C outputs copies C features, so d / C passes are needed.
    """
    rows = view.rows()
    w = state["w"].clone()
    views = view.layout.views(w)  # views of w: writing to them changes it
    for name, part in views.items():
        if name.startswith("head."):
            part.zero_()
    weight = views["head.weight"]  # (C, d)

    values = []
    for which in torch.split(torch.eye(d, dtype=w.dtype), len(weight)):
        weight.zero_()[: len(which)] = which
        outputs = view.forward({**state, "w": w}, rows)
        values.append(outputs[:, : len(which)])
    return torch.cat(values, 1)
