"""Noise Stability (Li et al., 2024): predictions that change under noise on the weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, final

import torch
from torch import Generator, Tensor

from fallow.core.ask import Ask
from fallow.core.contract import Contract
from fallow.core.limits import PositiveFloat, PositiveInt
from fallow.core.model_vectors import Layout
from fallow.core.suggestions import explain_constructor
from fallow.core.view import SelectedExamples, View
from fallow.strategies.base import (
    Budget,
    Memo,
    label_counts,
    selects,
)
from fallow.strategies.parts.kcenter import FeatureVectors, k_center
from fallow.strategies.parts.top import rank_rows


@explain_constructor
@final
@dataclass(frozen=True)
class NoiseStability:
    """Select examples whose prediction changes under small noise on the weights.

    The strategy runs greedy k-center, from the origin, on the relative changes of the prediction.
    Each draw adds noise of length ``epsilon`` ||w|| to every tensor named ``weight``, including
    those of batch norm; biases are unchanged.  The cost is ``draws`` passes over the pool and
    ``draws`` · C numbers in memory for each example.

    Parameters
    ----------
    model : {"local", "global"}
        Model whose weights are changed.
    draws : int
        Number of draws of noise.
    epsilon : float
        Length of the noise, relative to the norm of each weight tensor.

    Notes
    -----
    The paper's public code uses a part of the pool; here the whole pool is used.  Outputs are the
    softmax; the paper's alternative, features, is for regression.  Ties are broken at random, and
    examples with a non-finite prediction are ranked last.

    References
    ----------
    Li, Yang, Gu, Zhan, Wang, Xu, Xu. Deep Active Learning with Noise Stability. 2024.

    Examples
    --------
    >>> import fallow as fl, torch
    >>> _ = torch.manual_seed(0)
    >>> model = torch.nn.Sequential(
    ...     torch.nn.Linear(1, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2)
    ... )
    >>> selected = fl.select(
    ...     [[0.0], [1.0], [9.0]], fl.NoiseStability(draws=5), model=model, n=1
    ... )
    >>> selected.shape
    (1,)
    """

    model: Literal["local", "global"] = "local"
    draws: PositiveInt = 50  # K; 30 in the commands of the public code
    epsilon: PositiveFloat = 1e-3  # ε, length of the noise in units of ||w||

    contract: ClassVar[Contract] = Contract(
        title="Noise Stability",
        paper="Deep Active Learning with Noise Stability",
        year=2024,
        authors="Li, Xingjian and Yang, Pengkun and Gu, Yangcheng and Zhan, Xueying and "
        "Wang, Tianyang and Xu, Min and Xu, Chengzhong",
        needs=("local",),
        draws=True,
        not_solved="it perturbs the weights of a trained network body, which closed-form "
        "models do not have",
    )

    def query(self, ask: Ask, budget: Budget, memo: Memo) -> Memo:
        ask.keep(self.select, to=label_counts(budget))
        return memo

    @selects()
    def select(self, view: View, n: int) -> SelectedExamples:
        changes = self.measure_changes(view)
        level = 0 * changes.sum(1)  # 0 · NaN is NaN: such examples are ranked last
        mixed = rank_rows(level, view.stream("ties"))
        points = FeatureVectors.of(changes).at(mixed)
        return SelectedExamples(mixed[k_center(points, n, points.half_norms())])

    def measure_changes(self, view: View) -> Tensor:
        """Return (out' - out) / ||out|| of every draw, side by side: (m, K·C)."""
        state = view.model(self.model)
        rows = view.rows()
        noise = view.stream("noise")
        out = view.forward(state, rows).softmax(1)  # (m, C)
        # Columns are examples of the pool, as `FeatureVectors` stores them.
        changes = out.new_empty(self.draws, view.classes, view.pool)
        for change in changes:  # (C, m) of one draw, written in place
            w = add_noise(view.layout, state["w"], self.epsilon, noise)
            noisy = view.forward({**state, "w": w}, rows).softmax(1)
            change.copy_(((noisy - out) / out.norm(dim=1, keepdim=True)).T)
        return changes.flatten(0, 1).T


def add_noise(layout: Layout, w: Tensor, epsilon: float, generator: Generator) -> Tensor:
    """Return a copy of ``w`` (d,) with noise of length ``epsilon`` ||v|| on every weight tensor v."""
    copy = w.clone()
    for name, weight in layout.views(copy).items():
        if name.split(".")[-1] == "weight":
            xi = torch.randn(weight.shape, generator=generator, dtype=weight.dtype)
            weight.add_(xi, alpha=float(epsilon * weight.norm() / xi.norm()))
    return copy
