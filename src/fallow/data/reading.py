"""What reading a person's own data came to: rows by site, columns, what was left out and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, final

import numpy as np
import numpy.typing as npt

ALL = ""
"""The name under which rows are counted where the data names no sites."""


@final
@dataclass(frozen=True)
class LeftOut:
    """Rows that were left out: why, and how many at each site."""

    why: str
    rows: Mapping[str, int]

    @property
    def total(self) -> int:
        return sum(self.rows.values())


@final
@dataclass(frozen=True)
class ColumnRead:
    """How one column of a table was read.

    kind: "number", "category" or "left out".  values: of a category.  missing: empty cells, by site
    in ``missing_at``.  why: it was left out.
    """

    name: str
    kind: str
    values: tuple[str, ...] = ()
    missing: int = 0
    why: str = ""
    missing_at: Mapping[str, int] = field(default_factory=dict)


@final
@dataclass(frozen=True)
class Reading:
    """What was read from a person's own files or arrays, before a study draws anything.

    rows: read at each site.  left_out: rows of those that no study sees.
    """

    source: str
    rows: Mapping[str, int]
    left_out: tuple[LeftOut, ...] = ()
    columns: tuple[ColumnRead, ...] = ()

    @property
    def total(self) -> int:
        return sum(self.rows.values())

    @property
    def kept(self) -> dict[str, int]:
        """Rows of each site that a study sees."""
        counter: Counter[str] = Counter()
        for item in self.left_out:
            counter.update(item.rows)
        return {site: rows - counter[site] for site, rows in self.rows.items()}

    def without(self, why: str, rows: Mapping[str, int]) -> Reading:
        """The reading once further rows were left out."""
        if not any(rows.values()):
            return self
        left_out = (*self.left_out, LeftOut(why, dict(rows)))
        return Reading(self.source, self.rows, left_out, self.columns)


def count_at(
    sites: Sequence[str] | npt.NDArray[Any] | None, rows: npt.NDArray[np.bool_]
) -> dict[str, int]:
    """How many of the marked rows each site has; all of them together without sites."""
    if sites is None:
        return {ALL: int(rows.sum())}
    names, codes = np.unique(np.asarray(sites), return_inverse=True)
    counts = np.bincount(codes[rows], minlength=len(names)).tolist()
    return {str(name): int(n) for name, n in zip(names, counts, strict=True)}
