"""AHFAL in its public code: class budgets by representation ratio (paper: Appendix H)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, final

import torch
from torch import Tensor

from fallow.core import client
from fallow.core.ask import Ask
from fallow.core.contract import Contract
from fallow.core.limits import NonNegativeFloat
from fallow.core.types import Values
from fallow.core.values import Count, Indicator, Mask, NonNegative, Share
from fallow.core.view import Release, SelectedExamples, View
from fallow.models.scores import entropy
from fallow.strategies.ahfal import AHFAL, AT_TAU, interleave, moments
from fallow.strategies.base import (
    Budget,
    Memo,
    check_fields,
    label_counts,
    selects,
)
from fallow.strategies.parts.top import rank_rows
from fallow_papers.ahfal.codes.ratio import allocate, spill


@final
@dataclass(frozen=True)
class RatioAHFAL:
    """AHFAL with the class budgets and the routing of its public code.  For reproduction only.

    >>> import fallow as fl
    >>> federation = fl.Federation("iris", fl.IID(), sites=3)
    >>> fl.run(
    ...     federation,
    ...     "fallow_papers.ahfal.codes:RatioAHFAL",
    ...     training="fedavg",
    ...     model="mlp",
    ...     cycles=1,
    ...     rounds=1,
    ... )
    Run(fallow_papers.ahfal.codes:RatioAHFAL on iris, seed 0: 2 phases, ... labels, accuracy 0...)

    Notes
    -----
    Differences from `fallow.strategies.AHFAL`, which follows the paper:

    * The budget of a class brings it to its share over the federation (`allocate`), instead
      of the inverse of its count.  The excess of small buckets goes to the open class with
      the smallest ratio.
    * ``counts="global_pseudo"``: a site counts the predictions of the global model for its
      labeled examples instead of its labels.
    * ``target="initial"``: the shares over the federation are those of the initial labeled
      set and never change.
    * ``route="either"``: both models score an example if the local *or* the global
      prediction is a class with similar shares at all sites.

    Each difference is a separate field, so that a study can measure its effect.  With
    ``counts="true", target="current", route="local"``, the strategy follows the text of
    Appendix H. A site without labels is excluded from mean and spread; the code counts it
    as zeros. Ties are broken at random from a named stream.
    """

    tau: NonNegativeFloat = 12.0  # τ, in percentage points of label shares
    route: Literal["either", "local"] = "either"
    counts: Literal["global_pseudo", "true"] = "global_pseudo"
    target: Literal["initial", "current"] = "initial"

    contract: ClassVar[Contract] = Contract(
        title="AHFAL (public code)",
        paper="Federated Active Learning via Class-Adaptive Local-Global Balancing",
        year=2025,
        authors="Anonymous",
        needs=("local", "global"),
        cohort=2,
        missing="mean, spread and totals are those of the sites that reply",
    )

    def __post_init__(self) -> None:
        check_fields(self)

    # -- server side -------------------------------------------------------------------

    def query(self, ask: Ask, budget: Budget, memo: Memo) -> Memo:
        total = ask.sum(self.share)
        spread = moments(total["share"], total["square"], total["one"])[1]
        low = 100 * spread < self.tau - AT_TAU
        counts = total["count"].tolist()
        target = counts
        if self.target != "current":
            target = memo.get("target", counts)
        if any(target):  # constant from the first query with labels on
            memo = {**memo, "target": target}
        pooled = torch.tensor(target, dtype=torch.float64)
        ask.keep(self.select, to=label_counts(budget), low=low, target=pooled)
        notes = {
            "sigma": (100 * spread).tolist(),
            "low": low.tolist(),
            "spread_tau": self.tau,
        }
        return {**memo, "notes": notes}

    # -- client side -------------------------------------------------------------------

    @client.sum(
        "aggregates of label shares per class, of their squares, and of label counts per class",
        returns={
            "one": Indicator(),
            "share": Share("classes"),
            "square": Share("classes"),
            "count": Count("classes", of="labels", is_together=True, is_released=True),
        },
        release=True,
    )
    def share(self, view: View) -> Release:
        return Release(
            view.counts, sensitivity=2, post=self.post, post_noisy=self.post_noisy
        )

    def post(self, counts: Tensor) -> Values:
        return AHFAL().post(counts) | {"count": counts.clamp_min(0)}

    def post_noisy(self, counts: Tensor) -> Values:
        return AHFAL().post_noisy(counts) | {"count": counts.clamp_min(0)}

    @selects(low=Mask("classes"), target=NonNegative("classes"))
    def select(self, view: View, n: int, low: Tensor, target: Tensor) -> SelectedExamples:
        local = view.logits("local")
        common = view.logits("global")
        label = local.argmax(1)  # ŷ by the local model
        is_low = low[label]
        if self.route == "either":
            is_low |= low[common.argmax(1)]
        h = entropy(local)
        h = torch.where(is_low, (h + entropy(common)) / 2, h)
        order = rank_rows(h, view.stream("ties"))
        scored = order[h[order].isfinite()]
        without_score = order[len(scored) :]  # ranked last
        buckets = [scored[label[scored] == c] for c in range(view.classes)]
        quota = self.quota(view, n, target, caps=[len(bucket) for bucket in buckets])
        best = interleave([b[:q] for b, q in zip(buckets, quota, strict=True)])
        return SelectedExamples(torch.cat([best, without_score])[:n])

    def quota(self, view: View, n: int, target: Tensor, caps: list[int]) -> list[int]:
        """Return the number of examples to select per class, within ``caps``."""
        total = float(target.sum())
        shares = [1 / view.classes] * view.classes
        if total > 0:
            shares = [float(t) / total for t in target]
        n_labeled = self.count_labels(view)
        quota = allocate(n, n_labeled, shares, present=[cap > 0 for cap in caps])
        return spill(n, quota, n_labeled, shares, caps=caps)

    def count_labels(self, view: View) -> list[int]:
        """Count the site's labeled examples per class, as this strategy counts them."""
        if self.counts == "true" or not len(view.labels):
            return [int(n) for n in view.counts]
        predicted = view.logits("global", "labeled").argmax(1)
        return torch.bincount(predicted, minlength=view.classes).tolist()
