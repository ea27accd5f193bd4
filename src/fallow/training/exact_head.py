"""Closed-form solution for the last layer of a trained model: ``head="exact"``.

Training with non-IID sites affects the last layer most.  With a fixed body, the last layer that
fits the labeled examples of all sites best is known in closed form.

Related work: CCVR (Luo et al., NeurIPS 2021) calibrates the last layer after training with samples
from class statistics.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor

from fallow.core import client
from fallow.core.ask import Ask, sum_of_all
from fallow.core.composites import Products
from fallow.core.contract import Contract
from fallow.core.fit_declarations import STORED, FitDeclaration
from fallow.core.types import State, Values
from fallow.core.values import Count, NonNegative, Real
from fallow.core.view import Rows, View
from fallow.training.parts.closed_form import (
    AT_SERVER,
    LEFT_OUT,
    LOSSES,
    MISSING,
    PATH_SHOWS,
    Labeled,
    choose_left_out,
    flatten_head,
    labeled_rows,
    losses_of,
    note_choice,
    path_kinds,
    penalties_of,
    read_totals,
    totals_of,
)
from fallow.training.parts.ridge import BLOCK, LinearHead, Path, decompose, head_of

MAX_FEATURES = 8192  # maximum number of features: their products take 0.5 GB
TINY = 1e-12  # a feature with a smaller relative variation is constant


@final
@dataclass(frozen=True)
class ExactHead:
    """Replace the last layer of a trained model by the closed-form solution.

    The last layer W, b minimizes Σ s |y - W'z - b|² + λ n |W|².  z are the outputs of the body,
    divided by their standard deviation over all examples of all sites and by the square root of D.
    The solution is computed once, after the last round of a phase; body and batch-norm statistics
    are unchanged.  λ and a temperature are selected by leave-one-out cross-validation, as in
    `ClosedForm`.

    Notes
    -----
    The body changes between phases, so the scale of its outputs is computed in every phase.

    Examples
    --------
    >>> import fallow as fl
    >>> federation = fl.Federation(fl.load("digits"), fl.Dirichlet(alpha=0.05), sites=4)
    >>> run = fl.run(
    ...     federation,
    ...     "margin",
    ...     training="fedavg",
    ...     model=fl.MLP(),
    ...     cycles=0,
    ...     rounds=5,
    ...     head="exact",
    ... )
    >>> "left_out" in run.records.columns
    True
    """

    contract: ClassVar[Contract] = Contract(
        title="Exact head",
        missing=MISSING,
        regression=True,
        local_dp=False,
        sites_see=PATH_SHOWS,
        fit=FitDeclaration({"body": STORED}, server=AT_SERVER),
    )

    # -- server side ------------------------------------------------------------------------

    def solve(self, state: State, ask: Ask) -> State:
        """Return the state with the new last layer; unchanged if no site has a label."""
        ask.fit(None, "body", None, w=state["w"], stats=state["stats"])
        mean, unit = self.units(ask)
        total = read_totals(sum_of_all(ask, self.totals, mean=mean, unit=unit))
        if float(total.totals.mass) == 0:
            return state

        path = decompose(total.totals)
        choice = choose_left_out(
            ask, self.left_out, path, total, None, mean=mean, unit=unit
        )
        head = in_features(head_of(path, choice.penalty), mean, unit)
        last = flatten_head(head, choice.temperature).to(state["w"].dtype)
        w = torch.cat([state["w"][: -len(last)], last])
        return {**state, "w": w, **note_choice(choice)}

    def units(self, ask: Ask) -> tuple[Tensor, Tensor]:
        """Return mean (D,) and scale (D,) of each feature over all examples.

        The scale is 1 / (standard deviation · √D), and 0 for a constant feature.
        """
        total = sum_of_all(ask, self.columns)
        mean = total["columns"] / total["rows"]
        squares = sum_of_all(ask, self.spread, mean=mean)["squares"] / total["rows"]
        is_constant = squares <= (TINY * mean).square()
        unit = (len(mean) * squares).rsqrt()
        return mean, torch.where(is_constant, 0.0, unit)

    # -- client side --------------------------------------------------------------------------

    @client.sum(
        "aggregates of numbers of examples and of each feature of the body",
        returns={"rows": Count(of="rows"), "columns": Real("features")},
    )
    def columns(self, view: View) -> Values:
        n_rows = 0
        total: Tensor | float = 0.0
        for z in self.features(view):
            n_rows += len(z)
            total = total + z.sum(0)
        return {"rows": float(n_rows), "columns": total}

    @client.sum(
        "aggregates of squares of each feature of the body",
        returns={"squares": NonNegative("features")},
        takes={"mean": Real("features")},
    )
    def spread(self, view: View, mean: Tensor) -> Values:
        squares = torch.zeros_like(mean)
        for z in self.features(view):
            squares += (z - mean).square().sum(0)
        return {"squares": squares}

    @client.sum(
        "aggregates of products of labeled features and labels",
        returns=Products(),
        takes={"mean": Real("features"), "unit": NonNegative("features")},
        reveals_parts="the coordinator sees the products of each site's labeled "
        "features: those of a single example are its features with its "
        "label",
    )
    def totals(self, view: View, mean: Tensor, unit: Tensor) -> Values:
        return totals_of(self.labeled(view, mean, unit))

    @client.sum(
        LEFT_OUT,
        returns=LOSSES,
        takes={"mean": Real("features"), "unit": NonNegative("features")} | path_kinds(),
    )
    def left_out(self, view: View, mean: Tensor, unit: Tensor, **path: Tensor) -> Values:
        """Return the leave-one-out losses of the solutions of the ``path``."""
        rows = self.labeled(view, mean, unit)
        penalties = penalties_of(None)
        return losses_of(rows, Path(**path), penalties, is_class=view.classes > 0)

    def features(self, view: View) -> Iterator[Tensor]:
        """Yield the outputs of the body for all examples, in blocks (b, D) of float64."""
        check_last_layer(view)
        if view.pool + len(view.labels) <= BLOCK:
            pool = view.embed("body", "pool")
            labeled = view.embed("body", "labeled")
            yield torch.cat([pool, labeled]).double()
            return
        body = view.model("body")
        kinds: tuple[Rows, ...] = ("pool", "labeled")
        for which in kinds:
            for rows in view.blocks(which, BLOCK):
                yield view.look(body, rows)[0].double()

    def labeled(self, view: View, mean: Tensor, unit: Tensor) -> Labeled:
        z = (view.embed("body", "labeled").double() - mean) * unit
        return labeled_rows(view, z, None, is_weighted=True)


def in_features(head: LinearHead, mean: Tensor, unit: Tensor) -> LinearHead:
    """Convert a solution for scaled features to one for the outputs of the body."""
    weight = unit[:, None] * head.weight
    return LinearHead(weight, head.bias - mean @ weight)


def check_last_layer(view: View) -> None:
    """Raise ValueError unless the last parameters of the model are those of its last layer."""
    layers = [name for name, _ in view.layout.params]
    if layers[-2:] != ["head.weight", "head.bias"]:
        raise ValueError(
            "head=exact replaces the last layer, called head, with a bias; the last "
            f"parameters of this model are {', '.join(layers[-2:])}: make its head the "
            "last layer, or omit head=exact"
        )
    size = view.layout.params[-2][1][1]
    if size > MAX_FEATURES:
        raise ValueError(
            f"the body of this model has {size:,} features, and head=exact supports at "
            f"most {MAX_FEATURES:,}; use a model with a narrower last layer, or omit head=exact"
        )
