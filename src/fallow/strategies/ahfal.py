"""AHFAL: class-adaptive local-global balancing (anonymous submission), Eq. 2-4, Algorithm 1."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, final

import torch
from torch import Tensor

from fallow.core.ask import Ask
from fallow.core.contract import Contract
from fallow.core.types import Answer
from fallow.core.view import Picks, Release, View
from fallow.models.scores import entropy, least_confidence, margin
from fallow.strategies.base import Budget, Memo, check_choices, orders
from fallow.strategies.parts import fill, rank_rows

SCORES = {"entropy": entropy, "margin": margin, "least_confidence": least_confidence}
AT_TAU = 1e-9  # a spread this close to τ is τ: rounding must not decide what "strictly below" means


@final
@dataclass(frozen=True)
class AHFAL:
    """Where sites agree on a class, its rows are scored by both models; elsewhere by the local one.
    Each site then splits its budget over pseudo-classes in favor of those it has few labels of.

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

    Notes
    -----
    The paper calls tau = 12 a threshold on the spread of class *counts*, while Eq. 2 defines the
    spread on *proportions* (at most 0.5).  Read as percentage points of proportions the value acts
    as the paper's Appendix E and its sensitivity study describe; on counts no class would ever
    fall below it.  So ``tau_scale="percent"`` is the default.  In percent, tau does not carry over
    to other numbers of classes: with 100 classes use ``tau_scale="cv", tau=1.2``.
    Rounding of Eq. 4 is not stated: largest remainders.  A site without labels is left out of the
    mean and the spread; behind noise (privacy.epsilon) nobody is, because noisy counts do not tell
    such a site, and one whose noisy counts are all below 0 answers with equal shares.  Ties are
    broken at random from a named stream.
    The paper counts 40 bytes a site and query, ten shares of 4 bytes.  Here it is 168: the squares
    of the shares go along, so that the server needs totals alone, and numbers take 8 bytes.
    """

    tau: float = 12.0  # τ, Eq. 2; the paper tries 10, 12, 15
    tau_scale: Literal["percent", "proportion", "count", "cv"] = "percent"
    mix: float = 0.5  # weight of the local score in Eq. 3
    score: Literal["entropy", "margin", "least_confidence"] = "entropy"
    toggle: Literal["auto", "never", "always"] = "auto"  # never: without toggling
    balance: Literal["inverse_count", "target_deficit", "uniform", "none"] = "inverse_count"

    contract: ClassVar[Contract] = Contract(
        title="AHFAL",
        paper="Federated Active Learning via Class-Adaptive Local-Global Balancing",
        year=2025,
        authors="Anonymous",
        sum={"share": "totals over sites of label shares per class and of their squares"},
        keep={"select": "number of picks"},
        needs=("local", "global"),
        cohort=2,
        waits=("share",),
        missing="mean and spread are those of the sites that answer",
    )

    def __post_init__(self) -> None:
        check_choices(self)
        if not self.tau >= 0:
            raise ValueError(f"AHFAL's tau is {self.tau}; it must be 0 or more")
        if not 0 <= self.mix <= 1:
            raise ValueError(f"AHFAL's mix is {self.mix}; it must lie between 0 and 1")

    # -- server half ------------------------------------------------------------------------

    def query(self, ask: Ask, budget: Budget, memo: Memo) -> Memo:
        total = ask.sum("share")  # step 1: totals suffice
        mean, spread = moments(total["share"], total["square"], total["one"])
        low = self.low(mean, spread, total)
        ask.keep("select", to=orders(budget), low=low, mean=mean)  # steps 2 and 3
        notes = {
            "sigma": (100 * spread).tolist(),
            "low": low.tolist(),
            "spread_tau": self.tau_in_percent(),
        }
        return {**memo, "notes": notes}

    def tau_in_percent(self) -> float | None:
        """τ in the unit in which reports show spreads; None on a scale that is no share."""
        if self.tau_scale == "percent":
            return self.tau
        if self.tau_scale == "proportion":
            return 100 * self.tau
        return None

    def low(self, mean: Tensor, spread: Tensor, total: dict[str, Tensor]) -> Tensor:
        """C_low of Eq. 2 as (C,) booleans: classes whose spread over sites is strictly below τ."""
        if self.toggle != "auto":
            return torch.full(spread.shape, self.toggle == "always")
        if self.tau_scale == "percent":
            spread = 100 * spread
        elif self.tau_scale == "count":
            _, spread = moments(total["count"], total["count_square"], total["one"])
        elif self.tau_scale == "cv":  # 0 / 0 is 0: a class without a label anywhere is low
            spread = torch.where(mean > 0, spread / mean.clamp_min(1e-300), 0.0)
        return spread < self.tau - AT_TAU

    # -- site half --------------------------------------------------------------------------

    def share(self, view: View) -> Release:
        return Release(
            view.counts, sensitivity=2, post=self.post, post_noisy=self.post_noisy
        )

    def post(self, counts: Tensor) -> Answer:
        """p_i and what its mean and population spread need; zeros from a site without labels."""
        counts = counts.clamp_min(0)
        n = counts.sum()
        p = counts / n.clamp_min(1e-300)
        answer: Answer = {"one": (n > 0).double(), "share": p, "square": p**2}
        if self.tau_scale == "count":
            answer |= {"count": counts, "count_square": counts**2}
        return answer

    def post_noisy(self, counts: Tensor) -> Answer:
        """The same for counts with noise: where none is above 0 all classes are alike."""
        if bool((counts > 0).any()):
            return self.post(counts)
        equal = torch.full_like(counts, 1 / len(counts))
        shares: Answer = {"one": equal.new_ones(()), "share": equal, "square": equal**2}
        return self.post(counts) | shares

    def select(self, view: View, n: int, low: Tensor, mean: Tensor) -> Picks:
        local = view.logits("local")
        score = SCORES[self.score]
        h = score(local)  # (m,)
        label = local.argmax(1)  # ŷ by the local model
        if bool(low.any()):  # Eq. 3
            both = self.mix * h + (1 - self.mix) * score(view.logits("global"))
            h = torch.where(low[label], both, h)
        order = rank_rows(h, view.stream("ties"))
        if self.balance == "none":
            return Picks(order[:n], score=h[order[:n]])
        scored = order[h[order].isfinite()]
        buckets = [scored[label[scored] == c] for c in range(view.classes)]
        caps = torch.tensor([len(bucket) for bucket in buckets])
        quota = fill(n, self.weights(view.counts, mean, n), caps)
        chosen = []
        for bucket, q in zip(buckets, quota.tolist(), strict=True):
            chosen.append(bucket[:q])
        best = interleave(chosen)
        # A row without a score has no class: it comes last.
        rows = torch.cat([best, order[len(scored) :]])[:n]
        return Picks(rows, score=h[rows])

    def weights(self, counts: Tensor, mean: Tensor, n: int) -> Tensor:
        """Eq. 4: class weights of the budget; 1/n_c, and 1 where the site has no label."""
        if self.balance == "inverse_count":
            return 1 / counts.clamp_min(1)
        if self.balance == "target_deficit":
            deficit = (mean * (counts.sum() + n) - counts).clamp_min(0)
            if bool(deficit.any()):
                return deficit
        return torch.ones_like(counts)


def moments(first: Tensor, second: Tensor, n: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and population standard deviation per class from totals over n sites (Eq. 2)."""
    n = n.clamp_min(1)
    mean = first / n
    variance = (second / n - mean**2).clamp_min(0)  # rounding may take it below 0
    return mean, variance.sqrt()


def interleave(buckets: list[Tensor]) -> Tensor:
    """Round-robin over classes in ascending id, each by descending score."""
    rank = torch.cat([torch.arange(len(b)) for b in buckets])
    return torch.cat(buckets)[rank.argsort(stable=True)]
