"""ProbCover (Yehuda et al., 2022), Algorithm 1: balls that cover as much of the pool as possible."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal, final

import torch
from torch import Tensor

from fallow.core.ask import Ask
from fallow.core.contract import Contract
from fallow.core.limits import Limits
from fallow.core.suggestions import explain_constructor, refuse_unused
from fallow.core.view import SelectedExamples, View
from fallow.strategies.base import (
    Budget,
    Memo,
    check_fields,
    label_counts,
    selects,
)
from fallow.strategies.parts.kmeans import cluster_rows
from fallow.strategies.parts.max_coverage import UnitFeatures, square_distances

RADII = [step / 20 for step in range(1, 41)]  # candidates for δ: 0.05 to 2
BLOCK = 1024  # examples whose neighbors are compared at a time


RADIUS = Limits(gt=0, le=2, advice=", the largest distance between features of unit length")


@explain_constructor
@final
@dataclass(frozen=True)
class ProbCover:
    """Select examples whose balls of one radius cover as much of the pool as possible.

    The strategy is for small label budgets.  Distances are between features of unit length.
    The default ``radius`` is the largest one at which a share ``purity`` of all examples has no
    neighbor of another cluster, with as many k-means clusters as there are classes.

    Parameters
    ----------
    model : {"local", "global"}
        Model whose features are used.
    radius : float, optional
        Radius of the balls (δ).  None: determined by ``purity``.
    purity : float
        Share of examples whose ball holds one cluster alone (α).

    Notes
    -----
    The paper's features come from self-supervised training; here they are those of the model.
    Ties are ordered by the number of neighbors, the largest first.
    Each site selects on its own.

    References
    ----------
    Yehuda, Dekel, Hacohen, Weinshall. Active Learning Through a Covering Lens. NeurIPS 2022.

    Examples
    --------
    >>> import fallow as fl
    >>> pool = [[1.0, 0.0], [1.0, 0.1], [1.0, 0.2], [0.0, 1.0]]
    >>> fl.select(pool, fl.ProbCover(radius=0.15), outputs=[[0.5, 0.5]] * 4, n=2)
    array([1, 3])
    """

    model: Literal["local", "global"] = "local"
    radius: Annotated[float, RADIUS] | None = None  # δ
    purity: Annotated[float, Limits(gt=0, lt=1)] = 0.95  # α

    contract: ClassVar[Contract] = Contract(
        title="ProbCover",
        paper="Active Learning Through a Covering Lens",
        year=2022,
        authors="Yehuda, Ofer and Dekel, Avihu and Hacohen, Guy and Weinshall, Daphna",
        needs=("local",),
        draws=True,
        untrained="features",
    )

    def __post_init__(self) -> None:
        check_fields(self)
        refuse_unused(self, "purity", switch="radius", used_with=(None,))

    def query(self, ask: Ask, budget: Budget, memo: Memo) -> Memo:
        ask.keep(self.select, to=label_counts(budget))
        return memo

    @selects()
    def select(self, view: View, n: int) -> SelectedExamples:
        features = UnitFeatures.of(view, self.model)
        radius = self.radius
        if radius is None:
            everything = torch.cat([features.pool, features.labeled])
            clusters = max(view.classes, 2)
            radius = self.choose_radius(everything, clusters, view.stream("k-means"))
        limit = radius**2

        def is_within(square: Tensor) -> Tensor:
            return (square <= limit).to(square)

        weight = torch.ones(view.pool, dtype=torch.float64)
        return SelectedExamples(features.cover(is_within, weight, n, view.stream("ties")))

    def choose_radius(self, x: Tensor, clusters: int, generator: torch.Generator) -> float:
        """Return the largest of `RADII` with sufficient purity, or the smallest if none has it.

        The purity is the share of examples without a neighbor of another cluster.  x: (m, d) of
        unit length.
        """
        if not len(x):
            return RADII[0]
        cluster = cluster_rows(x, min(clusters, len(x)), generator)
        nearest = []  # squared distance to the nearest example of another cluster
        for block, own in zip(
            torch.split(x, BLOCK), torch.split(cluster, BLOCK), strict=True
        ):
            square = square_distances(block, x)
            is_same = own[:, None] == cluster
            nearest.append(square.masked_fill_(is_same, torch.inf).amin(1))
        distance = torch.cat(nearest).sqrt()
        chosen = RADII[0]
        for radius in RADII:
            if float((distance > radius).double().mean()) < self.purity:
                break
            chosen = radius
        return chosen
