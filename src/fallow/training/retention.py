"""Each site keeps the model that validated best: model selection without the test rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor

from fallow.core.contract import Contract
from fallow.core.methods import Training
from fallow.core.types import Answer
from fallow.core.view import View


@final
@dataclass(frozen=True)
class Retention:
    """After a round a site scores the model that it would deploy on its validation rows, and
    remembers the best so far; of equally good ones the later.

    A site without a validation row keeps the latest.  A model whose outputs are not finite is kept
    only where there was none before.  It is evaluation, so what it sends is not counted among the
    bytes of a run.

    The class runs beside a training method where a recipe holds labels back (``validation``).

    >>> import fallow as fl
    >>> federation = fl.Federation("iris", fl.IID(), sites=3)
    >>> run = fl.run(
    ...     federation, training="fedavg", model="mlp", cycles=0, rounds=3, validation=0.3
    ... )
    >>> int(run.records["labels_validation"].iloc[-1]) > 0
    True
    """

    training: Training

    contract: ClassVar[Contract] = Contract(
        title="Retention of the best model",
        paper="-",
        year=0,
        keep={"best": "nothing"},
    )

    def best(self, view: View, w: Tensor, stats: Tensor, turn: int) -> Answer:
        """w: (d,), stats: (s,) the common model after round ``turn`` -> the model to keep, its
        score and the round that it is from."""
        now = self.training.deploy({"w": w, "stats": stats}, view.memory)
        score = quality(view.outputs(now, view.rows("validation")), view.held)
        before = view.memory.get("best")
        if before is not None and score < float(before["score"]):
            return dict(before)
        return {"w": now["w"], "stats": now["stats"], "score": score, "turn": turn}


def quality(outputs: Tensor, held: Tensor) -> float:
    """Accuracy, or minus the mean squared error where there are numbers to predict; 0 without rows.
    outputs: (v, c), held: (v,)

    >>> quality(torch.tensor([[0.0, 1.0], [0.0, 1.0]]), torch.tensor([1, 0]))
    0.5
    """
    if len(held) == 0:
        return 0.0
    if not bool(outputs.isfinite().all()):
        return -torch.inf
    if held.is_floating_point():
        return -float((outputs.squeeze(1) - held).double().square().mean())
    return float((outputs.argmax(1) == held).double().mean())
