"""IFAL (Zong et al., 2025): rows on which three models see different company."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal, final

import torch
from torch import Tensor
from torch.nn.functional import kl_div

from fallow.core.ask import Ask
from fallow.core.contract import Contract
from fallow.core.local import Batch, Learner, TrainState, weighted_mean
from fallow.core.training_config import Optimizer, TrainingConfig, TrainingStage
from fallow.core.view import Picks, View
from fallow.strategies.base import Budget, Memo, orders
from fallow.strategies.parts import cluster_rows, most_similar, rank_rows

TEMPERATURE = 4.0  # T of the distillation
TAUGHT = 0.9  # the share of the distillation in the loss
MODELS = ("global", "local", "kd")
MOST_ROWS = 200_000  # of a pool; all of them are compared with each other
SMALL = 1e-5  # keeps the ratio of two distances finite


@final
@dataclass(frozen=True)
class IFAL:
    """Rows whose neighborhood the global, the local and a distilled local model disagree about.

    Each site distils the global model into a fresh one on its labeled rows.  In the features of a
    model every row lists the rows of the pool that are most like it; the classes of those that list
    a row are its class distribution.  Of the rows where these distributions differ most, the picks
    are those nearest to the centers of k-means on the local features.

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

    Notes
    -----
    The public code trains the distilled model for at most 500 epochs at a tenth of the learning
    rate (``epochs=500, lr=0.001``); here it is a tenth of the epochs at the rate itself.  Both come
    equally close to their teacher, and the code's takes ten times as long; 50 epochs at its low
    rate leave small sites half trained.  As there, training ends after 5 epochs without a lower
    loss, and the last weights count, not the best.  Distances compare the sorted entries of two
    distributions, so that a permutation of the classes is no difference.  Otsu's threshold cuts
    between values and not between the bins of a histogram; where all rows are alike there is none,
    and the best rows are taken, as where it leaves too few.  Of each cluster the member nearest to
    its center is picked; empty clusters are made up by the best remaining rows.  Pools of fewer
    than ``neighbors`` rows list all others.  Rows whose predictions or features are not finite
    come last; labeled ones are left out.

    All pairs of rows are compared, for three models: time grows as the square of the pool, memory
    as the pool.  50,000 rows of 64 features take about 25 seconds of one core, 200,000 six minutes;
    a larger pool is refused.
    """

    neighbors: int = 250  # rows that each row lists
    epochs: int = 50  # at most; of the distilled model
    patience: int = 5  # epochs without a lower training loss
    lr: float = 0.01
    batch: int = 64

    contract: ClassVar[Contract] = Contract(
        title="IFAL",
        paper="Inconsistency-Based Federated Active Learning",
        year=2025,
        authors="Zong and others",
        keep={"select": "number of picks"},
        needs=("local", "global"),
        models=("kd",),
        draws=True,
        not_solved="it trains a teacher by steps beside the common model, and a model that "
        "is solved for has no such steps",
    )

    def __post_init__(self) -> None:
        if self.neighbors < 1:
            raise ValueError(f"IFAL's neighbors is {self.neighbors}; it must be 1 or more")

    @property
    def training_config(self) -> TrainingConfig:
        """How the distilled model is trained."""
        optimizer = Optimizer(lr=self.lr, momentum=0.9, weight_decay=1e-5)
        stages = (TrainingStage(self.epochs),)
        return TrainingConfig(
            stages, self.batch, optimizer, start="scratch", patience=self.patience
        )

    def trains_by(self, training_config: TrainingConfig) -> bool:
        return training_config == self.training_config

    def query(self, ask: Ask, budget: Budget, memo: Memo) -> Memo:
        to = orders(budget)
        # Nothing is sent along: the teacher is the global model, which sites have.
        ask.fit(self.training_config, "kd", {site: {} for site in to})
        ask.keep("select", to=to)
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

    # -- the choice -------------------------------------------------------------------------

    def select(self, view: View, n: int) -> Picks:
        if view.pool > MOST_ROWS:
            raise ValueError(
                f"site {view.site} has {view.pool:,} rows without a label, and IFAL compares all "
                f"pairs of rows: it takes up to {MOST_ROWS:,}; choose another strategy or leave "
                "rows out"
            )
        at = finite(view, "pool").nonzero().squeeze(1)
        inter, intra = self.inconsistencies(view, at)
        score = torch.full((view.pool,), torch.nan, dtype=torch.float64)
        score[at] = inter * intra
        order = rank_rows(score, view.stream("ties"))
        for value in (inter * intra, inter):  # the second where the first leaves too few
            rows = at[value > otsu(value)]
            if len(rows) >= n:
                z = view.embed("local")[rows]
                cluster = cluster_rows(z, n, view.stream("k-means"))
                is_best = torch.isin(order, rows[central_rows(z, cluster)])
                order = torch.cat([order[is_best], order[~is_best]])
                break
        return Picks(order[:n])

    def inconsistencies(self, view: View, at: Tensor) -> tuple[Tensor, Tensor]:
        """U1, between models, and U2, inside the local one, of the pool's rows ``at``; (m,) each"""
        known = finite(view, "labeled")
        m = len(at)
        k = min(self.neighbors, m - 1)
        labels = view.labels[known]

        near = {}  # by each model the k rows of the pool that every row lists, (m + l, k)
        for model in MODELS:
            pool = view.embed(model)[at]
            labeled = view.embed(model, "labeled")[known]
            near[model] = most_similar(pool, k, labeled)[1]
        by_global = torch.cat([view.logits("global")[at].argmax(1), labels])  # (m + l,)
        by_local = torch.cat([view.logits("local")[at].argmax(1), labels])

        seen = {}
        for model in MODELS:
            seen[model] = listing_classes(near[model], by_global, m, view.classes)
        between_local = distance(seen["local"], seen["kd"])
        between_both = distance(seen["global"], seen["kd"])
        own = listing_classes(near["local"], by_local, m, view.classes)
        predicted = view.logits("local")[at].double().softmax(1)
        return disagreement(between_both, between_local), distance(own, predicted)


