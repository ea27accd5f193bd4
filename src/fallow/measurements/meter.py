"""Meter: exact numbers that were sent, compared with the values that they are about.

No row was read from fewer numbers than values in any measurement (`docs/privacy.md`), and nearly all
from 1.5 times as many.  That a sum has fewer numbers is necessary for safety, and not sufficient.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated

from pydantic import Field, with_config
from typing_extensions import TypedDict

from fallow.core.client import Declaration
from fallow.core.values import Numbers, Optional, knows_shape, shape_of
from fallow.storage.validation import STRICT, Count

SAFE_RATIO = 1.0
"""Numbers per value below which no row was read in any measurement."""


@with_config(STRICT)
class Exposure(TypedDict):
    """Exact numbers that left a site, and the values that they are about."""

    subject: Annotated[str, Field(description="examples: labeled examples, or examples")]
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


def can_be_read(exposure: Exposure) -> bool:
    """Return whether there are at least as many numbers as values."""
    unknowns = exposure["rows"] * exposure["values"]
    return unknowns > 0 and exposure["numbers"] >= SAFE_RATIO * unknowns


def describe_exposure(exposure: Exposure) -> str:
    """Describe what was sent, and whether rows can be computed from it.

    >>> describe_exposure({"subject": "examples", "numbers": 999, "rows": 24, "values": 13})
    '999 exact numbers about 24 examples of 13 values (312 values): examples can be computed'
    """
    rows = exposure["rows"]
    conclusion = (
        "fewer numbers than values, so that no measured attack read an example; rare values remain "
        "readable"
    )
    if can_be_read(exposure):
        conclusion = "examples can be computed"
    return (
        f"{exposure['numbers']:,} exact numbers about {rows:,} {exposure['subject']} of "
        f"{exposure['values']:,} values ({rows * exposure['values']:,} values): {conclusion}"
    )
