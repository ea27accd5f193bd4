"""AHFAL: class-adaptive local-global balancing (anonymous submission), Eq. 2-4, Algorithm 1."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, final

import torch
from torch import Tensor

from fallow.core import client
from fallow.core.ask import Ask
from fallow.core.contract import Contract
from fallow.core.limits import Fraction, NonNegativeFloat, NonNegativeInt
from fallow.core.suggestions import explain_constructor, refuse_unused
from fallow.core.types import Values
from fallow.core.values import Count, Indicator, Kind, Mask, NonNegative, Share
from fallow.core.view import Release, SelectedExamples, View
from fallow.models.scores import SCORES
from fallow.strategies.base import (
    Budget,
    Memo,
    check_fields,
    label_counts,
    selects,
)
from fallow.strategies.parts.top import fill, rank_rows

AT_TAU = 1e-9  # tolerance of the comparison with τ, so that rounding does not decide it


def share_fields(strategy: AHFAL) -> dict[str, Kind]:
    """Return the fields of ``share``: counts only if ``tau`` is a number of labels."""
    share = Share("classes")
    fields: dict[str, Kind] = {"one": Indicator(), "share": share, "square": share}
    if strategy.tau_scale == "count":
        fields["count"] = Count("classes", of="labels", is_together=True, is_released=True)
        fields["count_square"] = NonNegative("classes")
    return fields


@explain_constructor
@final
@dataclass(frozen=True)
class AHFAL:
    """Balance uncertainty and class shares, with scores adapted to each class.

    In classes whose shares are similar at all sites, both models score an example; in other classes
    the local model alone does.  Each site then divides its label budget over pseudo-classes, in
    favor of classes with few labels at the site.

    Parameters
    ----------
    tau : float
        Threshold on the spread of class shares over sites (τ in Eq. 2).
    tau_scale : {"percent", "proportion", "count", "cv"}
        Unit of ``tau``.  "cv" is the coefficient of variation.
    mix : float
        Weight of the local score in Eq. 3.
    score : {"entropy", "margin", "least_confidence"}
        Uncertainty score.
    toggle : {"auto", "never", "always"}
        Classes scored by both models: those below ``tau``, none or all.
    balance : {"inverse_count", "target_deficit", "uniform", "none"}
        Weights by which a site divides its label budget over pseudo-classes.  "inverse_count" is Eq.
        4.  "target_deficit" is max(0, p̄_c (n_i + B_i) - n_ic): what class c lacks to the mean
        share p̄_c of the sites once the B_i labels are bought; if no class lacks any, all
        classes have the same weight.
    few_labels : int
        Number of labels of a class below which a site scores it by both models, also if its spread is
        above ``tau``.  0: the spread alone decides, as in Eq. 2.

    Notes
    -----
    The paper calls tau = 12 a threshold on the spread of class *counts*, while Eq. 2 defines the
    spread on *proportions* (at most 0.5).  Read as percentage points of proportions, the value
    behaves as described in the paper's Appendix E and its sensitivity study.  On counts, no class
    would ever be below it.  The default is therefore ``tau_scale="percent"``.  In percent, tau does
    not transfer to other numbers of classes: with 100 classes, use ``tau_scale="cv", tau=1.2``.

    The paper does not state how Eq. 4 is rounded; the largest-remainder method is used.  A site
    without labels does not enter the mean and the spread.  With differential privacy
    (``privacy.epsilon``) all sites enter, because noisy counts do not identify such a site; a site
    whose noisy counts are all below 0 sends equal shares.  Ties are broken at random from a named
    random stream.

    ``few_labels`` is the client-poor case of Appendix C, which the paper describes and its rule
    leaves out.  The count stays at the site.  BALD is not a ``score``: it compares several
    predictions of a committee, and Eq. 3 mixes one prediction of each model.  Use `BALD` instead.

    The paper reports 40 bytes per site and query: ten shares of 4 bytes.  Here it is 168 bytes,
    because the squares of the shares are sent as well, so that the coordinator needs aggregates
    only, and numbers have 8 bytes.

    Examples
    --------
    >>> import fallow as fl
    >>> outputs = {
    ...     "local": [[0.9, 0.1], [0.5, 0.5], [0.3, 0.7]],
    ...     "global": [[0.2, 0.8], [0.5, 0.5], [0.4, 0.6]],
    ... }
    >>> pool = [[0.0], [1.0], [9.0]]
    >>> sites = {
    ...     "north": fl.Site(pool, labeled=([[0.5]], [0]), outputs=outputs),
    ...     "south": fl.Site(pool, labeled=([[8.0]], [1]), outputs=outputs),
    ... }
    >>> fl.select(sites, fl.AHFAL(tau=12.0), n=1)
    {'north': array([1]), 'south': array([1])}
    """

    tau: NonNegativeFloat = 12.0  # τ, Eq. 2; the paper tries 10, 12, 15
    tau_scale: Literal["percent", "proportion", "count", "cv"] = "percent"
    mix: Fraction = 0.5  # weight of the local score in Eq. 3
    score: Literal["entropy", "margin", "least_confidence"] = "entropy"
    toggle: Literal["auto", "never", "always"] = "auto"  # classes scored by both models
    balance: Literal["inverse_count", "target_deficit", "uniform", "none"] = "inverse_count"
    few_labels: NonNegativeInt = 0  # labels of a class; fewer: both models score it

    contract: ClassVar[Contract] = Contract(
        title="AHFAL",
        paper="Federated Active Learning via Class-Adaptive Local-Global Balancing",
        year=2025,
        authors="Anonymous",
        needs=("local", "global"),
        cohort=2,
        missing="mean and spread are those of the sites that reply",
    )

    def __post_init__(self) -> None:
        check_fields(self)
        refuse_unused(
            self, "tau", "tau_scale", "few_labels", switch="toggle", used_with=("auto",)
        )
        refuse_unused(self, "mix", switch="toggle", used_with=("auto", "always"))

    # -- server side ------------------------------------------------------------------------

    def query(self, ask: Ask, budget: Budget, memo: Memo) -> Memo:
        total = ask.sum(self.share)  # step 1: aggregates suffice
        mean, spread = moments(total["share"], total["square"], total["one"])
        low = self.low(mean, spread, total)
        ask.keep(self.select, to=label_counts(budget), low=low, mean=mean)  # steps 2 and 3
        notes = {
            "sigma": (100 * spread).tolist(),
            "low": low.tolist(),
            "spread_tau": self.tau_in_percent(),
        }
        return {**memo, "notes": notes}

    def tau_in_percent(self) -> float | None:
        """Return τ in the unit of the report; None if the scale is not a share."""
        if self.tau_scale == "percent":
            return self.tau
        if self.tau_scale == "proportion":
            return 100 * self.tau
        return None

    def low(self, mean: Tensor, spread: Tensor, total: dict[str, Tensor]) -> Tensor:
        """Return C_low of Eq. 2, (C,) bool: classes with a spread over sites strictly below τ."""
        if self.toggle != "auto":
            return torch.full(spread.shape, self.toggle == "always")
        if self.tau_scale == "percent":
            spread = 100 * spread
        elif self.tau_scale == "count":
            _, spread = moments(total["count"], total["count_square"], total["one"])
        elif self.tau_scale == "cv":  # 0 / 0 is 0: a class without a label anywhere is low
            spread = torch.where(mean > 0, spread / mean.clamp_min(1e-300), 0.0)
        return spread < self.tau - AT_TAU

    # -- client side --------------------------------------------------------------------------

    @client.sum(
        "aggregates of label shares per class and of their squares",
        returns=share_fields,
        release=True,
    )
    def share(self, view: View) -> Release:
        return Release(
            view.counts, sensitivity=2, post=self.post, post_noisy=self.post_noisy
        )

    def post(self, counts: Tensor) -> Values:
        """Return p_i and the terms of its mean and population spread; zeros without labels."""
        counts = counts.clamp_min(0)
        n = counts.sum()
        p = counts / n.clamp_min(1e-300)
        reply: Values = {"one": (n > 0).double(), "share": p, "square": p**2}
        if self.tau_scale == "count":
            reply |= {"count": counts, "count_square": counts**2}
        return reply

    def post_noisy(self, counts: Tensor) -> Values:
        """Return the same for noisy counts: equal shares where no count is above 0."""
        if bool((counts > 0).any()):
            return self.post(counts)
        equal = torch.full_like(counts, 1 / len(counts))
        shares: Values = {"one": equal.new_ones(()), "share": equal, "square": equal**2}
        return self.post(counts) | shares

    @selects(low=Mask("classes"), mean=Share("classes"))
    def select(self, view: View, n: int, low: Tensor, mean: Tensor) -> SelectedExamples:
        local = view.logits("local")
        score = SCORES[self.score]
        h = score(local)  # (m,)
        label = local.argmax(1)  # ŷ by the local model
        low = low | (view.counts < self.few_labels)  # Appendix C: client-poor classes
        if bool(low.any()):  # Eq. 3
            both = self.mix * h + (1 - self.mix) * score(view.logits("global"))
            h = torch.where(low[label], both, h)
        order = rank_rows(h, view.stream("ties"))
        if self.balance == "none":
            return SelectedExamples(order[:n], score=h[order[:n]])
        scored = order[h[order].isfinite()]
        buckets = [scored[label[scored] == c] for c in range(view.classes)]
        caps = torch.tensor([len(bucket) for bucket in buckets])
        quota = fill(n, self.weights(view.counts, mean, n), caps)
        chosen = []
        for bucket, q in zip(buckets, quota.tolist(), strict=True):
            chosen.append(bucket[:q])
        best = interleave(chosen)
        # An example without a score has no class and is ranked last.
        rows = torch.cat([best, order[len(scored) :]])[:n]
        return SelectedExamples(rows, score=h[rows])

    def weights(self, counts: Tensor, mean: Tensor, n: int) -> Tensor:
        """Return the class weights of Eq. 4: 1/n_c, and 1 for classes without a label at the site."""
        if self.balance == "inverse_count":
            return 1 / counts.clamp_min(1)
        if self.balance == "target_deficit":
            deficit = (mean * (counts.sum() + n) - counts).clamp_min(0)
            if bool(deficit.any()):
                return deficit
        return torch.ones_like(counts)


def moments(first: Tensor, second: Tensor, n: Tensor) -> tuple[Tensor, Tensor]:
    """Return mean and population standard deviation by class from sums over n sites (Eq. 2)."""
    n = n.clamp_min(1)
    mean = first / n
    variance = (second / n - mean**2).clamp_min(0)  # rounding may take it below 0
    return mean, variance.sqrt()


def interleave(buckets: list[Tensor]) -> Tensor:
    """Interleave the classes in ascending id, each in descending order of score."""
    rank = torch.cat([torch.arange(len(b)) for b in buckets])
    return torch.cat(buckets)[rank.argsort(stable=True)]