def distillation_loss(outputs: Tensor, teacher: Tensor, b: Batch) -> Tensor:
    """0.1 cross-entropy + 0.9 T² KL(teacher || model) at temperature T.  (..., b, C) -> (...)."""
    loss = -outputs.log_softmax(-1).gather(-1, b.y.unsqueeze(-1)).squeeze(-1)
    warm = (outputs / TEMPERATURE).log_softmax(-1)
    soft = kl_div(warm, (teacher / TEMPERATURE).softmax(-1), reduction="none").sum(-1)
    both = (1 - TAUGHT) * loss + TAUGHT * TEMPERATURE**2 * soft
    return weighted_mean(both, b.weight)


def finite(view: View, which: Literal["pool", "labeled"]) -> Tensor:
    """Whether all three models give finite predictions and features of a row.  -> (rows,)"""
    are_finite = []
    for model in MODELS:
        are_finite.append(view.logits(model, which).isfinite().all(1))
        are_finite.append(view.embed(model, which).isfinite().all(1))
    return torch.stack(are_finite).all(0)


def listing_classes(near: Tensor, label: Tensor, m: int, classes: int) -> Tensor:
    """The class distribution of those rows that list a row, each class once more.

    near: (r, k) rows of the pool that each row lists; label: (r,) -> (m, C).

    >>> near = torch.tensor([[1], [0], [1]])
    >>> listing_classes(near, torch.tensor([0, 0, 1]), m=2, classes=2)
    tensor([[0.6667, 0.3333],
            [0.5000, 0.5000]], dtype=torch.float64)
    """
    # (r, k): a listed row and the class of its lister, as one number
    cell = near * classes + label[:, None]
    votes = torch.bincount(cell.flatten(), minlength=m * classes)
    votes = 1 + votes.double().view(m, classes)
    return votes / votes.sum(1, keepdim=True)


def distance(a: Tensor, b: Tensor) -> Tensor:
    """W1 between the entries of two distributions, taken as points on a line.  (m, C) -> (m,)."""
    return (a.sort(1).values - b.sort(1).values).abs().mean(1)


def disagreement(a: Tensor, b: Tensor) -> Tensor:
    """Large where two distances are large and unlike each other.  (m,), (m,) -> (m,)."""
    return torch.maximum(a / (b + SMALL), b / (a + SMALL)) * (a + b)


def otsu(x: Tensor) -> float:
    """Otsu's threshold: values above it and the others are as far apart as two groups can be.

    Infinite, so that nothing is above it, where all values are equal.

    >>> otsu(torch.tensor([5.0, 1.0, 6.0, 2.0]))
    2.0
    """
    s = x.double().sort().values
    if len(s) < 2 or s[0] == s[-1]:
        return math.inf
    below = torch.arange(1, len(s))  # rows below each cut
    above = len(s) - below
    # In proportion to the variance between the two groups of each cut.
    apart = (s - s.mean()).cumsum(0)[:-1].square() / (below * above)
    is_no_cut = s[1:] == s[:-1]  # equal values stay together
    return float(s[apart.masked_fill(is_no_cut, -1).argmax()])


def central_rows(x: Tensor, cluster: Tensor) -> Tensor:
    """Of each cluster the row nearest to its mean.  x: (m, d), cluster: (m,) -> (k,)."""
    _, cluster, sizes = torch.unique(cluster, return_inverse=True, return_counts=True)
    x = x.double()
    center = x.new_zeros(len(sizes), x.shape[1]).index_add(0, cluster, x) / sizes[:, None]
    order: Tensor = (x - center[cluster]).square().sum(1).argsort(stable=True)
    order = order[cluster[order].argsort(stable=True)]  # cluster by cluster, nearest first
    return order[sizes.cumsum(0) - sizes]
