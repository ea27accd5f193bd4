"""Meter: exact numbers that were sent, compared with the values that they are about.

No row was read from fewer numbers than values in any measurement (`docs/privacy.md`), and nearly all
from 1.5 times as many.  That a sum has fewer numbers is necessary for safety, and not sufficient.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import Field, with_config
from typing_extensions import TypedDict

from fallow.core.client import Declaration
from fallow.core.methods import Methods, methods_by_owner
from fallow.core.values import Numbers, Optional, knows_shape, shape_of
from fallow.storage.validation import STRICT, Count

SAFE_RATIO = 1.0
"""Numbers per value below which no row was read in any measurement."""
OF_LABELS = ("training", "head", "tuning")
"""Owners whose aggregates are about labeled examples, unless they declare otherwise."""
OF_ROWS = ("filling", "encoder", "scaling")
"""Owners whose aggregates are about all examples, unless they declare otherwise."""
Subject = Literal["labeled examples", "examples, labeled or not"]
LABELED: Subject = "labeled examples"
ALL: Subject = "examples, labeled or not"
WEIGHTED_BY: Mapping[str, Subject] = {"labels": LABELED, "rows": ALL}
"""Examples in an aggregate, by the weight that its declaration names."""


@with_config(STRICT)
class Exposure(TypedDict):
    """Exact numbers that left a site, and the values that they are about."""

    subject: Annotated[Subject, Field(description="kind of these examples")]
    numbers: Annotated[Count, Field(description="exact numbers in aggregates")]
    rows: Annotated[Count, Field(description="number of these examples")]
    values: Annotated[Count, Field(description="values of one example")]


def count_numbers(item: Declaration, sizes: Mapping[str, int]) -> int:
    """Return the exact numbers in one reply of a client function, by its declaration.

    Counts, models, and numbers with noise are not included.

    Parameters
    ----------
    item : Declaration
        Client function.
    sizes : mapping
        Dimensions of declared fields by name; fields of unknown size are not counted.

    Examples
    --------
    >>> from fallow.core.client import declared
    >>> from fallow.training import ClosedForm
    >>> sizes = {"features": 1024, "outputs": 2}
    >>> count_numbers(declared(ClosedForm())["totals"], sizes)
    527877
    """
    is_sent = item.operation in ("sum", "each") and item.returns is not None
    if item.returns is None or not is_sent or item.release or item.group != "aggregates":
        return 0
    total = 0
    for kind in item.returns.fields(sizes).values():
        if isinstance(kind, Optional):
            kind = kind.kind
        if isinstance(kind, Numbers) and knows_shape(kind.dims, sizes):
            total += math.prod(shape_of(kind.dims, sizes))
    return total


def count_in_reply(
    methods: Methods, sizes: Mapping[str, int]
) -> dict[tuple[str, str], tuple[Subject, int]]:
    """Return which examples a reply is about, and its exact numbers.

    The keys are the owner and the name of a client function: two algorithms may use one name.
    """
    counts: dict[tuple[str, str], tuple[Subject, int]] = {}
    by_owner = methods_by_owner(methods)
    for owner in (*OF_LABELS, *OF_ROWS):
        if owner not in by_owner:
            continue
        for item in by_owner[owner].contract.functions:
            subject = LABELED if owner in OF_LABELS else ALL
            if item.weighted_by:
                subject = WEIGHTED_BY[item.weighted_by]
            numbers = count_numbers(item, sizes)
            if numbers:
                counts[owner, item.name] = subject, numbers
    return counts


def count_sent(
    methods: Methods, revealed: Iterable[Mapping[str, Any]]
) -> dict[tuple[str, str], int]:
    """Return the number of replies in a record, by owner and client function.

    An entry of the record belongs to the owner that declares its function with its description.
    """
    sent: Counter[tuple[str, str]] = Counter()
    by_owner = methods_by_owner(methods)
    for entry in revealed:
        for owner, method in by_owner.items():
            described = method.contract.disclosures.get(entry["function"])
            if described == entry["description"]:
                sent[owner, entry["function"]] += entry["exchanges"]
    return sent


def measure_exposure(
    methods: Methods,
    sizes: Mapping[str, int],
    shape: Sequence[int],
    sent: Mapping[tuple[str, str], int],
    rows: Mapping[str, int],
) -> list[Exposure]:
    """Return the exact numbers about labeled examples, and about all examples.

    Parameters
    ----------
    methods : Methods
        Algorithms of the study, with their declarations.
    sizes : mapping
        Dimensions of declared fields by name.
    shape : sequence of int
        Shape of an example before encoding.
    sent : mapping
        Number of replies by owner and client function.
    rows : mapping
        Number of examples, by `LABELED` and `ALL`.
    """
    numbers: Counter[str] = Counter()
    for function, (subject, n) in count_in_reply(methods, sizes).items():
        replies = sent.get(function, 0)
        if subject == ALL:  # sums over the same examples are equal in all runs
            replies = min(replies, 1)
        numbers[subject] += n * replies
    return [
        Exposure(
            subject=subject,
            numbers=numbers[subject],
            rows=rows[subject],
            values=math.prod(shape),
        )
        for subject in (LABELED, ALL)
        if numbers[subject] and rows.get(subject)
    ]


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
        of_width = count_labeled(methods, sizes, widest + 1)
        if of_width >= SAFE_RATIO * rows * values:
            break
        widest += 1
    return widest


def count_labeled(methods: Methods, sizes: Mapping[str, int], width: int) -> int:
    """Return the exact numbers about labeled examples of one exchange, with so many features."""
    of_width = {**sizes, "features": width, "inputs": width}
    of_reply = count_in_reply(methods, of_width).values()
    return sum(numbers for subject, numbers in of_reply if subject == LABELED)


def can_be_read(exposure: Exposure) -> bool:
    """Return whether there are at least as many numbers as values."""
    unknowns = exposure["rows"] * exposure["values"]
    return unknowns > 0 and exposure["numbers"] >= SAFE_RATIO * unknowns


def describe_exposure(exposure: Exposure) -> str:
    """Describe what was sent, and whether rows can be computed from it.

    >>> describe_exposure({"subject": LABELED, "numbers": 999, "rows": 24, "values": 13})
    '999 exact numbers about 24 labeled examples of 13 values (312 values): examples can be computed'
    """
    rows = exposure["rows"]
    values = exposure["values"]
    sent = f"{exposure['numbers']:,} exact numbers about"
    if not rows:  # not known yet
        return f"{sent} {exposure['subject']} of {values:,} values each"
    conclusion = (
        "fewer numbers than values; differences of two sums, an example alone in its class and rare "
        "values remain readable"
    )
    if can_be_read(exposure):
        conclusion = "examples can be computed"
    return (
        f"{sent} {rows:,} {exposure['subject']} of {values:,} values ({rows * values:,} values): "
        f"{conclusion}"
    )
