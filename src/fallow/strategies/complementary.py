"""Complementary querying: select examples of classes that collaborators predict poorly.

This is our own proposal for personalized models (DPFL: Kharrat, Canini, Horváth, 2025), with the
disagreement of BALD (Houlsby et al., 2011) over the models that a site has received.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor

from fallow.core.ask import Ask
from fallow.core.contract import Contract
from fallow.core.limits import NonNegativeFinite, check_fields
from fallow.core.suggestions import explain_constructor
from fallow.core.view import SelectedExamples, View
from fallow.models.scores import entropy
from fallow.strategies.base import (
    Budget,
    Memo,
    label_counts,
    selects,
)
from fallow.strategies.parts.committee import (
    Committee,
    gather_committee,
    logits,
    personal_model,
)
from fallow.strategies.parts.kcenter import FeatureVectors, k_center
from fallow.strategies.parts.top import ALL_SCORES, rank_rows, require_finite

EVEN = 0.1  # share of the probability that is uniform, so that every example may be drawn


def draw_by_softmax(
    scores: Tensor, n: int, temperature: float, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Draw ``n`` positions in sequence, and return the probability of each when it was drawn.

    scores: (m,).  The probability of a remaining example is softmax(scores / temperature), mixed
    with a tenth of the uniform distribution.  Examples without a finite score are last.  Raises
    ValueError if no score is finite.
    """
    left = torch.ones(len(scores), dtype=torch.bool)
    good = scores.isfinite()
    if len(scores):
        require_finite(good, ALL_SCORES)
    selected = []
    chances = []
    for _ in range(min(n, len(scores))):
        among = left & good
        if not bool(among.any()):
            among = left
        sharp = (scores.double().nan_to_num() / temperature).masked_fill(~among, -torch.inf)
        p = (1 - EVEN) * sharp.softmax(0) + EVEN * among / among.sum()
        j = int(torch.multinomial(p, 1, generator=generator))
        left[j] = False
        selected.append(j)
        chances.append(min(float(p[j]), 1.0))  # the last row's may be above by rounding
    chance = torch.tensor(chances, dtype=torch.float64)
    return torch.tensor(selected, dtype=torch.int64), chance


def level_weights(chance: Tensor, pool: int) -> Tensor:
    """Return the weights v_i, (M,), of examples drawn without replacement from a pool of N.

    chance: (M,) π_i, the probability of the i-th example among the remaining ones.  v_i = 1 + (N -
    M) / (N - i) · (1 / ((N - i + 1) π_i) - 1); uniformly drawn examples have weight 1.  The mean of
    v_i times the i-th loss is an unbiased estimate of the mean loss over the pool: the levelled
    unbiased risk estimator of Farquhar, Gal and Rainforth, On Statistical Bias in Active Learning
    (2021), Eq. 11.

    >>> level_weights(torch.tensor([0.5, 0.25]), 4)
    tensor([0.6667, 1.3333])
    """
    m = len(chance)
    i = torch.arange(1, m + 1)
    rest = (pool - i).clamp_min(1)  # of the last row of a pool 0 / 0: it weighs 1
    even = 1 / ((pool - i + 1) * chance)  # 1 where the i-th row was drawn evenly
    return 1 + (pool - m) / rest * (even - 1)


CANDIDATES = 4  # candidates of the k-center step per label


