"""IFAL (Zong et al., 2025): examples with inconsistent neighborhoods in three models."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal, final

import torch
from torch import Tensor
from torch.nn.functional import kl_div

from fallow.core.ask import Ask
from fallow.core.contract import Contract
from fallow.core.fit_declarations import Fit, FitDeclaration
from fallow.core.limits import PositiveFloat, PositiveInt
from fallow.core.local import Batch, Learner, TrainState, weighted_mean
from fallow.core.suggestions import explain_constructor
from fallow.core.training_config import Optimizer, TrainingConfig, TrainingStage
from fallow.core.view import SelectedExamples, View
from fallow.strategies.base import (
    Budget,
    Memo,
    label_counts,
    selects,
)
from fallow.strategies.parts.kmeans import cluster_rows
from fallow.strategies.parts.neighbors import most_similar
from fallow.strategies.parts.top import rank_rows

TEMPERATURE = 4.0  # T of the distillation
DISTILLED = 0.9  # weight of the distillation in the loss
MODELS = ("global", "local", "kd")
MOST_ROWS = 200_000  # maximum size of a pool; all pairs are compared
TIED = 1e-10  # relative difference of equal distances, by rounding
SMALL = 1e-5  # keeps the ratio of two distances finite


@explain_constructor
@final
@dataclass(frozen=True)
class IFAL:
    """Select examples whose neighborhood differs between three models.

    The models are the global, the local and a distilled local model.  Each site distills the global
    model into a new one on its labeled examples.  In the features of a model, every example lists
    its nearest neighbors in the pool.  The class distribution of an example is that of the examples
    that list it.  Among the examples whose distributions differ most, those nearest to the centers
    of k-means on the local features are selected.

    Parameters
    ----------
    neighbors : int
        Number of neighbors that each example lists.
    epochs : int
        Maximum number of epochs of the distilled model.
    patience : int
        Number of epochs without a lower training loss after which training stops.
    lr : float
        Learning rate of the distilled model.
    batch : int
        Batch size of the distilled model.

    Notes
    -----
    The public code trains the distilled model for at most 500 epochs at a tenth of the learning
    rate (``epochs=500, lr=0.001``); here it is a tenth of the epochs at ten times the rate.  Both
    come equally close to the teacher, and the setting of the code takes ten times as long.  With 50
    epochs at the low rate, models of small sites are not fully trained.  As in the code, training
    stops after 5 epochs without a lower loss, and the last weights are used, not the best.

    Distances compare the sorted entries of two distributions, so a permutation of the classes makes
    no difference.  Otsu's threshold is computed between values, not between the bins of a
    histogram.  If all values are equal there is no threshold, and the examples with the highest
    scores are used; the same applies if the threshold leaves too few.  The member nearest to the
    center of each cluster is selected; the best remaining examples replace empty clusters.  In
    pools of at most ``neighbors`` examples, each lists all others.  Examples with non-finite
    predictions or features are ranked last, and labeled ones are ignored.

    All pairs of examples are compared, for three models.  Time is quadratic and memory is linear in
    the size of the pool.  50,000 examples with 64 features take about 25 seconds on one core,
    200,000 six minutes; larger pools are rejected.

    References
    ----------
    Zong, Jin, Huang. Inconsistency-Based Federated Active Learning. 2025.

    Examples
    --------
    >>> import fallow as fl
    >>> federation = fl.Federation("iris", fl.IID(), sites=3)
    >>> fl.run(
    ...     federation,
    ...     strategy=fl.IFAL(neighbors=5, epochs=5),
    ...     training="fedavg",
    ...     model="mlp",
    ...     cycles=1,
    ...     rounds=2,
    ... )
    Run(ifal:neighbors=5:epochs=5 on iris, seed 0: 2 phases, 18 labels, accuracy 0...)
    """

    neighbors: PositiveInt = 250  # number of neighbors that each example lists
    epochs: PositiveInt = 50  # at most; of the distilled model
    patience: PositiveInt = 5  # epochs without a lower training loss
    lr: PositiveFloat = 0.01
    batch: PositiveInt = 64

    contract: ClassVar[Contract] = Contract(
        title="IFAL",
        paper="Inconsistency-Based Federated Active Learning",
        year=2025,
        authors="Zong, Chen-Chen and Jin, Tong and Huang, Sheng-Jun",
        needs=("local", "global"),
        fit=FitDeclaration({"kd": Fit()}),
        draws=True,
        not_solved="it trains a teacher by gradient steps, which closed-form models do "
        "not have",
    )

    @property
    def training_config(self) -> TrainingConfig:
        """Return the training configuration of the distilled model."""
        optimizer = Optimizer(lr=self.lr, momentum=0.9, weight_decay=1e-5)
        stages = (TrainingStage(self.epochs),)
        return TrainingConfig(
            stages, self.batch, optimizer, start="scratch", patience=self.patience
        )

    def query(self, ask: Ask, budget: Budget, memo: Memo) -> Memo:
        to = label_counts(budget)
        # No model is sent: the teacher is the global model, which sites have.
        ask.fit(self.training_config, "kd", {site: {} for site in to})
        ask.keep(self.select, to=to)
        return memo

    # -- the distilled model ----------------------------------------------------------------

    def start(self, w: TrainState, own: dict[str, TrainState]) -> dict[str, TrainState]:
        return {"w": w}

    def step(
        self, s: dict[str, TrainState], w_t: TrainState, b: Batch, learn: Learner
    ) -> dict[str, TrainState]:
        teacher = learn.predict(w_t, b.x)
        w = learn.descend(
            s["w"], b, objective=lambda f: distillation_loss(f(b.x), teacher, b)
        )
        return {"w": w}

    def finish(self, s: dict[str, TrainState]) -> tuple[TrainState, dict[str, TrainState]]:
        return s["w"], {}

    # -- selection -------------------------------------------------------------------------

    @selects()
    def select(self, view: View, n: int) -> SelectedExamples:
        if view.pool > MOST_ROWS:
            raise ValueError(
                f"site {view.site} has {view.pool:,} unlabeled examples, and IFAL "
                f"compares all pairs: its maximum is {MOST_ROWS:,}; choose another "
                "strategy or omit examples"
            )
        at = finite(view, "pool").nonzero().squeeze(1)
        inter, intra = self.inconsistencies(view, at)
        score = torch.full((view.pool,), torch.nan, dtype=torch.float64)
        score[at] = inter * intra
        order = rank_rows(score, view.stream("ties"))
        for value in (inter * intra, inter):  # the second if the first leaves too few
            rows = at[value > otsu(value)]
            if len(rows) >= n:
                z = view.embed("local")[rows]
                cluster = cluster_rows(z, n, view.stream("k-means"))
                is_best = torch.isin(order, rows[central_rows(z, cluster)])
                order = torch.cat([order[is_best], order[~is_best]])
                break
        return SelectedExamples(order[:n])

    def inconsistencies(self, view: View, at: Tensor) -> tuple[Tensor, Tensor]:
        """Return U1, between models, and U2, in the local one, of the examples ``at``; (m,) each"""
        known = finite(view, "labeled")
        m = len(at)
        k = min(self.neighbors, m - 1)
        labels = view.labels[known]

        near = {}  # model -> the k neighbors that every example lists, (m + l, k)
        for model in MODELS:
            pool = view.embed(model)[at]
            labeled = view.embed(model, "labeled")[known]
            near[model] = most_similar(pool, k, labeled)[1]
        by_global = torch.cat([view.logits("global")[at].argmax(1), labels])  # (m + l,)
        by_local = torch.cat([view.logits("local")[at].argmax(1), labels])

        classes = {}  # model -> the class distribution of every example, (m, C)
        for model in MODELS:
            classes[model] = listing_classes(near[model], by_global, m, view.classes)
        between_local = distance(classes["local"], classes["kd"])
        between_both = distance(classes["global"], classes["kd"])
        own = listing_classes(near["local"], by_local, m, view.classes)
        predicted = view.logits("local")[at].double().softmax(1)
        return disagreement(between_both, between_local), distance(own, predicted)


def distillation_loss(outputs: Tensor, teacher: Tensor, b: Batch) -> Tensor:
    """Return 0.1 cross-entropy + 0.9 T² KL(teacher || model) at temperature T.

    (..., b, C) -> (...).
    """
    loss = -outputs.log_softmax(-1).gather(-1, b.y.unsqueeze(-1)).squeeze(-1)
    warm = (outputs / TEMPERATURE).log_softmax(-1)
    soft = kl_div(warm, (teacher / TEMPERATURE).softmax(-1), reduction="none").sum(-1)
    both = (1 - DISTILLED) * loss + DISTILLED * TEMPERATURE**2 * soft
    return weighted_mean(both, b.weight)


def finite(view: View, which: Literal["pool", "labeled"]) -> Tensor:
    """Return whether all three models give finite predictions and features.  -> (rows,)"""
    are_finite = []
    for model in MODELS:
        are_finite.append(view.logits(model, which).isfinite().all(1))
        are_finite.append(view.embed(model, which).isfinite().all(1))
    return torch.stack(are_finite).all(0)


def listing_classes(near: Tensor, label: Tensor, m: int, classes: int) -> Tensor:
    """Return the class distribution of the examples that list each example.

    Each class is counted once more.  near: (r, k) examples of the pool that each example lists;
    label: (r,) -> (m, C).

    >>> near = torch.tensor([[1], [0], [1]])
    >>> listing_classes(near, torch.tensor([0, 0, 1]), m=2, classes=2)
    tensor([[0.6667, 0.3333],
            [0.5000, 0.5000]], dtype=torch.float64)
    """
    # (r, k): a listed example and the class of its lister, as one number
    cell = near * classes + label[:, None]
    votes = torch.bincount(cell.flatten(), minlength=m * classes)
    votes = 1 + votes.double().view(m, classes)
    return votes / votes.sum(1, keepdim=True)


def distance(a: Tensor, b: Tensor) -> Tensor:
    """Return W1 between the entries of two distributions, as points on a line.  (m, C) -> (m,)."""
    return (a.sort(1).values - b.sort(1).values).abs().mean(1)


def disagreement(a: Tensor, b: Tensor) -> Tensor:
    """Return a score that is large if two distances are large and different.  (m,), (m,) -> (m,)."""
    return torch.maximum(a / (b + SMALL), b / (a + SMALL)) * (a + b)


def otsu(x: Tensor) -> float:
    """Return Otsu's threshold, which maximizes the variance between two groups of values.

    The threshold is infinite if all values are equal.

    >>> otsu(torch.tensor([5.0, 1.0, 6.0, 2.0]))
    2.0
    """
    s = x.double().sort().values
    if len(s) < 2 or s[0] == s[-1]:
        return math.inf
    below = torch.arange(1, len(s))  # values below each threshold
    above = len(s) - below
    # Proportional to the variance between the two groups of each threshold.
    apart = (s - s.mean()).cumsum(0)[:-1].square() / (below * above)
    is_no_cut = s[1:] == s[:-1]  # equal values are not separated
    return float(s[apart.masked_fill(is_no_cut, -1).argmax()])


def central_rows(x: Tensor, cluster: Tensor) -> Tensor:
    """Return the example nearest to the mean of each cluster.  x: (m, d), cluster: (m,) -> (k,).

    Among equally near examples, such as both of a cluster of two, it is the first.

    >>> x = torch.tensor([[0.4], [0.1], [7.0], [5.0], [6.0]])
    >>> central_rows(x, torch.tensor([0, 0, 1, 1, 1]))
    tensor([0, 4])
    """
    _, cluster, sizes = torch.unique(cluster, return_inverse=True, return_counts=True)
    x = x.double()
    center = x.new_zeros(len(sizes), x.shape[1]).index_add(0, cluster, x) / sizes[:, None]
    far = (x - center[cluster]).square().sum(1)
    least = torch.full((len(sizes),), torch.inf).double()
    least = least.scatter_reduce(0, cluster, far, "amin")
    is_near = far <= least[cluster] * (1 + TIED)
    at = torch.arange(len(x))
    first = torch.full((len(sizes),), len(x))
    return first.scatter_reduce(0, cluster[is_near], at[is_near], "amin")
