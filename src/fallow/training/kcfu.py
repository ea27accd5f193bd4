"""KCFU, the local update of KAFAL (Cao et al., 2023), which preserves rare classes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, final

from torch import Tensor

from fallow.core.ask import Ask
from fallow.core.contract import Contract
from fallow.core.fit_declarations import Fit, FitDeclaration
from fallow.core.local import Batch, Learner, TrainState, weighted_mean
from fallow.core.step_training import StepTraining
from fallow.core.suggestions import explain_constructor
from fallow.core.training_config import TrainingConfig
from fallow.core.types import State, Values
from fallow.core.view import View
from fallow.training.base import (
    average,
    contribution,
    model_at_site,
    own_statistics,
    uploads,
    with_own_statistics,
)

SHARES = 2.0  # examples are mixed with weights from Beta(2, 2)


@explain_constructor
@final
@dataclass(frozen=True)
class KCFU(StepTraining):
    """Train with a balanced softmax and knowledge distillation from the global model.

    The balanced softmax applies to labeled examples.  From the second round on, mixed examples of
    the unlabeled pool distill the global model, with larger weights for classes with few labels at
    the site.

    Parameters
    ----------
    bn : {"average", "local"}
        Average batch-norm statistics, or keep them at the sites (FedBN).

    Notes
    -----
    As in the published code, and unlike the text of the paper, a class without labels at the site
    has compensation weight 0.  Each example of a batch is mixed with another one; KAFAL's code
    draws one partner for the whole batch.  The teacher is the global model in evaluation mode; in
    KAFAL's code it is in training mode, so its statistics change.  With ``bn="local"`` the teacher
    uses the site's own statistics.  The student's forward passes over mixed and labeled examples
    both update its batch-norm statistics.  Weights of labels enter the first loss only.  If images
    are augmented in training, those of the pool are augmented too.  Without a pool, the second loss
    is omitted.  Predictions are not adjusted by class counts.

    References
    ----------
    Cao, Shi, Yu, Wang, Tao. Knowledge-Aware Federated Active Learning with Non-IID Data. 2023.

    Examples
    --------
    >>> import fallow as fl
    >>> federation = fl.Federation("iris", fl.IID(), sites=3)
    >>> fl.run(federation, training=fl.KCFU(), model="mlp", cycles=0, rounds=5)
    Run(random on iris, seed 0: 1 phases, 12 labels, accuracy 0...)
    """

    bn: Literal["average", "local"] = "average"

    contract: ClassVar[Contract] = Contract(
        title="KCFU (KAFAL)",
        paper="Knowledge-Aware Federated Active Learning with Non-IID Data",
        year=2023,
        authors="Cao, Yu-Tong and Shi, Ye and "
        "Yu, Baosheng and Wang, Jingya and Tao, Dacheng",
        regression=False,
        fit=FitDeclaration(
            {"local": Fit(by=lambda training, _: (training.mixed_config,))}, kept=("bn",)
        ),
    )

    @property
    def mixed_config(self) -> TrainingConfig:
        """Return the training configuration with mixup of unlabeled examples."""
        return replace(self.training_config, mix=SHARES)

    def round(self, state: State, ask: Ask) -> State:
        ask.fit(self.mixed_config, "local", None, **state)
        return average(ask.sum(self.upload), state)

    @uploads
    def upload(self, view: View) -> Values:
        return contribution(view, self.bn)

    def deploy(self, state: State, memory: Mapping[str, State]) -> State:
        return model_at_site(state, memory)

    def start(self, w: TrainState, own: dict[str, TrainState]) -> dict[str, TrainState]:
        w = with_own_statistics(w, own)
        return {"w": w, "teacher": w}

    def step(
        self, s: dict[str, TrainState], w_t: TrainState, b: Batch, learn: Learner
    ) -> dict[str, TrainState]:
        counts = b.counts

        def on_labels(forward: Callable[[Tensor], Tensor]) -> Tensor:
            return balanced_loss(forward(b.x), counts, b)

        has_pool = b.u.numel() > 0
        if b.round == 0 or not has_pool:
            return {**s, "w": learn.descend(s["w"], b, objective=on_labels)}

        u = mix_rows(b)  # (..., b, *shape)
        teacher = learn.predict(s["teacher"], u)  # logits (..., b, C)
        omega = compensation(teacher.argmax(-1), counts, b)

        def on_labels_and_pool(forward: Callable[[Tensor], Tensor]) -> Tensor:
            first = on_labels(forward)
            return first + weighted_mean(omega * divergence(teacher, forward(u)), b.pool)

        return {**s, "w": learn.descend(s["w"], b, objective=on_labels_and_pool)}

    def finish(self, s: dict[str, TrainState]) -> tuple[TrainState, dict[str, TrainState]]:
        return s["w"], own_statistics(s["w"], self.bn)


def balanced_loss(outputs: Tensor, counts: Tensor, b: Batch) -> Tensor:
    """Return the cross-entropy of outputs + log n_c, which removes classes without labels.

    outputs: (..., b, C), counts: (..., C) -> (...)
    """
    log_p = (outputs + counts.log().unsqueeze(-2)).log_softmax(-1)
    log_p_label = log_p.gather(-1, b.y.unsqueeze(-1)).squeeze(-1)  # (..., b)
    return weighted_mean(-log_p_label, b.weight)


def mix_rows(b: Batch) -> Tensor:
    """Mix each example of the pool with its partner: β u + (1 - β) u[mate].  -> (..., b, *shape)"""
    dimension = b.mate.ndim - 1  # dimension of the examples in u
    one_each = b.mate.shape + (1,) * (b.u.ndim - b.mate.ndim)
    partner = b.u.gather(dimension, b.mate.view(one_each).expand_as(b.u))
    return partner.lerp(b.u, b.beta.view(one_each))


def compensation(guess: Tensor, counts: Tensor, b: Batch) -> Tensor:
    """Return ω of each mixed example, which is larger for classes that are rare at the site.

    guess: (..., b) classes that the teacher predicts for the example and its partner -> (..., b)
    """
    has_labels = counts > 0  # a class without labels has rarity 0, as in the published code
    rarity = has_labels * counts.sum(-1, keepdim=True) / (counts + 1e-6)
    shares = rarity / rarity.sum(-1, keepdim=True)  # (..., C)
    r = shares.gather(-1, guess)
    return b.beta * r + (1 - b.beta) * r.gather(-1, b.mate)


def divergence(teacher: Tensor, student: Tensor) -> Tensor:
    """Return the KL divergence from teacher to student, as a mean over classes.

    Logits (..., b, C), (..., b, C) -> (..., b)
    """
    log_t = teacher.log_softmax(-1)
    log_s = student.log_softmax(-1)
    return (log_t.exp() * (log_t - log_s)).mean(-1)
