"""Robust aggregation: median, trimmed mean and clipped updates.

References: Yin et al. (2018), Definitions 1 and 2; Sun et al. (2019).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal, final

import torch
from torch import Tensor

from fallow.core import client
from fallow.core.aggregation import cap_weights
from fallow.core.ask import Ask
from fallow.core.contract import Contract
from fallow.core.fit_declarations import FitDeclaration
from fallow.core.limits import Limits, PositiveFloat
from fallow.core.local import Batch, Learner, TrainState
from fallow.core.step_training import StepTraining
from fallow.core.suggestions import explain_constructor, refuse_unused
from fallow.core.types import State, Values
from fallow.core.view import View
from fallow.training.base import (
    model_at_site,
    model_fields,
    own_statistics,
    with_own_statistics,
)

RULES = ("median", "trimmed", "clipped")
LARGEST = 0.5
RATIO = 2.0
"""Maximum weight of a site in a clipped average: share of all, and multiple of the median."""


TRIM = Limits(ge=0, lt=0.5, meaning="the maximum share of malicious sites")


@explain_constructor
@final
@dataclass(frozen=True)
class Robust(StepTraining):
    """Average models so that a few malicious sites cannot dominate the result.

    Parameters
    ----------
    rule : {"median", "trimmed", "clipped"}
        "median": the median over sites of every parameter.  "trimmed": the mean over sites of every
        parameter, without the share ``trim`` of the largest and of the smallest values.  Both give
        all sites the same weight, so no site gains by claiming more examples.  "clipped": w + sum_i
        (n_i / n) Δ_i min(1, clip / ||Δ_i||) with Δ_i = w_i - w.
    trim : float
        Expected share of malicious sites (β).
    clip : float, optional
        Maximum norm of an update, which bounds the change of the weights per round.  None: the
        median of ||Δ_i|| over the sites of the round.
    bn : {"average", "local"}
        Average batch-norm statistics, or keep them at the sites (FedBN).

    Notes
    -----
    *Invalid models.*  A model with non-finite parameters or another shape is ignored by every rule,
    and ``state["refused"]`` contains the number of such sites in the last round.  Sites without
    labels are ignored as well.  Numbers of examples are claimed by the sites; from three sites on,
    the weight of a site is at most twice the median.

    *Limitations.*  More than half of the sites must be honest, or all but the share ``trim`` for
    "trimmed".  Rare data resemble an attack: if only one site holds a class, "median" and "trimmed"
    ignore its update, and with skewed classes they are less accurate than `FedAvg` even without an
    attack.  Attacks that stay within the range of honest updates are not detected, such as
    backdoors trained with small steps, or wrong labels.  The coordinator sees every model, so this
    algorithm cannot be used with secure aggregation.

    *Details.*  The number of trimmed sites at either end is rounded up, and at least one or two
    sites remain.  Yin et al. average gradients over sites with equal numbers of examples; here
    models are averaged after local epochs.  Sun et al. leave the norm to the user; the median of
    norms does not exceed that of an honest site while most sites are honest.  Their weights n_i / n
    assume honest sites; here larger claims are reduced to twice the median, including those of
    sites that do hold more examples.  If one of five sites claims 10^9 examples and sends the
    opposite update, the accuracy with four classes is 0.98; with ten times the median, half of all
    weight, it is 0.00.  Batch-norm statistics are averaged by the same rule, and by the median with
    "clipped".

    References
    ----------
    Yin, Chen, Ramchandran, Bartlett. Byzantine-Robust Distributed Learning: Towards Optimal
    Statistical Rates. ICML 2018.

    Sun, Kairouz, Suresh, McMahan. Can You Really Backdoor Federated Learning? 2019.

    Examples
    --------
    >>> import fallow as fl
    >>> federation = fl.Federation("iris", fl.IID(), sites=3)
    >>> fl.run(
    ...     federation, training=fl.Robust(rule="median"), model="mlp", cycles=0, rounds=5
    ... )
    Run(random on iris, seed 0: 1 phases, 12 labels, accuracy 0...)
    """

    rule: Literal["median", "trimmed", "clipped"] = "median"
    trim: Annotated[float, TRIM] = 0.1  # β, expected share of malicious sites
    clip: PositiveFloat | None = None  # M, maximum norm of an update
    bn: Literal["average", "local"] = "average"

    contract: ClassVar[Contract] = Contract(
        title="Robust averages",
        paper="Byzantine-Robust Distributed Learning: Towards Optimal Statistical Rates",
        year=2018,
        authors="Yin, Dong and Chen, Yudong and Ramchandran, Kannan and Bartlett, Peter",
        secure_sum=False,
        fit=FitDeclaration(kept=("bn",), server=("refused",)),
    )

    def check(self) -> None:
        refuse_unused(self, "trim", switch="rule", used_with=("trimmed",))
        refuse_unused(self, "clip", switch="rule", used_with=("clipped",))

    def round(self, state: State, ask: Ask) -> State:
        before = {name: state[name] for name in ("w", "stats")}
        ask.fit(self.training_config, "local", None, **before)
        replies = ask.each(self.upload)
        in_order = [replies[site] for site in sorted(replies)]
        parts = {name: before[name] for name in self.parts}
        usable = [reply for reply in in_order if is_usable(reply, parts)]
        if in_order and not usable:
            raise ValueError(
                "all models that sites sent to Robust have NaN or infinite numbers: "
                "training diverged; lower the learning rate (lr)"
            )
        refused = torch.tensor(len(in_order) - len(usable))
        return {**before, **self.average_models(usable, parts), "refused": refused}

    @property
    def parts(self) -> tuple[str, ...]:
        """Return the keys of the model that a site sends."""
        return ("w",) if self.bn == "local" else ("w", "stats")

    def average_models(self, sent: Sequence[Values], before: State) -> State:
        """Average by the rule, in the model's precision; ``before`` without labels."""
        learned = [reply for reply in sent if rows_of(reply) > 0]
        if not learned:
            return before
        # (m, d) and (m, s)
        models = {name: stack_replies(learned, name) for name in before}

        drop = len(learned)  # all: the median, also of statistics with clipped updates
        if self.rule == "trimmed":
            # number of sites at either end
            drop = math.ceil(self.trim * len(learned) - 1e-9)
        mean = {name: trimmed_mean(values, drop) for name, values in models.items()}

        if self.rule == "clipped":
            claimed = [rows_of(reply) for reply in learned]
            n = torch.tensor(cap_weights(claimed, LARGEST, RATIO), dtype=torch.float64)
            w = before["w"].double()
            mean["w"] = w + clipped_mean(models["w"] - w, n, self.clip)
        return {name: value.to(before[name].dtype) for name, value in mean.items()}

    @client.each(
        "each site's model and its number of examples",
        returns=model_fields,
    )
    def upload(self, view: View) -> Values:
        own = view.memory["local"]
        reply: Values = {"n": float(len(view.labels))}
        for name in self.parts:
            reply[name] = own[name]
        return reply

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
    """Return the mean of every column without the ``drop`` largest and smallest values.

    If no value would remain, return the median.  (m, d) -> (d,)

    >>> sent = torch.tensor([[0.0], [1.0], [2.0], [4.0], [99.0]])
    >>> trimmed_mean(sent, 1), trimmed_mean(sent, 5), trimmed_mean(sent[:4], 5)
    (tensor([2.3333]), tensor([2.]), tensor([1.5000]))
    """
    m = len(values)
    drop = min(drop, (m - 1) // 2)
    return values.sort(0).values[drop : m - drop].mean(0)


def clipped_mean(moved: Tensor, n: Tensor, limit: float | None) -> Tensor:
    """Return the weighted mean of updates clipped to the norm ``limit``.

    None: the median norm.  (m, d), (m,) -> (d,)

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
    if limit is not None:
        bound = torch.tensor(limit)
    tiny = torch.finfo(length.dtype).tiny  # an update of norm 0 is unchanged
    shorter = (bound / length.clamp_min(tiny)).clamp_max(1)
    mean: Tensor = (n / n.sum() * shorter) @ moved
    return mean


def is_usable(reply: Values, before: State) -> bool:
    """Return whether a reply contains a finite model of the right shape and a finite weight."""
    if not reply.keys() >= before.keys() or not 0 <= rows_of(reply) < math.inf:
        return False
    for name, expected in before.items():
        sent = torch.as_tensor(reply[name])
        if sent.shape != expected.shape or not bool(sent.isfinite().all()):
            return False
    return True


def rows_of(reply: Values) -> float:
    """Return the number of labeled examples that a site claims; NaN if missing."""
    return float(torch.as_tensor(reply.get("n", math.nan)))


def stack_replies(replies: Sequence[Values], name: str) -> Tensor:
    """Stack the tensors of all replies under a name, (m, d) float64."""
    return torch.stack([torch.as_tensor(reply[name]).double() for reply in replies])
