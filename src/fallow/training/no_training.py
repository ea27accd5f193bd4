"""No training: a study selects examples, and measures how well they cover each site."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal, final

import torch
from torch import Tensor

from fallow.core import client
from fallow.core.ask import Ask
from fallow.core.contract import Contract
from fallow.core.fit_declarations import FitDeclaration
from fallow.core.limits import PositiveInt, check_limits
from fallow.core.suggestions import explain_constructor
from fallow.core.training_config import TrainingConfig
from fallow.core.types import State, Values
from fallow.core.values import NonNegative
from fallow.core.view import View

BLOCK = 1024
"""Number of examples whose distances are in memory at once."""
DRAWS = 5
"""Number of random selections of a site with which its selection is compared."""


@explain_constructor
@final
@dataclass(frozen=True)
class NoTraining:
    """Select examples for others to annotate, and train nothing.

    Query strategies read features and, if the examples have columns ``prediction:CLASS`` or
    ``uncertainty``, given predictions.  After each cycle, every site computes the squared distance
    of each of its examples to the nearest selected one.  The sum over all sites, in units of the
    sum of squared distances to the mean of the own site, is the score ``distance``: 1 without any
    selected example, 0 if every example equals a selected one.  ``random_distance`` is the same for
    random selections of equal size, as the mean of five.

    The name in settings is "none".

    Parameters
    ----------
    cases : {"row", "group"}
        Examples that are selected and annotated: each row, or all rows of a group together, such as
        the slices of a volume.  The features of such a case are the mean and the maximum of those of
        its rows, and its predictions are the mean.
    every : int
        Distance of the slices of a case whose features are used, from the middle one on: 1 for all.
        Annotators see all.
    central : int, optional
        Number of such slices of a case, those nearest to the middle; by default all.

    Raises
    ------
    ValueError
        For slices of rows that are no cases.

    Notes
    -----
    *Disclosure.*  The coordinator sees three sums over all sites, with secure aggregation only
    their totals.

    Examples
    --------
    >>> import fallow as fl
    >>> run = fl.run("digits", "core-set", training="none", sites=3, cycles=1, budget=20)
    >>> record = run.records.iloc[-1]
    >>> bool(record["distance"] < record["random_distance"])
    True
    """

    cases: Literal["row", "group"] = "row"
    every: PositiveInt = 1
    central: PositiveInt | None = None
    training_config: TrainingConfig = field(
        default=TrainingConfig(), init=False, repr=False
    )

    contract: ClassVar[Contract] = Contract(
        title="No training",
        aliases=("none",),
        short="none",
        regression=True,
        local_dp=False,
        weighs=False,
        settings={"model": "linear", "encoder": "auto", "rounds": 1, "score_rounds": 1},
        fit=FitDeclaration(sent={}, server=("w", "stats", "distance", "random_distance")),
        tags=("untrained",),
    )

    def __post_init__(self) -> None:
        check_limits(self)
        if self.cases == "row" and (self.every, self.central) != (1, None):
            raise ValueError(
                "every and central are for slices of cases; set cases='group', or omit them"
            )

    def round(self, state: State, ask: Ask) -> State:
        total = ask.sum(self.distances)
        unit = total["to_mean"].clamp_min(torch.finfo(torch.float64).tiny)
        return {
            "w": state["w"][:0],
            "stats": state["stats"][:0],
            "distance": total["to_selected"] / unit,
            "random_distance": total["to_random"] / unit,
        }

    @client.sum(
        "aggregates of squared distances of all examples to the mean, to the nearest selected "
        "example and to that of random selections",
        returns={
            "to_mean": NonNegative(),
            "to_selected": NonNegative(),
            "to_random": NonNegative(),
        },
        weighted_by="rows",
    )
    def distances(self, view: View) -> Values:
        x = view.rows("all").flatten(1).double()  # (n, d)
        selected = view.rows("labeled").flatten(1).double()  # (k, d)
        spread = sum_distances(x, x.mean(0, keepdim=True))
        if not len(selected):
            return {"to_mean": spread, "to_selected": spread, "to_random": spread}
        draw = view.stream("random selections")
        at_random = torch.zeros_like(spread)
        for _ in range(DRAWS):
            rows = torch.randperm(len(x), generator=draw)[: len(selected)]
            at_random += sum_distances(x, x[rows]) / DRAWS
        return {
            "to_mean": spread,
            "to_selected": sum_distances(x, selected),
            "to_random": at_random,
        }

    def deploy(self, state: State, memory: Mapping[str, State]) -> State:
        return state


def sum_distances(x: Tensor, points: Tensor) -> Tensor:
    """Return the sum of squared distances of examples to the nearest point: (n, d), (k, d) -> ().

    >>> sum_distances(torch.tensor([[0.0], [3.0]]), torch.tensor([[1.0], [9.0]]))
    tensor(5., dtype=torch.float64)
    """
    total = torch.zeros((), dtype=torch.float64)
    for rows in torch.split(x, BLOCK):
        total += torch.cdist(rows, points).amin(1).square().sum()
    return total
