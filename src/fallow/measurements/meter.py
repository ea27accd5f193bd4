"""Meter: exact numbers that left a site, compared with the values of its labeled examples.

Nearly all examples were read from 1.5 times as many numbers as values (`docs/disclosure.md`).  From
fewer numbers than values, no example of continuous columns was read, but 4 of 24 with categories from
.63 times as many: a column with few levels is less than one unknown value.

The meter never counts too few numbers: those about unlabeled examples and repeated ones are included.
It never counts too many values: a site's examples are unknown alone, because other sites may work with
the coordinator.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, NamedTuple

from pydantic import Field, with_config
from typing_extensions import TypedDict

from fallow.core.client import Declaration, list_declared
from fallow.core.methods import DataDependentTraining, Methods, methods_by_owner
from fallow.core.values import Numbers, Optional, knows_shape, shape_of
from fallow.core.view import FOLDS
from fallow.core.wording import is_small, show_count
from fallow.storage.validation import STRICT, Count
from fallow.training.parts.ridge import PENALTIES

MARK = "_missing"
"""End of the names of missing-value indicators."""
SAFE_RATIO = 1.0
"""Numbers per value below which no row of continuous columns was read in any measurement."""
WITHOUT_ROWS = ("annotators",)
"""Owners whose replies have no numbers about training examples."""
PLANNED = ("training", "head")
"""Owners whose aggregates of labeled examples are sent at each end of labeling."""
AT_MOST = {"penalties": len(PENALTIES), "models": FOLDS + 1, "kinds": 3}
"""Largest sizes of dimensions in closed-form training, with self-training."""
BYTES = 4
"""Size of a number in a reply of unknown shape: a larger number counts twice."""


class Sent(NamedTuple):
    """Replies of one client function that left a site, and their bytes."""

    replies: int
    bytes: int

    def plus(self, replies: int, size: int) -> Sent:
        """Return the sum with further replies."""
        return Sent(self.replies + replies, self.bytes + size)


SentByFunction = Mapping[tuple[str, str], Sent]
"""Replies by owner and name of a client function; two algorithms may use one name."""


@with_config(STRICT)
class Exposure(TypedDict):
    """Exact numbers that left a site, and the values of its labeled examples."""

    numbers: Annotated[
        Count, Field(description="exact numbers in all replies, without models, at most")
    ]
    largest: Annotated[
        Count, Field(description="exact numbers in the largest reply, without models")
    ]
    rows: Annotated[
        Count,
        Field(description="training labels of the site, or of the site with the fewest"),
    ]
    values: Annotated[
        Count, Field(description="values of one example; categories of a column are one")
    ]


def count_numbers(
    item: Declaration, sizes: Mapping[str, int], *, is_noisy: bool = False
) -> int | None:
    """Return the exact numbers in one reply of a client function, by its declaration.

    Models, and numbers with noise, are not included.  Returns None if a dimension is unknown.

    Parameters
    ----------
    item : Declaration
        Client function.
    sizes : mapping
        Dimensions of declared fields by name.
    is_noisy : bool, default=False
        Whether releases have noise (``privacy.epsilon``).

    Examples
    --------
    >>> from fallow.core.client import declared
    >>> from fallow.training import ClosedForm
    >>> sizes = {"features": 1024, "outputs": 2}
    >>> count_numbers(declared(ClosedForm())["totals"], sizes)
    527877
    """
    is_sent = item.operation in ("sum", "each") and item.returns is not None
    if item.returns is None or not is_sent or (item.release and is_noisy) or item.models:
        return 0
    total = 0
    for kind in item.returns.fields(sizes).values():
        if isinstance(kind, Optional):
            kind = kind.kind
        if not isinstance(kind, Numbers):
            continue
        if not knows_shape(kind.dims, sizes):
            return None
        total += math.prod(shape_of(kind.dims, sizes))
    return total


def fill_sizes(sizes: Mapping[str, int]) -> dict[str, int]:
    """Add the largest sizes of dimensions that follow from others.

    >>> sizes = fill_sizes({"inputs": 13})
    >>> sizes["columns"], sizes["directions"]
    (14, 14)
    """
    filled = {**AT_MOST, **sizes}
    if "inputs" in sizes:  # and an intercept
        filled.setdefault("columns", sizes["inputs"] + 1)
        filled.setdefault("directions", sizes["inputs"] + 1)
    if "features" in sizes:
        filled.setdefault("axes", sizes["features"])
    return filled


def count_sent(
    methods: Methods, revealed: Iterable[Mapping[str, Any]]
) -> dict[tuple[str, str], Sent]:
    """Return the replies in a record, by owner and client function, of all sites together.

    An entry of the record belongs to the owner that declares its function with its description.
    """
    sent: dict[tuple[str, str], Sent] = {}
    by_owner = methods_by_owner(methods)
    for entry in revealed:
        for owner, method in by_owner.items():
            function = (owner, entry["function"])
            described = method.contract.disclosures.get(entry["function"])
            if described == entry["description"]:
                before = sent.get(function, Sent(0, 0))
                sent[function] = before.plus(entry["exchanges"], entry["bytes"])
    return sent


def count_values(columns: Sequence[str], shape: Sequence[int]) -> int:
    """Return the number of unknown values of an example.

    The categories of a column are one value, and so are a column and its missing-value indicator:
    sums over the categories of a table are contingency tables, which few numbers determine.

    Parameters
    ----------
    columns : sequence of str
        Names of the features of a table, such as ``sex=female``; empty for other examples.
    shape : sequence of int
        Shape of an example before encoding.

    Examples
    --------
    >>> count_values(["sex=female", "sex=male", "age", "age_missing"], (4,))
    2
    >>> count_values([], (1, 8, 8))
    64
    """
    if not columns:
        return math.prod(shape)
    return len({name.partition("=")[0].removesuffix(MARK) for name in columns})


def measure_exposure(
    methods: Methods,
    sizes: Mapping[str, int],
    values: int,
    sent: SentByFunction,
    rows: Iterable[int],
    *,
    is_noisy: bool,
) -> Exposure:
    """Return the exact numbers that left a site, and the values of its labeled examples.

    Parameters
    ----------
    methods : Methods
        Algorithms of the study, with their declarations.
    sizes : mapping
        Dimensions of declared fields by name.
    values : int
        Unknown values of an example (`count_values`).
    sent : mapping
        Replies by owner and client function.
    rows : iterable of int
        Number of training labels of each site.  The site with the fewest counts.
    is_noisy : bool
        Whether releases have noise.
    """
    numbers = 0
    largest = 0
    for owner, method in methods_by_owner(methods).items():
        if owner in WITHOUT_ROWS:
            continue
        for item in list_declared(method):
            replies = sent.get((owner, item.name), Sent(0, 0))
            if not replies.replies:
                continue
            of_reply = count_numbers(item, fill_sizes(sizes), is_noisy=is_noisy)
            if of_reply is None:
                numbers += replies.bytes // BYTES
                largest = max(largest, replies.bytes // BYTES)
            else:
                numbers += of_reply * replies.replies
                largest = max(largest, of_reply)
    labeled = [n for n in rows if n]
    return Exposure(
        numbers=numbers,
        largest=largest,
        rows=min(labeled, default=0),
        values=values,
    )


def find_widest(methods: Methods, sizes: Mapping[str, int], rows: int, values: int) -> int:
    """Return the largest number of features with fewer numbers than values; 0 for none.

    Parameters
    ----------
    methods : Methods
        Algorithms of the study, with their declarations.
    sizes : mapping
        Dimensions of declared fields by name.
    rows : int
        Number of labeled examples in one exchange of all aggregates about them.
    values : int
        Values of one example.
    """
    widest = 0
    while widest < rows * values:
        of_width = count_planned(methods, sizes, widest + 1)
        if of_width is None or of_width >= SAFE_RATIO * rows * values:
            break
        widest += 1
    return widest


def count_planned(methods: Methods, sizes: Mapping[str, int], width: int) -> int | None:
    """Return the exact numbers that one end of labeling sends, with so many features.

    Returns None if the number depends on the examples.
    """
    of_width = fill_sizes({**sizes, "features": width, "inputs": width})
    by_owner = methods_by_owner(methods)
    training = methods["training"]
    if isinstance(training, DataDependentTraining):
        by_owner["training"] = training.narrowed_to(width, sizes["classes"])
    total = 0
    for owner in PLANNED:
        if owner not in by_owner:
            continue
        for item in list_declared(by_owner[owner]):
            numbers = count_numbers(item, of_width)
            if numbers is None:
                return None
            total += numbers * max(item.times, 1)
    return total


def can_be_read(exposure: Exposure) -> bool:
    """Return whether there are at least as many numbers as values."""
    unknowns = exposure["rows"] * exposure["values"]
    return unknowns > 0 and exposure["numbers"] >= SAFE_RATIO * unknowns


def count_at_once(exposure: Exposure) -> int:
    """Return up to how many examples have no more values than the largest reply has numbers."""
    return exposure["largest"] // exposure["values"]


def describe_exposure(exposure: Exposure, hides_small: bool = True) -> str:
    """Describe what was sent, and whether examples can be computed from it.

    ``hides_small`` writes small numbers of labeled examples as <5.  It is false where the site's
    own screen or the agreement shows them.

    >>> describe_exposure({"numbers": 999, "largest": 117, "rows": 24, "values": 13})
    '999 exact numbers, compared with 24 labeled examples of 13 values (312 values): examples can be
    computed'
    >>> describe_exposure({"numbers": 117, "largest": 117, "rows": 24, "values": 13})
    '117 exact numbers, compared with 24 labeled examples of 13 values (312 values): up to 9 of them
    can be computed if a reply adds them, leaves them out or has no others of their class'
    """
    rows = exposure["rows"]
    values = exposure["values"]
    sent = f"{exposure['numbers']:,} exact numbers, compared with"
    compared = f"{rows:,} labeled examples of {values:,} values ({rows * values:,} values)"
    if hides_small and is_small(rows):
        compared = f"{show_count(rows)} labeled examples of {values:,} values"
    if not rows:  # not known yet
        compared = f"labeled examples of {values:,} values each"
    at_once = count_at_once(exposure)
    if can_be_read(exposure):
        conclusion = "examples can be computed"
    elif at_once:
        conclusion = (
            f"up to {at_once:,} of them can be computed if a reply adds them, leaves them out or "
            "has no others of their class"
        )
    else:
        conclusion = (
            "fewer numbers than values, without models; examples with categories or rare values "
            "can still be computed"
        )
    return f"{sent} {compared}: {conclusion}"
