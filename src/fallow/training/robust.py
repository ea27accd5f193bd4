"""Averages that a few bad sites cannot move far: median and trimmed mean of every number (Yin et
al., 2018, Definitions 1 and 2), and updates clipped by their norm (Sun et al., 2019)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, final

import torch
from torch import Tensor

from fallow.core.ask import Ask
from fallow.core.contract import Contract
from fallow.core.local import Batch, Learner, TrainState
from fallow.core.step_training import StepTraining
from fallow.core.terms import explain_constructor
from fallow.core.types import Answer, State
from fallow.core.view import View
from fallow.core.weights import cap_weights
from fallow.training.base import model_at_site, own_statistics, with_own_statistics

RULES = ("median", "trimmed", "clipped")
LARGEST = 0.5
RATIO = 2.0
"""A site weighs in a clipped average at most this share of all, and so many times the median
site."""


@explain_constructor
@final
@dataclass(frozen=True)
class Robust(StepTraining):
    """FedAvg's round with an average that stands a few sites which send anything at all.

    ``median``: of every number the median over sites.  ``trimmed``: of every number the mean over
    sites without the share ``trim`` of the largest and of the smallest.  In both every site counts
    the same, so that nobody gains by claiming rows.  ``clipped``: w + sum_i (n_i / n) Δ_i min(1,
    clip / ||Δ_i||) with Δ_i = w_i - w, so that a round moves the weights by ``clip`` at most;
    without a number it is the median of ||Δ_i|| over the sites of the round.  Rows are what a site
    claims, so none counts more of them than twice the median site has, from three sites on.

    A model with a number that is not finite, or of another shape, is kept out whatever the rule,
    and ``state["refused"]`` counts such sites of the last round.  A site without labels is left
    out: it has learned nothing.

    *What it cannot do.*  More than half of the sites have to be honest, for ``trimmed`` all but the
    share ``trim``.  Rare data look like an attack: where one site alone holds a class, ``median``
    and ``trimmed`` drop what it learned, and with skewed classes they stay behind FedAvg without any
    attacker.  A site that stays inside the crowd, such as a back door trained with small steps, or
    one that lies about its labels, is not noticed.  And the server sees every model, so it is
    refused under secure sums.

    >>> import fallow as fl
    >>> federation = fl.Federation("iris", fl.IID(), sites=3)
    >>> fl.run(
    ...     federation, training=fl.Robust(rule="median"), model="mlp", cycles=0, rounds=5
    ... )
    Run(random on iris, seed 0: 1 phases, 12 labels, accuracy 0...)

    Notes
    -----
    The share trimmed at either end is rounded up to whole sites, and one or two sites are always
    left.  Yin et al. average gradients over sites with equally many rows; here models are averaged,
    after local epochs.  Sun et al. leave the norm to the user; a median of norms is no larger than
    an honest site's while most sites are honest.  Their weights n_i / n are those of honest sites;
    here larger claims are cut to twice the median, also those of a site that truly has more.  Where
    one of five sites claims 10^9 rows and sends the opposite update, four classes are told apart
    with an accuracy of 0.98; with ten times the median, so half of all weight, with 0.00.
    Batch-norm statistics are averaged by the same rule; where updates are clipped, by their median.
    """

    rule: Literal["median", "trimmed", "clipped"] = "median"
    trim: float = 0.1  # β, the share of bad sites that is expected
    clip: float | None = None  # M, the largest norm of an update
    bn: Literal["average", "local"] = "average"

    contract: ClassVar[Contract] = Contract(
        title="Robust averages",
        paper="Byzantine-Robust Distributed Learning: Towards Optimal Statistical Rates",
        year=2018,
        authors="Yin, Dong and Chen, Yudong and Ramchandran, Kannan and Bartlett, Peter",
        each={"upload": "each site's model and its number of rows"},
        secure_sum=False,
        at_server=("refused",),
    )

    def check(self) -> None:
        if self.rule not in RULES:
            raise ValueError(
                f"Robust's rule is {self.rule!r}; use one of {', '.join(RULES)}"
            )
        if not 0 <= self.trim < 0.5:
            raise ValueError(
                f"Robust's trim is {self.trim}; it is the share of sites that may be bad, at least "
                "0 and below 0.5"
            )
        if self.clip is not None and not self.clip > 0:
            raise ValueError(f"Robust's clip is {self.clip}; it must be above 0, or none")

    def round(self, state: State, ask: Ask) -> State:
        before = {name: state[name] for name in ("w", "stats")}
        ask.fit(self.training_config, "local", None, **before)
        answers = ask.each("upload")
        in_order = [answers[site] for site in sorted(answers)]
        parts = {name: before[name] for name in self.parts}
        usable = [answer for answer in in_order if is_usable(answer, parts)]
        if in_order and not usable:
            raise ValueError(
                "no site sent Robust a model without NaN or infinite numbers: training diverged; "
                "lower the learning rate (lr)"
            )
        refused = torch.tensor(len(in_order) - len(usable))
        return {**before, **self.average_models(usable, parts), "refused": refused}

    @property
    def parts(self) -> tuple[str, ...]:
        """What a site sends of its model."""
        return ("w",) if self.bn == "local" else ("w", "stats")

    def average_models(self, sent: Sequence[Answer], before: State) -> State:
        """The average by the rule, in the model's precision; ``before`` where nobody has labels."""
        learned = [answer for answer in sent if rows_of(answer) > 0]
        if not learned:
            return before
        models = {
            name: stack_answers(learned, name) for name in before
        }  # (m, d) and (m, s)

        drop = len(
            learned
        )  # all: the median, also of the statistics where updates are clipped
        if self.rule == "trimmed":
            drop = math.ceil(self.trim * len(learned) - 1e-9)  # whole sites, at either end
        mean = {name: trimmed_mean(values, drop) for name, values in models.items()}

        if self.rule == "clipped":
            claimed = [rows_of(answer) for answer in learned]
            n = torch.tensor(cap_weights(claimed, LARGEST, RATIO), dtype=torch.float64)
            w = before["w"].double()
            mean["w"] = w + clipped_mean(models["w"] - w, n, self.clip)
        return {name: value.to(before[name].dtype) for name, value in mean.items()}

    def upload(self, view: View) -> Answer:
        own = view.memory["local"]
        answer: Answer = {"n": float(len(view.labels))}
        for name in self.parts:
            answer[name] = own[name]
        return answer

    def deploy(self, state: State, memory: Mapping[str, State]) -> State:
        return model_at_site(state, memory)

    def start(self, w: TrainState, own: dict[str, TrainState]) -> dict[str, TrainState]:
        return {"w": with_own_statistics(w, own)}

    def step(
        self, s: dict[str, TrainState], w_t: TrainState, b: Batch, learn: Learner
    ) -> dict[str, TrainState]:
        return {"w": learn.descend(s["w"], b)}

    def finish(self, s: dict[str, TrainState]) -> tuple[TrainState, dict[str, TrainState]]:
        return s["w"], own_statistics(s["w"], self.bn)


