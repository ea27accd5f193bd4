"""View of a site for client functions, and their replies."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NoReturn, Protocol, get_args

import torch
from torch import Tensor

from fallow.core.limits import Limits, check_limits
from fallow.core.model_vectors import Layout
from fallow.core.types import SiteId, State, Values

Rows = Literal["pool", "labeled", "validation", "all"]
FOLDS = 5
"""Number of folds of cross-validation, into which each site divides its labels."""


class View(Protocol):
    """A site as an algorithm sees it.

    Hidden labels are not accessible, except through the property for strategies whose contract
    restricts them to simulation.  Examples of the pool have positions 0..m-1, and a query returns
    positions.  A label is used for training, or held back for validation: labels, weights and
    counts cover those for training.

    >>> def select(self, view, n):  # of a strategy
    ...     unsure = view.logits("local").softmax(1).max(1).values
    ...     return SelectedExamples(unsure.argsort()[:n])
    """

    site: SiteId
    cycle: int
    classes: int
    """Number of classes; 0 for other tasks."""
    n_labels: int
    """Number of labels of an example in multilabel tasks; 0 for other tasks."""
    memory: Mapping[str, State]
    """Stored replies and fitted models of this site."""
    layout: Layout
    """Names and shapes of the model's parameters."""
    draws: bool
    """Whether the model has dropout layers."""

    @property
    def pool(self) -> int:
        """Number m of unlabeled examples."""
        ...

    @property
    def positions(self) -> Tensor:
        """Positions of the pool among all examples of the site, (m,)."""
        ...

    def labels_at(self, positions: Tensor) -> Tensor:
        """Return labels as models see them, (k,); NaN for unlabeled examples.

        Parameters
        ----------
        positions : Tensor of shape (k,)
            Positions among all examples of the site.
        """
        ...

    @property
    def labels(self) -> Tensor:
        """Labels for training, (n,).

        Several labels per example are one number (`fallow.core.multilabel`).
        """
        ...

    def positions_of(self, which: Rows) -> Tensor:
        """Return positions among all examples of the site, (n,) int64, ascending.

        They stay the same when examples are labeled or leave.

        Parameters
        ----------
        which : {"pool", "labeled", "validation", "all"}
            Kind of examples.
        """
        ...

    def groups(self, which: Rows = "pool") -> Tensor | None:
        """Return the group of each example of a kind, such as its patient, (n,) int64.

        None: the data have no groups.  No split divides a group.

        Parameters
        ----------
        which : {"pool", "labeled", "validation"}
            Kind of examples.
        """
        ...

    @property
    def folds(self) -> Tensor:
        """Fold of each label for training, (n,), from 0 to `FOLDS` - 1.

        It is decided once, when the label arrives, and never changes.
        """
        ...

    @property
    def validation_labels(self) -> Tensor:
        """Labels that are held back for validation, (v,)."""
        ...

    @property
    def validation_weights(self) -> Tensor:
        """Weights of the labels for validation, (v,)."""
        ...

    @property
    def weights(self) -> Tensor:
        """Weight that the query assigned to each label for training, (n,)."""
        ...

    @property
    def chances(self) -> Tensor:
        """Selection probability of each label for training, (n,) float64; NaN if unknown."""
        ...

    @property
    def counts(self) -> Tensor:
        """Number of labels per class, (C,) float64."""
        ...

    @property
    def hidden(self) -> Tensor:
        """True labels of the pool, (m,).  Raises an error unless simulator_only."""
        ...

    def rows(self, which: Rows = "pool") -> Tensor:
        """Return examples in model form, (n, *shape).

        Parameters
        ----------
        which : {"pool", "labeled", "validation", "all"}, default="pool"
            Kind of examples.
        """
        ...

    def blocks(self, which: Rows = "pool", size: int = 4096) -> Iterator[Tensor]:
        """Yield `rows` in blocks, so that not all are in memory at once.

        Parameters
        ----------
        which : {"pool", "labeled", "validation", "all"}, default="pool"
            Kind of examples.
        size : int, default=4096
            Number of examples in a block.
        """
        ...

    def logits(self, model: str, which: Rows = "pool") -> Tensor:
        """Return the outputs of a stored model, (n, c).

        Parameters
        ----------
        model : str
            Name of a stored model, such as "global" or "local".
        which : {"pool", "labeled", "validation", "all"}, default="pool"
            Kind of examples.
        """
        ...

    def embed(self, model: str, which: Rows = "pool") -> Tensor:
        """Return the features before the last layer of a stored model, (n, h).

        Parameters
        ----------
        model : str
            Name of a stored model, such as "global" or "local".
        which : {"pool", "labeled", "validation", "all"}, default="pool"
            Kind of examples.
        """
        ...

    def model(self, name: str) -> State:
        """Return a stored model.

        Parameters
        ----------
        name : str
            Name, such as "global".  "local" is the global model at a site without labels.
        """
        ...

    def forward(
        self, state: State, rows: Tensor, draw: torch.Generator | None = None
    ) -> Tensor:
        """Return outputs (n, c), differentiable if ``rows.requires_grad``.

        Parameters
        ----------
        state : dict of str to Tensor
            Model, such as the result of `model`.
        rows : Tensor of shape (n, *shape)
            Examples in model form.
        draw : torch.Generator, optional
            Random stream of dropout.  Default: evaluation mode.
        """
        ...

    def look(self, state: State, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Return features (n, h) and outputs (n, c), without gradients.

        Parameters
        ----------
        state : dict of str to Tensor
            Model, such as the result of `model`.
        rows : Tensor of shape (n, *shape)
            Examples in model form.
        """
        ...

    def outputs(self, state: State, rows: Tensor) -> Tensor:
        """Return outputs (n, c) as the training algorithm predicts.

        Parameters
        ----------
        state : dict of str to Tensor
            Model, such as the result of `model`.
        rows : Tensor of shape (n, *shape)
            Examples in model form.
        """
        ...

    def stream(self, purpose: str) -> torch.Generator:
        """Return a random stream of the site for this cycle.

        Parameters
        ----------
        purpose : str
            Name of the stream.
        """
        ...

    def secret(self, purpose: str) -> torch.Generator:
        """Return a random stream that other parties cannot predict.

        Parameters
        ----------
        purpose : str
            Name of the stream.
        """
        ...


VIEW_ATTRIBUTES = tuple(
    sorted(
        name for name in {*vars(View), *View.__annotations__} if not name.startswith("_")
    )
)


def refuse_attribute(view: View, name: str) -> NoReturn:
    """Raise AttributeError for an unknown attribute of a view; the message lists all attributes.

    It is the ``__getattr__`` of every view.
    """
    if name in VIEW_ATTRIBUTES:  # a property whose code has raised AttributeError
        object.__getattribute__(view, name)
    message = f"a view has no attribute {name!r}"
    if not name.startswith("_"):  # Python looks these up
        message += f"; it has {', '.join(VIEW_ATTRIBUTES)}"
    raise AttributeError(message)


def check_rows_kind(which: str) -> None:
    """Raise ValueError unless ``which`` is a kind of examples of a view."""
    kinds = get_args(Rows)
    if which not in kinds:
        raise ValueError(
            f"a view has no {which!r} examples; use one of {', '.join(map(repr, kinds))}"
        )


def _as_is(counts: Tensor) -> Values:
    return {"counts": counts}


SENSITIVITY = Limits(
    gt=0,
    is_finite=True,
    meaning="the largest change of the counts when one labeled example is replaced",
)


@dataclass(frozen=True)
class Release:
    """Counts to which noise is added after the client function; then ``post`` runs.

    Parameters
    ----------
    counts : Tensor
        (C,) exact counts.
    sensitivity : float
        Largest L1 change of the counts when one labeled example is replaced by another.
    post : callable
        Function from counts to the reply; it accesses nothing else of the site.
    post_noisy : callable, optional
        The same for noisy counts, if it differs.
    delta : float, optional
        δ of Gaussian noise.  The sensitivity is then the L2 sensitivity, the values need not be
        counts, and nothing is sent without noise.

    Raises
    ------
    ValueError
        For a sensitivity that is not positive and finite, because no noise would be added, and for
        a ``delta`` outside of 0 to 1.

    Examples
    --------
    >>> sent = Release(torch.tensor([2.0, 6.0]), 2, lambda n: {"share": n / n.sum()})
    >>> sent.post(sent.counts)
    {'share': tensor([0.2500, 0.7500])}
    """

    counts: Tensor
    sensitivity: Annotated[float, SENSITIVITY]
    post: Callable[[Tensor], Values] = _as_is
    post_noisy: Callable[[Tensor], Values] | None = None
    delta: Annotated[float, Limits(ge=0, lt=1)] = 0.0

    def __post_init__(self) -> None:
        check_limits(self, "the release's ")


@dataclass(frozen=True)
class SelectedExamples:
    """Selected examples: different positions in the unlabeled pool, in order of selection.

    Lists and NumPy arrays are converted to tensors.

    Parameters
    ----------
    rows : Tensor
        (k,) positions in the unlabeled pool.
    weight : Tensor, optional
        (k,) weights, stored with the labels in the ledger of the site and used in training.
    probability : Tensor, optional
        (k,) selection probabilities, stored with the labels.
    score : Tensor, optional
        (k,) scores by which the examples were ranked; annotators at the site see them.
    is_beside : bool
        Whether the examples are selected in addition to earlier ones of the same query, instead of
        replacing them.

    Examples
    --------
    >>> SelectedExamples([4, 0]).check(pool=5, n=2)
    >>> SelectedExamples(torch.tensor([4, 4])).check(pool=5, n=2)
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
        """Return a number for each selected example, (k,)."""
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
        """Raise ValueError unless the right number of different positions is selected.

        Parameters
        ----------
        pool : int
            Number of examples in the unlabeled pool.
        n : int
            Number of requested examples.
        """
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
            worst = int(counts.argmax())
            raise ValueError(
                f"position {int(values[worst])} is selected {int(counts[worst])} times; return {n} "
                "different positions"
            )


def _as_tensor(value: Any) -> Tensor | None:
    """Convert a list or array of numbers to a tensor; None for other objects."""
    if isinstance(value, Tensor):
        return value
    to_list = getattr(value, "tolist", None)  # arrays may have any strides and types
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
    """Return positions in the pool, (k,) int64, from a tensor, an array or a list of integers."""
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
