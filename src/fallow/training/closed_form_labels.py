"""Closed-form linear models of several labels per example, one for each label.

Binary relevance (Boutell et al., 2004) with ridge regression: sites send, for each label, the
products of the examples whose answer is known.  The server side solves for each label on its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar, NamedTuple, final

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from fallow.core import client
from fallow.core.ask import Ask, sum_of_all
from fallow.core.composites import LabelProducts
from fallow.core.contract import Contract
from fallow.core.fit_declarations import STORED, FitDeclaration
from fallow.core.limits import PositiveFinite, check_fields
from fallow.core.multilabel import UNKNOWN, read_digits
from fallow.core.suggestions import explain_constructor
from fallow.core.training_config import TrainingConfig
from fallow.core.types import State, Values
from fallow.core.values import Real, Share
from fallow.core.view import View
from fallow.training.parts.closed_form import (
    EVEN,
    FEW_A_CLASS,
    LOSSES,
    MISSING,
    PARTS_SHOW,
    SETTINGS,
    STRONGEST,
    FeatureRows,
    check_linear_model,
    feature_width,
    flatten_head,
    limit_penalties,
    penalties_of,
)
from fallow.training.parts.ridge import (
    MOST_AWAY,
    TEMPERATURES,
    LinearHead,
    Path,
    Rows,
    add_up,
    centered,
    decompose,
    freedom,
    head_of,
    log_losses,
    predict,
    row_blocks,
    validation_score,
)

BOTH = 2
"""Answers to a label: absent and present."""


class KnownAnswers(NamedTuple):
    """Labeled examples of a site: z (n, D), y (n, L) of 0 and 1, and weights s (n, L).

    The weight of an answer is 1, and that of an unknown one 0.
    """

    z: Rows
    y: Tensor
    s: Tensor


class LabelSolution(NamedTuple):
    """Solution of one label: weight (D,), bias () and the mean leverage of its examples."""

    weight: Tensor
    bias: Tensor
    leverage: Tensor


@explain_constructor
@final
@dataclass(frozen=True)
class ClosedFormLabels:
    """Solve for one linear model per label in closed form (ridge regression).

    It is for data with several labels per example.  The model of a label minimizes
    Σ (y - w'z - b)² + λ n |w|² over the n examples of all sites whose answer to it is known, where
    y is 0 or 1.  The probability is the logistic function of T (2 (w'z + b) - 1).

    Parameters
    ----------
    penalty : float, optional
        Ridge penalty λ.  None: selected for each label from 1e-6 to 1, and from 1e-6 to 0.3 / n with
        fewer than 20 answers.

    Notes
    -----
    λ is selected by generalized cross-validation from the aggregates, and T by predictions that leave
    an example out with the mean leverage.  Sites receive the model alone.  A label with equal answers
    everywhere has the probability (m + 1/2) / (n + 1), where m of n are 1.

    *Disclosure.*  As with `ClosedForm`, the product of a single example reveals it, and products are
    sent for each label: examples whose answers to two labels differ in being known are in one of two
    sums.

    References
    ----------
    Boutell, Luo, Shen, Brown. Learning Multi-Label Scene Classification. 2004.

    Examples
    --------
    >>> import fallow as fl
    >>> x = [[k / 40, k % 2] for k in range(40)]
    >>> y = [[int(k > 20), k % 2] for k in range(40)]
    >>> data = fl.from_arrays(x, y, labels=["late", "odd"], name="toy")
    >>> few = {"sites": 2, "initial": 8, "cycles": 0}
    >>> fl.run(data, training=fl.ClosedFormLabels(), encoder=None, **few)
    Run(random on toy, seed 0: 1 phases, 16 labels, accuracy ...)
    """

    training_config: TrainingConfig = field(
        default=TrainingConfig(), init=False, repr=False
    )
    penalty: PositiveFinite | None = None  # λ

    contract: ClassVar[Contract] = Contract(
        title="Closed-form heads of several labels",
        paper="Learning Multi-Label Scene Classification",
        year=2004,
        authors="Boutell, Matthew R. and Luo, Jiebo and Shen, Xipeng and Brown, Christopher M.",
        short="closed-form-labels",
        missing=MISSING,
        regression=False,
        classes=False,
        multilabel=True,
        model="linear",
        local_dp=False,
        weighs=False,  # no query strategy for several labels assigns weights
        settings=SETTINGS,
        fit=FitDeclaration({"local": STORED}, server=("left_out",)),
        tags=("least-squares",),
    )

    def __post_init__(self) -> None:
        check_fields(self)

    # -- server side ------------------------------------------------------------------------

    def round(self, state: State, ask: Ask) -> State:
        totals = sum_of_all(ask, self.totals)
        solutions = [self.solve(of_label) for of_label in split_labels(totals)]
        head = LinearHead(
            torch.stack([solution.weight for solution in solutions], dim=1),
            torch.stack([solution.bias for solution in solutions]),
        )
        leverages = torch.stack([solution.leverage for solution in solutions])
        lost = sum_of_all(ask, self.fitted, None, **head._asdict(), leverage=leverages)
        hottest = torch.tensor(TEMPERATURES, dtype=torch.float64)
        temperatures = hottest[lost["log"].argmin(1)]  # (L,)
        w = flatten_head(calibrate(head, temperatures, totals), 1.0)
        total = float(totals["n"].sum())
        right = float(lost["right"].sum()) / max(total, EVEN)
        state = {
            **state,
            "w": w.to(state["w"].dtype),
            "left_out": torch.tensor(right, dtype=torch.float64),
        }
        ask.fit(None, "local", None, w=state["w"], stats=state["stats"])
        return state

    def solve(self, totals: Mapping[str, Tensor]) -> LabelSolution:
        """Return the solution of one label, with λ of the best score."""
        path = decompose(centered(totals))
        rows = int(totals["rows"])
        penalties = penalties_of(self.penalty)
        penalty = penalties[len(penalties) // 2]
        if rows >= BOTH:
            if self.penalty is None and rows < BOTH * FEW_A_CLASS:
                penalties = limit_penalties(penalties, STRONGEST / rows)
            squares = find_spread(path)
            scores = [validation_score(path, item, squares, rows) for item in penalties]
            penalty = penalties[scores.index(min(scores))]
        head = head_of(path, penalty)
        limit = 1 - 1 / max(rows, BOTH)
        leverage = (freedom(path, penalty) / max(rows, 1)).clamp_max(limit)
        return LabelSolution(head.weight[:, 0], head.bias[0], leverage)

    # -- client side --------------------------------------------------------------------------

    @client.sum(
        "aggregates of products of the labeled examples with a known answer, for each label",
        returns=LabelProducts(),
        reveals_parts=PARTS_SHOW,
    )
    def totals(self, view: View) -> Values:
        rows = self.labeled(view)
        if bool(rows.s.all()):  # the products of all labels are equal
            shared = add_up(rows.z, rows.y, rows.s[:, 0])
            of_labels = [take_label(shared, label) for label in range(view.n_labels)]
        else:
            of_labels = [
                add_up(rows.z, rows.y[:, [label]], rows.s[:, label])
                for label in range(view.n_labels)
            ]
        return {
            "n": rows.s.sum(0),
            "rows": rows.s.sum(0),
            "features": torch.stack([part["features"] for part in of_labels]),
            "targets": torch.cat([part["targets"] for part in of_labels]),
            "products": torch.stack([part["products"] for part in of_labels]),
            "cross": torch.stack([part["cross"][:, 0] for part in of_labels]),
        }

    @client.sum(
        "aggregates of losses on labeled examples, for each label",
        returns=replace(LOSSES, dims="outputs", are_labels=True),
        takes={
            "weight": Real(("features", "outputs")),
            "bias": Real("outputs"),
            "leverage": Share("outputs"),
        },
    )
    def fitted(self, view: View, weight: Tensor, bias: Tensor, leverage: Tensor) -> Values:
        """Return the losses of the solutions, with the mean leverage for every example."""
        rows = self.labeled(view)
        shape = (view.n_labels,)
        squared = torch.zeros(shape, dtype=torch.float64)
        right = torch.zeros(shape, dtype=torch.float64)
        log = torch.zeros(*shape, len(TEMPERATURES), dtype=torch.float64)
        head = LinearHead(weight, bias)
        for z, y, s in row_blocks(rows.z, rows.y, rows.s):
            away = (y - predict(z, head)) / (1 - leverage)
            outputs = y - away.clamp(-MOST_AWAY, MOST_AWAY)  # (m, L)
            squared += (s * (y - outputs).square()).sum(0)
            right += (s * ((outputs > 1 / 2) == (y > 1 / 2))).sum(0)
            both = torch.stack([1 - outputs, outputs], dim=2)  # (m, L, 2)
            truth = one_hot(y.long(), BOTH).double()
            for label in range(view.n_labels):
                log[label] += log_losses(both[:, label], truth[:, label], s[:, label])
        return {"squared": squared, "right": right, "log": log}

    def labeled(self, view: View) -> KnownAnswers:
        """Return the labeled examples as features, which are read on demand."""
        check_linear_model(view)
        digits = read_digits(view.labels, view.n_labels)
        is_known = digits != UNKNOWN
        z = FeatureRows(view, "labeled", feature_width(view))
        y = digits.masked_fill(~is_known, 0).double()
        return KnownAnswers(z, y, is_known.double())

    def deploy(self, state: State, memory: Mapping[str, State]) -> State:
        return {"w": state["w"], "stats": state["stats"]}


def take_label(shared: Mapping[str, Tensor], label: int) -> dict[str, Tensor]:
    """Return the aggregates of one label from those of all, whose examples are the same."""
    return {
        "features": shared["features"],
        "targets": shared["targets"][[label]],
        "products": shared["products"],
        "cross": shared["cross"][:, [label]],
    }


def split_labels(totals: Mapping[str, Tensor]) -> list[dict[str, Tensor]]:
    """Return the aggregates of each label, in the form of `ridge.add_up`."""
    return [
        {
            "n": totals["n"][label],
            "rows": totals["rows"][label].round(),
            "features": totals["features"][label],
            "targets": totals["targets"][[label]],
            "products": totals["products"][label],
            "cross": totals["cross"][label][:, None],
        }
        for label in range(len(totals["n"]))
    ]


def find_spread(path: Path) -> float:
    """Return Σ (y - ȳ)² of targets that are 0 or 1, where y² = y."""
    return float(path.mass * (path.y * (1 - path.y)).sum())


def calibrate(
    head: LinearHead, temperatures: Tensor, totals: Mapping[str, Tensor]
) -> LinearHead:
    """Return the model with log-odds T (2 output - 1), or constant ones of equal answers.

    temperatures: (L,); totals: those of the labels, for the numbers of answers.
    """
    weight = 2 * temperatures * head.weight
    bias = temperatures * (2 * head.bias - 1)
    present = totals["targets"]
    absent = totals["n"] - present
    is_constant = (present < EVEN) | (absent < EVEN)
    odds = (present.clamp_min(0) + 1 / 2) / (absent.clamp_min(0) + 1 / 2)
    return LinearHead(
        weight.masked_fill(is_constant, 0.0), torch.where(is_constant, odds.log(), bias)
    )
