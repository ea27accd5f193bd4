"""What a verb sees of its site, and what it may answer."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

import torch
from torch import Tensor

from fallow.core.banks import Layout
from fallow.core.types import Answer, SiteId, State

Rows = Literal["pool", "labelled", "validation"]


class View(Protocol):
    """A site as a method sees it.  There is no way from here to a hidden label, but the property
    for strategies whose contract says that they run in a simulator only.

    Rows of the pool have positions 0..m-1; a query answers with positions.  A label that was bought
    trains, or it is held back for validation: labels, weights and counts are of those that train.

    >>> def select(self, view, n):  # of a strategy
    ...     unsure = view.logits("local").softmax(1).max(1).values
    ...     return Picks(unsure.argsort()[:n])
    """

    site: SiteId
    cycle: int
    classes: int
    memory: Mapping[str, State]  # kept answers and fitted models of this site
    layout: Layout  # names and shapes of the model's parameters
    draws: bool  # the model has dropout layers

    @property
    def pool(self) -> int: ...  # m, the number of unlabelled rows
    @property
    def places(self) -> Tensor: ...  # (m,) where those stand among all rows of the site
    def answers(self, places: Tensor) -> Tensor: ...  # (k,) labels of rows that stand
    # there, as models see them; NaN where none was bought
    @property
    def labels(self) -> Tensor: ...  # (n,) labels already bought
    @property
    def held(self) -> Tensor: ...  # (v,) labels held back for validation
    @property
    def held_weights(self) -> Tensor: ...  # (v,) what the query attached to each of those
    @property
    def weights(self) -> Tensor: ...  # (n,) weight that the query attached to each label
    @property
    def chances(self) -> Tensor: ...  # (n,) float64, by which each label was drawn; NaN
    # where that is not known
    @property
    def counts(self) -> Tensor: ...  # (C,) float64 labels bought per class
    @property
    def hidden(
        self,
    ) -> Tensor: ...  # (m,) true labels of the pool; raises unless simulator_only
    def rows(self, which: Rows = "pool") -> Tensor: ...
    def blocks(
        self, which: Rows = "pool", size: int = 4096
    ) -> Iterator[Tensor]: ...  # `rows`, some at a time: never all of them in memory
    def logits(self, model: str, which: Rows = "pool") -> Tensor: ...
    def embed(self, model: str, which: Rows = "pool") -> Tensor: ...
    def model(
        self, name: str
    ) -> State: ...  # "local" is "global" where a site has no labels
    def forward(
        self, state: State, rows: Tensor, draw: torch.Generator | None = None
    ) -> Tensor: ...  # with ``draw`` dropout layers drop; a graph iff rows.requires_grad
    def look(
        self, state: State, rows: Tensor
    ) -> tuple[Tensor, Tensor]: ...  # (n, h), (n, c)
    def outputs(
        self, state: State, rows: Tensor
    ) -> Tensor: ...  # as the training method predicts
    def stream(self, purpose: str) -> torch.Generator: ...
    def secret(self, purpose: str) -> torch.Generator: ...  # that no other party can repeat


def _as_is(counts: Tensor) -> Answer:
    return {"counts": counts}


@dataclass(frozen=True)
class Release:
    """Counts of people on their way out: noise is added behind the verb, then ``post`` runs.

    counts: (C,) true counts; ``sensitivity``: the largest change of the counts, in L1, when one
    labelled row is replaced by another; ``post``: from counts to what is sent, which sees nothing
    of the site but its argument; ``post_noisy``: where counts with noise are sent in another way;
    ``delta``: δ, where the noise is Gaussian.  Then the sensitivity is that in L2, numbers need not
    be counts, and nothing leaves where no noise is wanted.

    Raises ValueError for a sensitivity that is not above 0 and finite: no noise would be added; and
    for a ``delta`` outside of 0 to 1.

    >>> sent = Release(torch.tensor([2.0, 6.0]), 2, lambda n: {"share": n / n.sum()})
    >>> sent.post(sent.counts)
    {'share': tensor([0.2500, 0.7500])}
    """

    counts: Tensor
    sensitivity: float
    post: Callable[[Tensor], Answer] = _as_is
    post_noisy: Callable[[Tensor], Answer] | None = None
    delta: float = 0.0

    def __post_init__(self) -> None:
        if not 0 < self.sensitivity < math.inf:
            raise ValueError(
                f"the sensitivity of a release is {self.sensitivity}; it must be above 0 and "
                "finite: the largest change of the counts when one labelled row is replaced"
            )
        if not 0 <= self.delta < 1:
            raise ValueError(
                f"the delta of a release is {self.delta}; it must be at least 0 and below 1"
            )


@dataclass(frozen=True)
class Picks:
    """Rows to label: positions in the pool, in the order they were chosen, all different.

    ``weight`` and ``probability`` (k,) stay with the label in the site's ledger: training reads
    the weight.  ``score`` (k,) is what the rows were ranked by, where that is one number: people at
    the site see it beside the question.  ``is_beside``: they come beside what was picked before in
    the same query, which they else replace.

    >>> Picks(torch.tensor([4, 0])).check(pool=5, n=2)
    >>> Picks(torch.tensor([4, 4])).check(pool=5, n=2)
    Traceback (most recent call last):
        ...
    ValueError: picks must be different positions in the pool of 5 rows
    """

    rows: Tensor
    weight: Tensor | None = None
    probability: Tensor | None = None
    score: Tensor | None = None
    is_beside: bool = False

    def check(self, pool: int, n: int) -> None:
        """Raise unless the rows are ``n`` different positions of a pool of ``pool`` rows."""
        rows = self.rows
        if rows.ndim != 1 or rows.dtype != torch.int64:
            raise ValueError(
                f"picks must be a 1-d int64 tensor, not {rows.dtype} {rows.shape}"
            )
        if len(rows) != n:
            raise ValueError(f"{len(rows)} rows were picked but {n} were asked for")
        inside = bool(((rows >= 0) & (rows < pool)).all())
        if not inside or len(torch.unique(rows)) != len(rows):
            raise ValueError(
                f"picks must be different positions in the pool of {pool} rows"
            )
