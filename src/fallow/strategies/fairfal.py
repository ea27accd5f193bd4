"""FairFAL (Zong, Huang, 2026; arXiv 2603.10341): class-fair queries for long-tailed data.

The strategy selects a query model, assigns pseudo-labels by prototypes, gives each class an equal
quota and selects in two stages.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal, final

import torch
from torch import Tensor
from torch.nn.functional import normalize, one_hot

from fallow.core import client
from fallow.core.ask import Ask
from fallow.core.contract import Contract
from fallow.core.limits import Fraction, Limits
from fallow.core.suggestions import explain_constructor, refuse_unused
from fallow.core.types import Values
from fallow.core.values import Indicator, Share
from fallow.core.view import SelectedExamples, View
from fallow.models.scores import entropy
from fallow.strategies.base import (
    Budget,
    Memo,
    check_fields,
    label_counts,
    selects,
)
from fallow.strategies.parts.kcenter import Gradients, k_center
from fallow.strategies.parts.kmeans import residuals
from fallow.strategies.parts.top import rank_rows, require_finite


@explain_constructor
@final
@dataclass(frozen=True)
class FairFAL:
    """Give each class the same quota, and select uncertain and diverse examples in it.

    The global model scores examples if classes are imbalanced over the federation and it agrees
    with the site's own model; otherwise the local model does.  The local model is trained from
    scratch at the site, unless the experiment configuration overrides this.

    Parameters
    ----------
    delta : float
        Threshold of the similarity s above which the global model scores (δ).
    kappa : float
        Number of first-stage candidates per selected example (κ).
    query_model : {"auto", "local", "global", "opposite"}
        Model that scores examples.
    prototypes : {"global", "local", "none"}
        Model whose features make the prototypes of pseudo-labels.  "none": pseudo-labels are the
        predictions of the query model.  "local" is a row of the paper's ablation.
    gradients : {"auto", "global"}
        Predictions used for gradients.  "auto": those of the global model only if the federation is
        imbalanced, and otherwise those of the local model.
    gradient_switch : float
        Value of γ below which the federation is imbalanced for ``gradients="auto"``.

    Notes
    -----
    Only a part of the paper's text was available; details follow its public code.  The imbalance γ
    is measured once, at the first query with labels, and stored in the memo.  A site's γ is the
    smallest over the largest mean prediction of the global model, among the classes with labels at
    the site; the mean gives each of these classes the same weight.  γ is 1 (balanced) if these
    classes are never predicted or there is only one.  A site without labels does not enter the mean
    over sites; it uses the global model, and the predictions of that model as pseudo-labels.  If no
    site has labels, γ is 0 for this query and is measured at the next one.  Prototypes are
    normalized after averaging.  A class without labels at a site is never a pseudo-label; its quota
    goes to the largest classes.  Gradients use the features of the global model.  Where the code
    balances classes by resampling, the expectation over resamples is used.  Examples with a
    non-finite prediction or feature are ranked last, and labeled ones are ignored.

    Reports show the imbalance and the divergence below which a site uses the global model.  The
    choice itself stays at the site: the coordinator sees only the number of selected examples.

    References
    ----------
    Zong, Huang. Federated Active Learning Under Extreme Non-IID and Global Class Imbalance. 2026.

    Examples
    --------
    >>> import fallow as fl
    >>> labeled = ([[0.5], [8.0]], [0, 1])
    >>> sure = [[0.9, 0.1], [0.1, 0.9]]  # predictions for the labeled examples
    >>> outputs = {
    ...     "local": ([[0.9, 0.1], [0.5, 0.5], [0.3, 0.7]], sure),
    ...     "global": ([[0.2, 0.8], [0.5, 0.5], [0.4, 0.6]], sure),
    ... }
    >>> pool = [[0.0], [1.0], [9.0]]
    >>> fl.select(pool, fl.FairFAL(), labeled=labeled, outputs=outputs, n=1)
    array([2])
    """

    delta: Fraction = 0.75  # δ; the global model scores if s > δ
    kappa: Annotated[float, Limits(ge=1)] = (
        4.0  # κ; candidates per selected example in the first stage
    )
    query_model: Literal["auto", "local", "global", "opposite"] = "auto"
    prototypes: Literal["global", "local", "none"] = "global"
    gradients: Literal["auto", "global"] = "auto"
    gradient_switch: Fraction = 0.5  # γ; below it, gradients use the global predictions

    contract: ClassVar[Contract] = Contract(
        title="FairFAL",
        paper="Federated Active Learning Under Extreme Non-IID and Global Class Imbalance",
        year=2026,
        authors="Zong, Chen-Chen and Huang, Sheng-Jun",
        needs=("local", "global"),
        local_source="scratch",
        local_dp=False,  # noise on counts does not cover an imbalance of predictions
    )

    def __post_init__(self) -> None:
        check_fields(self)
        refuse_unused(self, "delta", switch="query_model", used_with=("auto", "opposite"))
        refuse_unused(self, "gradient_switch", switch="gradients", used_with=("auto",))

    # -- server side ------------------------------------------------------------------------

    def query(self, ask: Ask, budget: Budget, memo: Memo) -> Memo:
        if "gamma" not in memo:  # fixed at the first query, while labels are still random
            total = ask.sum(self.imbalance, bound=1.0)
            if float(total["one"]) > 0:
                memo = {**memo, "gamma": float(total["gamma"] / total["one"])}
        ask.keep(self.select, to=label_counts(budget), gamma=memo.get("gamma", 0.0))
        return {**memo, "notes": self.notes(memo.get("gamma"))}

    def notes(self, gamma: float | None) -> Memo:
        """Return what the coordinator knows about the choice of models, for the report.

        The global model scores at sites whose divergence d, in [0, 1], is below ``global_below``.
        """
        if gamma is None or self.query_model != "auto":
            return {"gamma": gamma}
        return {"gamma": gamma, "global_below": 2 * (1 - self.delta) - gamma}

    # -- client side --------------------------------------------------------------------------

    @client.sum(
        "aggregates of class imbalance and of numbers of sites with labels",
        returns={"gamma": Share(), "one": Indicator()},
    )
    def imbalance(self, view: View) -> Values:
        if not len(view.labels):
            return {"gamma": 0.0, "one": 0.0}
        pi = mean_prediction(view, "global")[view.counts > 0]
        if pi.min() == pi.max():  # also 0 / 0: the classes of the site are never predicted
            return {"gamma": 1.0, "one": 1.0}
        return {"gamma": float(pi.min() / pi.max()), "one": 1.0}

    @selects(gamma=Share())
    def select(self, view: View, n: int, gamma: float) -> SelectedExamples:
        model = self.choose_model(view, gamma)
        h = entropy(view.logits(model))
        h = h.masked_fill(~view.embed("global").isfinite().all(1), torch.nan)
        order = rank_rows(h, view.stream("ties"))
        scored = order[h[order].isfinite()]
        label = self.pseudo_labels(view, model)[scored]
        quota = quotas(n, torch.bincount(label, minlength=view.classes))
        selected = []
        for c, q in enumerate(quota.tolist()):
            if q > 0:
                selected.append(self.two_stage(view, scored[label == c], c, q, gamma))
        # An example without a score has no class and is ranked last.
        return SelectedExamples(torch.cat([*selected, order[len(scored) :]])[:n])

    def choose_model(self, view: View, gamma: float) -> str:
        """Return the model that scores: global iff s = 1 - (d + γ) / 2 > δ."""
        if self.query_model in ("local", "global"):
            return self.query_model
        if not len(view.labels):
            return "global"
        d = difference(mean_prediction(view, "global"), mean_prediction(view, "local"))
        is_global = 1 - (d + gamma) / 2 > self.delta
        if self.query_model == "opposite":
            is_global = not is_global
        if is_global:
            return "global"
        return "local"

    def pseudo_labels(self, view: View, model: str) -> Tensor:
        """Return the class of the nearest prototype by cosine similarity; (m,)."""
        if self.prototypes == "none" or not len(view.labels):
            return view.logits(model).argmax(1)
        z = view.embed(self.prototypes, "labeled")
        known = z.isfinite().all(1)
        member = one_hot(view.labels[known], view.classes).to(z)  # (n, C)
        center = normalize(member.T @ normalize(z[known]))
        similar = normalize(view.embed(self.prototypes)) @ center.T
        return similar.masked_fill(member.sum(0) == 0, -torch.inf).argmax(1)

    def two_stage(self, view: View, bucket: Tensor, c: int, q: int, gamma: float) -> Tensor:
        """Run k-center on gradients of the candidates, starting with labeled examples of the class."""
        rows = self.candidates(bucket, q)
        if len(rows) <= q:
            return rows
        scorer = "local"
        if self.gradients == "global" or gamma < self.gradient_switch:
            scorer = "global"
        p = view.logits(scorer)[rows].double().softmax(1)
        gradients = Gradients.of(residuals(p), view.embed("global")[rows])
        of_class = view.labels == c
        if not bool(of_class.any()):
            # Start with the first one, which is the most uncertain.
            return rows[k_center(gradients, q)]
        p = view.logits(scorer, "labeled")[of_class].double().softmax(1)
        z = view.embed("global", "labeled")[of_class]
        anchors = Gradients.of(residuals(p, view.labels[of_class]), z)
        return rows[k_center(gradients, q, gradients.nearest(anchors))]

    def candidates(self, bucket: Tensor, q: int) -> Tensor:
        """Return the κ q most uncertain examples of a bucket, which is sorted."""
        wanted = self.kappa * q + 1e-9  # 1.15 * 100 is 114.99...
        return bucket[: int(min(wanted, len(bucket)))]


def mean_prediction(view: View, model: str) -> Tensor:
    """Return π, the mean prediction over labeled examples, with equal class weights.  -> (C,)

    Raises ValueError if no labeled example has a finite prediction.
    """
    p = view.logits(model, "labeled").double().softmax(1)
    known = p.isfinite().all(1)
    require_finite(known, f"the {model} model's predictions of all {{n}} labeled examples")
    p = p[known]
    labels = view.labels[known]
    of_class = [p[labels == c].mean(0) for c in torch.unique(labels)]  # (C,) each
    return torch.stack(of_class).mean(0)


def difference(a: Tensor, b: Tensor) -> float:
    """Return the distance d = 1/C Σ_c |a_c - b_c| / (a_c + b_c) over all classes, with 0/0 = 0."""
    both = a + b
    apart = (a - b).abs() / both.clamp_min(1e-300)
    return float(torch.where(both > 0, apart, 0.0).mean())


def quotas(n: int, sizes: Tensor) -> Tensor:
    """Divide ``n`` equally over classes, within the size of each bucket.  (C,) -> (C,)

    The remainder and the excess of small buckets go one by one to the largest.

    >>> quotas(10, torch.tensor([50, 30, 0, 2]))
    tensor([4, 4, 0, 2])
    """
    c = len(sizes)
    largest = sizes.argsort(descending=True, stable=True)
    quota = torch.full((c,), n // c)
    quota[largest[: n % c]] += 1
    quota = torch.minimum(quota, sizes)
    left = min(n, int(sizes.sum())) - int(quota.sum())
    while left > 0:
        for k in largest[(quota < sizes)[largest]][:left].tolist():
            quota[k] += 1
            left -= 1
    return quota
