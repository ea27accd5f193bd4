"""Empty cells of a table: what the sites put there, learned from totals over training rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor


@final
@dataclass(frozen=True)
class Missing:
    """A table has empty cells, which are NaN in its rows until the sites fill them in together.

    levels: of each category, the places (first, last + 1) of its columns of 0 and 1.
    marks: features that are 1 where a cell was empty, each with the column whose cells it marks.
    """

    levels: tuple[tuple[int, int], ...] = ()
    marks: tuple[tuple[str, str], ...] = ()

    def fill(self, totals: Tensor, given: Tensor) -> Tensor:
        """What an empty cell of each column becomes: (d,).

        The mean of a number; of a category the level that most rows have, the first of several.
        totals: (d,) sums of the cells that are not empty.  given: (d,) how many those are.
        A column without any becomes 0.

        >>> totals, given = torch.tensor([6.0, 1.0, 2.0]), torch.tensor([3.0, 3.0, 3.0])
        >>> Missing(levels=((1, 3),)).fill(totals, given).tolist()
        [2.0, 0.0, 1.0]
        """
        fill = totals / given.clamp(min=1.0)
        for first, end in self.levels:
            most = int(totals[first:end].argmax())
            fill[first:end] = 0.0
            fill[first + most] = 1.0
        return fill


def name_marks(
    features: Sequence[str], columns: Sequence[str]
) -> tuple[tuple[str, str], ...]:
    """A feature for each of ``columns`` that is 1 where a cell is empty, with the column it marks.

    features: the names that are taken.

    >>> name_marks(("age", "dose", "dose_missing"), ("age", "dose"))
    (('age_missing', 'age'), ('dose_missing_', 'dose'))
    """
    marks: list[tuple[str, str]] = []
    for column in columns:
        name = f"{column}_missing"
        while name in features:
            name += "_"
        marks.append((name, column))
    return tuple(marks)


def total_cells(blocks: Iterable[Tensor]) -> dict[str, Tensor | float]:
    """What a site tells of its cells: ``rows``, and of each column (d,) the sum of the cells that
    are not empty, ``columns``, and how many those are, ``given``.

    blocks: rows (b, d) in float64, NaN where a cell is empty.
    Raises ValueError for an infinite number.

    >>> found = total_cells([torch.tensor([[1.0, torch.nan], [2.0, 5.0]]).double()])
    >>> found["rows"], found["columns"].tolist(), found["given"].tolist()
    (2.0, [3.0, 5.0], [2.0, 1.0])
    """
    n_rows = 0
    total: Tensor | float = 0.0
    value: Tensor | float = 0.0
    for rows in blocks:
        if bool(rows.isinf().any()):
            raise ValueError("a feature is infinite; correct it, or leave such rows out")
        n_rows += len(rows)
        total = total + rows.nansum(0)
        value = value + (~rows.isnan()).sum(0).double()
    return {"rows": float(n_rows), "columns": total, "given": value}


def filled(x: Tensor, fill: Tensor | None) -> Tensor:
    """Rows without NaN: (n, d) and (d,) -> (n, d); None: the rows as they are."""
    if fill is None:
        return x
    return torch.where(x.isnan(), fill.to(x.dtype), x)
