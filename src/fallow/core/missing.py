"""Columns of tables: imputation of empty cells, and names of the features of text columns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor


@final
@dataclass(frozen=True)
class Missing:
    """A table with empty cells, which are NaN until the sites impute them together.

    levels: for each category, the range (first, last + 1) of its one-hot columns.  marks: indicator
    features of empty cells, each with the column that it marks.
    """

    levels: tuple[tuple[int, int], ...] = ()
    marks: tuple[tuple[str, str], ...] = ()

    def fill(self, totals: Tensor, counts: Tensor) -> Tensor:
        """Return the imputed value of each column: (d,).

        This is the mean of a number, and the most frequent level of a category, the first of ties.
        totals: (d,) sums of the non-empty cells.  counts: (d,) their numbers.  A column without any
        becomes 0.

        >>> totals, counts = torch.tensor([6.0, 1.0, 2.0]), torch.tensor([3.0, 3.0, 3.0])
        >>> Missing(levels=((1, 3),)).fill(totals, counts).tolist()
        [2.0, 0.0, 1.0]
        """
        fill = totals / counts.clamp(min=1.0)
        for first, end in self.levels:
            largest = int(totals[first:end].argmax())
            fill[first:end] = 0.0
            fill[first + largest] = 1.0
        return fill


def name_marks(
    features: Sequence[str], columns: Sequence[str]
) -> tuple[tuple[str, str], ...]:
    """Return an indicator feature of empty cells for each of ``columns``.

    features: names that are already used.

    >>> name_marks(("age", "dose", "dose_missing"), ("age", "dose"))
    (('age_missing', 'age'), ('dose_missing_', 'dose'))
    """
    used = set(features)
    marks: list[tuple[str, str]] = []
    for column in columns:
        name = f"{column}_missing"
        while name in used:
            name += "_"
        marks.append((name, column))
    return tuple(marks)


def total_cells(blocks: Iterable[Tensor]) -> dict[str, Tensor | float]:
    """Return the contribution of a site about its cells.

    ``rows`` is the number of examples, ``columns`` (d,) the sum of the non-empty cells of each
    column, and ``observed`` (d,) their numbers.  blocks: examples (b, d) in float64, NaN for an empty
    cell.  Raises ValueError for an infinite number.

    >>> contribution = total_cells([torch.tensor([[1.0, torch.nan], [2.0, 5.0]]).double()])
    >>> (
    ...     contribution["rows"],
    ...     contribution["columns"].tolist(),
    ...     contribution["observed"].tolist(),
    ... )
    (2.0, [3.0, 5.0], [2.0, 1.0])
    """
    n_rows = 0
    sums: Tensor | float = 0.0
    n_observed: Tensor | float = 0.0
    for rows in blocks:
        if bool(rows.isinf().any()):
            raise ValueError("a feature is infinite; correct it, or omit such examples")
        n_rows += len(rows)
        sums = sums + rows.nansum(0)
        n_observed = n_observed + (~rows.isnan()).sum(0).double()
    return {"rows": float(n_rows), "columns": sums, "observed": n_observed}


def filled(x: Tensor, fill: Tensor | None) -> Tensor:
    """Impute NaN: (n, d) and (d,) -> (n, d); None: return the examples unchanged."""
    if fill is None:
        return x
    return torch.where(x.isnan(), fill.to(x.dtype), x)


WORDS = 2048
CHARACTERS = 2048
BUCKETS = WORDS + CHARACTERS
"""Features of a text column: hashed words, then hashed character n-grams."""
MARK = "~"


def name_buckets(column: str) -> tuple[str, ...]:
    """Return the names of the features of a text column.

    >>> name_buckets("note")[:2], len(name_buckets("note"))
    (('note~0', 'note~1'), 4096)
    """
    return tuple(f"{column}{MARK}{bucket}" for bucket in range(BUCKETS))


def find_text_columns(features: Sequence[str]) -> tuple[str, ...]:
    """Return the text columns among the feature names of a table, in their order.

    >>> find_text_columns(["age", *name_buckets("note")])
    ('note',)
    """
    last = f"{MARK}{BUCKETS - 1}"
    return tuple(name.removesuffix(last) for name in features if name.endswith(last))