def trimmed_mean(values: Tensor, drop: int) -> Tensor:
    """Of every column the mean without the ``drop`` largest and smallest; the median where these
    would be all.  (m, d) -> (d,)

    >>> sent = torch.tensor([[0.0], [1.0], [2.0], [4.0], [99.0]])
    >>> trimmed_mean(sent, 1), trimmed_mean(sent, 5), trimmed_mean(sent[:4], 5)
    (tensor([2.3333]), tensor([2.]), tensor([1.5000]))
    """
    m = len(values)
    drop = min(drop, (m - 1) // 2)
    return values.sort(0).values[drop : m - drop].mean(0)


def clipped_mean(moved: Tensor, n: Tensor, most: float | None) -> Tensor:
    """The mean of updates, weighted by rows, none of them longer than ``most`` (the median length
    where that is None).  (m, d), (m,) -> (d,)

    >>> moved, n = torch.tensor([[3.0, 4.0], [0.0, 1.0]]), torch.tensor([1.0, 1.0])
    >>> (
    ...     clipped_mean(moved, n, 1.0),
    ...     clipped_mean(moved, n, None),
    ...     clipped_mean(moved, n, 9.0),
    ... )
    (tensor([0.3000, 0.9000]), tensor([0.9000, 1.7000]), tensor([1.5000, 2.5000]))
    """
    length = moved.norm(dim=1)  # (m,)
    bound = trimmed_mean(length[:, None], len(length))  # the median, (1,)
    if most is not None:
        bound = torch.tensor(most)
    tiny = torch.finfo(length.dtype).tiny  # an update of length 0 stays as it is
    shorter = (bound / length.clamp_min(tiny)).clamp_max(1)
    mean: Tensor = (n / n.sum() * shorter) @ moved
    return mean


def is_usable(answer: Answer, before: State) -> bool:
    """Whether a site sent a model of the right shape and a number of rows, all of them finite."""
    if not answer.keys() >= before.keys() or not 0 <= rows_of(answer) < math.inf:
        return False
    for name, expected in before.items():
        sent = torch.as_tensor(answer[name])
        if sent.shape != expected.shape or not bool(sent.isfinite().all()):
            return False
    return True


def rows_of(answer: Answer) -> float:
    """How many labeled rows a site claims; NaN where it says nothing."""
    return float(torch.as_tensor(answer.get("n", math.nan)))


def stack_answers(answers: Sequence[Answer], name: str) -> Tensor:
    """What every site sent under a name, (m, d) float64."""
    return torch.stack([torch.as_tensor(answer[name]).double() for answer in answers])
