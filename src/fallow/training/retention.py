"""Model selection at each site by validation examples, without test examples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor

from fallow.core import client
from fallow.core.contract import Contract
from fallow.core.methods import TrainingAlgorithm
from fallow.core.types import Values
from fallow.core.values import Model, Statistics, Whole
from fallow.core.view import View


@final
@dataclass(frozen=True)
class Retention:
    """Keep the model of each site with the best validation score.

    After each round, a site evaluates the model that it would deploy on its validation examples and
    keeps the best one so far.  Ties keep the later model.

    A site without validation examples keeps the latest model.  A model with non-finite outputs is
    kept only if there was none before.  This is evaluation, so its messages do not count towards
    the bytes of a run.

    The class runs with a training algorithm if the experiment configuration holds labels back
    (``validation``).

    >>> import fallow as fl
    >>> federation = fl.Federation("iris", fl.IID(), sites=3)
    >>> run = fl.run(
    ...     federation, training="fedavg", model="mlp", cycles=0, rounds=3, validation=0.3
    ... )
    >>> int(run.records["labels_validation"].iloc[-1]) > 0
    True
    """

    training: TrainingAlgorithm

    contract: ClassVar[Contract] = Contract(
        title="Retention of the best model",
        paper="-",
        year=0,
    )

    @client.keep("nothing", takes={"w": Model(), "stats": Statistics(), "turn": Whole()})
    def best(self, view: View, w: Tensor, stats: Tensor, turn: int) -> Values:
        """Return the model to keep, its score and its round.

        w: (d,), stats: (s,) the global model after round ``turn``.
        """
        now = self.training.deploy({"w": w, "stats": stats}, view.memory)
        score = quality(view.outputs(now, view.rows("validation")), view.validation_labels)
        before = view.memory.get("best")
        if before is not None and score < float(before["score"]):
            return dict(before)
        return {"w": now["w"], "stats": now["stats"], "score": score, "turn": turn}


def quality(outputs: Tensor, labels: Tensor) -> float:
    """Return the accuracy, or minus the mean squared error for regression; 0 without examples.

    outputs: (v, c), labels: (v,)

    >>> quality(torch.tensor([[0.0, 1.0], [0.0, 1.0]]), torch.tensor([1, 0]))
    0.5
    """
    if len(labels) == 0:
        return 0.0
    if not bool(outputs.isfinite().all()):
        return -torch.inf
    if labels.is_floating_point():
        return -float((outputs.squeeze(1) - labels).double().square().mean())
    return float((outputs.argmax(1) == labels).double().mean())