@explain_constructor
@final
@dataclass(frozen=True)
class Complementary:
    """Select uncertain examples of classes that a site's collaborators predict poorly.

    The score is A(x) = [sum_c q_c(x) need(c)] (H(f_per(x)) + γ BALD(x)); a k-center step then
    diversifies the best examples.

    q is the mean prediction of the committee: the site's own model and those of its collaborators,
    weighted by their numbers of labels.  BALD is the entropy of q minus the mean entropy of its
    members.  f_per is the site's personalized mixture.  need(c) = (1 - supply of c) · share of c in
    the pool / (labels of c + 1), with mean 1.  The supply of a class is the smoothed recall of the
    collaborators' average on the site's own validation examples, so no label histogram leaves a
    site.  No additional message is sent, because the models are already at the site.

    At a site without collaborators the score is entropy × need with zero supply.  This applies to
    every site under a training algorithm without collaborators.

    Parameters
    ----------
    gamma : float
        Weight of the disagreement.
    temperature : float
        Above 0: draw examples one by one, with probabilities softmax(A / temperature) mixed with a
        tenth of uniform ones.  The ledger then stores the probability of each label and the weight
        (`level_weights`) with which a mean over labels estimates the mean over the pool.

    Notes
    -----
    *Class shares.*  The share of a class in the pool is the mean prediction of f_per after division
    by the prior of the site's labels, with one added to each class.  The priors of collaborators
    also enter f_per and are unknown, because their labels stay with them.

    *Special cases.*  A class without validation examples has the mean supply of the other classes.
    Labels of a class include those held back for validation.  The k-center step starts at the
    example with the best score.

    Examples
    --------
    >>> import fallow as fl
    >>> federation = fl.Federation("iris", fl.IID(), sites=3)
    >>> fl.run(
    ...     federation,
    ...     strategy=fl.Complementary(),
    ...     training="fedavg",
    ...     model="mlp",
    ...     cycles=1,
    ...     rounds=2,
    ... )
    Run(complementary on iris, seed 0: 2 phases, 18 labels, accuracy 0...)
    """

    gamma: NonNegativeFinite = 1.0  # γ, the weight of disagreement
    temperature: NonNegativeFinite = 0.0

    contract: ClassVar[Contract] = Contract(
        title="Complementary querying",
        paper="-",
        year=0,
        needs=("local", "global"),
    )

    def __post_init__(self) -> None:
        check_fields(self)
        if self.temperature > 0:
            contract = Complementary.contract.narrowed(self, draws=True)
            object.__setattr__(self, "contract", contract)

    def query(self, ask: Ask, budget: Budget, memo: Memo) -> Memo:
        ask.keep(self.select, to=label_counts(budget))
        return memo

    @selects()
    def select(self, view: View, n: int) -> SelectedExamples:
        score = self.scores(view)
        if self.temperature > 0:
            order, chance = draw_by_softmax(
                score, n, self.temperature, view.stream("draws")
            )
            return SelectedExamples(order, level_weights(chance, view.pool), chance)
        order = rank_rows(score, view.stream("ties"))
        best = order[score[order].isfinite()][: CANDIDATES * n]
        z, _ = view.look(personal_model(view), view.rows()[best])
        selected = best[k_center(FeatureVectors.of(z), n, first=0)]
        return SelectedExamples(torch.cat([selected, order[len(best) :]])[:n])

    def scores(self, view: View) -> Tensor:
        """Return A of every example of the pool, (m,) float64."""
        rows = view.rows()
        committee = gather_committee(view)
        outputs = [view.forward(w, rows) for w in committee.models]  # (m, C) each
        p = torch.stack([output.double().softmax(1) for output in outputs])
        q, bald = disagreement(p, committee.shares)

        mine = logits(view, "personal")
        labels = count_owned(view)
        wanted = need(class_shares(mine, labels), supply(view, committee), labels)
        return (q @ wanted) * (entropy(mine).double() + self.gamma * bald)


def disagreement(p: Tensor, shares: Tensor) -> tuple[Tensor, Tensor]:
    """Return consensus q (n, c), and BALD (n,): H(q) - sum_j β_j H(p_j), in nats.

    p: (m, n, c) predictions of the members, shares: (m,) β.

    >>> both = torch.tensor([[[1.0, 0.0]], [[0.0, 1.0]]])
    >>> disagreement(both, torch.tensor([0.5, 0.5]))[1]
    tensor([0.6931])
    """
    q = torch.einsum("m,mnc->nc", shares, p)
    entropies = torch.special.entr(p).sum(2)  # (m, n)
    return q, (torch.special.entr(q).sum(1) - shares @ entropies).clamp_min(0)


def supply(view: View, committee: Committee) -> Tensor:
    """Return s(c), (C,), the smoothed recall of the average of the collaborators.

    It is (hits + 1) / (examples + 2) on validation examples of c, or the mean over classes if there
    are none.  It is 0 without collaborators.
    """
    if committee.is_alone:
        return torch.zeros(view.classes, dtype=torch.float64)
    outputs = view.forward(committee.collaborators, view.rows("validation"))  # (v, C)
    is_hit = outputs.argmax(1) == view.validation_labels
    count = torch.bincount(view.validation_labels, minlength=view.classes)
    hits = torch.bincount(view.validation_labels[is_hit], minlength=view.classes)
    recall = (hits.double() + 1) / (count + 2)
    has_rows = count > 0  # (C,)
    known = recall
    if bool(has_rows.any()):
        known = recall[has_rows]
    return torch.where(has_rows, recall, known.mean())


def count_owned(view: View) -> Tensor:
    """Count the labels of each class at the site, (C,) float64."""
    return view.counts + torch.bincount(view.validation_labels, minlength=view.classes)


def class_shares(outputs: Tensor, labels: Tensor) -> Tensor:
    """Return π(c), (C,), the mean prediction after division by the prior of ``labels`` (C,).

    Examples with non-finite predictions are ignored.
    """
    p = outputs.double().softmax(1) / (labels + 1)
    p = p[p.isfinite().all(1)]
    return (p / p.sum(1, keepdim=True)).sum(0) / max(len(p), 1)


def need(shares: Tensor, supplied: Tensor, labels: Tensor) -> Tensor:
    """Return the need for each class, (C,), with mean 1; 1 for every class if none is needed.

    >>> need(torch.tensor([0.5, 0.5]), torch.tensor([0.5, 0.5]), torch.tensor([1.0, 5.0]))
    tensor([1.5000, 0.5000])
    """
    wanted = (1 - supplied) * shares / (labels + 1)
    total = wanted.sum()
    if not bool(total > 0):
        return torch.ones_like(wanted)
    return wanted * len(wanted) / total
