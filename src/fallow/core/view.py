"""What a verb sees of its site, and what it may answer."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NoReturn, Protocol, get_args

import torch
from torch import Tensor

from fallow.core.banks import Layout
from fallow.core.types import Answer, SiteId, State

Rows = Literal["pool", "labeled", "validation"]


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
    def pool(self) -> int: ...  # m, the number of unlabeled rows
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
    def new_labels(self) -> int: ...  # that train, since the site's last contribution
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


VIEW_ATTRIBUTES = tuple(
    sorted(
        name for name in {*vars(View), *View.__annotations__} if not name.startswith("_")
    )
)


def refuse_attribute(view: View, name: str) -> NoReturn:
    """Raise AttributeError for an attribute that a view does not have; it lists those it has.

    The ``__getattr__`` of every view.
    """
    if name in VIEW_ATTRIBUTES:  # a property whose own code has raised AttributeError
        object.__getattribute__(view, name)
    message = f"a view has no attribute {name!r}"
    if not name.startswith("_"):  # Python itself looks for those
        message += f"; it has {', '.join(VIEW_ATTRIBUTES)}"
    raise AttributeError(message)


def check_rows_kind(which: str) -> None:
    """Raise ValueError unless ``which`` is a kind of rows that a view has."""
    kinds = get_args(Rows)
    if which not in kinds:
        raise ValueError(
            f"a view has no {which!r} rows; use one of {', '.join(map(repr, kinds))}"
        )


def _as_is(counts: Tensor) -> Answer:
    return {"counts": counts}


@dataclass(frozen=True)
class Release:
    """Counts of people on their way out: noise is added behind the verb, then ``post`` runs.

    counts: (C,) true counts; ``sensitivity``: the largest change of the counts, in L1, when one
    labeled row is replaced by another; ``post``: from counts to what is sent, which sees nothing
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
                "finite: the largest change of the counts when one labeled row is replaced"
            )
        if not 0 <= self.delta < 1:
            raise ValueError(
                f"the delta of a release is {self.delta}; it must be at least 0 and below 1"
            )


@dataclass(frozen=True)
class Picks:
    """Rows to label: positions in the pool, in the order they were chosen, all different.

    Lists and arrays of numpy become tensors.  ``weight`` and ``probability`` (k,) stay with the
    label in the site's ledger: training reads the weight.  ``score`` (k,) is what the rows were
    ranked by, where that is one number: people at the site see it beside the question.
    ``is_beside``: they come beside what was picked before in the same query, which they else
    replace.

    >>> Picks([4, 0]).check(pool=5, n=2)
    >>> Picks(torch.tensor([4, 4])).check(pool=5, n=2)
    Traceback (most recent call last):
        ...
    ValueError: position 4 is selected 2 times; return 2 different positions
    """

    rows: Tensor
    weight: Tensor | None = None
    probability: Tensor | None = None
    score: Tensor | None = None
    is_beside: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "rows", _read_positions(self.rows))
        for name in ("weight", "probability", "score"):
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, self._read_numbers(name, value))

    def _read_numbers(self, name: str, value: Any) -> Tensor:
        """A number for each selected example, (k,)."""
        tensor = _as_tensor(value)
        if tensor is None or tensor.shape != self.rows.shape:
            shape = f"a {type(value).__name__}"
            if tensor is not None:
                shape = f"of shape {tuple(tensor.shape)}"
            raise ValueError(
                f"{name} is {shape}; give one number for each of the {len(self.rows)} selected "
                "examples"
            )
        return tensor

    def check(self, pool: int, n: int) -> None:
        """Raise unless the rows are ``n`` different positions of a pool of ``pool`` rows."""
        rows = self.rows
        if len(rows) != n:
            raise ValueError(
                f"{len(rows)} examples are selected and {n} are requested; return exactly "
                "min(n, view.pool) positions"
            )
        is_outside = (rows < 0) | (rows >= pool)
        if bool(is_outside.any()):
            raise ValueError(
                f"position {int(rows[is_outside][0])} is outside the pool of {pool} examples; "
                f"return positions from 0 to {pool - 1}"
            )
        values, counts = torch.unique(rows, return_counts=True)
        if len(values) != len(rows):
            most = int(counts.argmax())
            raise ValueError(
                f"position {int(values[most])} is selected {int(counts[most])} times; return {n} "
                "different positions"
            )


def _as_tensor(value: Any) -> Tensor | None:
    """A tensor of a list or an array of numbers; None for anything else."""
    if isinstance(value, Tensor):
        return value
    to_list = getattr(value, "tolist", None)  # an array's strides and types may be any
    if to_list is not None:
        value = to_list()
    try:
        tensor = torch.tensor(value)
        if tensor.is_floating_point():
            tensor = torch.tensor(value, dtype=torch.float64)
    except (TypeError, ValueError, RuntimeError):
        return None
    return tensor


def _read_positions(value: Any) -> Tensor:
    """Positions in the pool, (k,) int64, from a tensor, an array or a list of whole numbers."""
    tensor = _as_tensor(value)
    if tensor is None:
        raise ValueError(
            f"positions in the pool are a {type(value).__name__}; return a list, an array or a "
            "tensor of whole numbers"
        )
    if tensor.dtype == torch.bool:
        raise ValueError(
            "positions in the pool are Boolean; return the positions where the mask is True, "
            "such as np.flatnonzero(mask)"
        )
    if tensor.ndim != 1:
        raise ValueError(
            f"positions in the pool have shape {tuple(tensor.shape)}; return one number for each "
            "selected example, shape (n,)"
        )
    if tensor.is_floating_point() and len(tensor):
        raise ValueError(
            f"positions in the pool are {str(tensor.dtype).removeprefix('torch.')}; return whole "
            "numbers, such as those of argsort"
        )
    return tensor.to(torch.int64)
