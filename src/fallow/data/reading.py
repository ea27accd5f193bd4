"""Summary of the import of a user's own data: examples by site, columns, omitted parts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, final

import numpy as np
import numpy.typing as npt

ALL = ""
"""Name under which examples are counted if the data name no sites."""


@final
@dataclass(frozen=True)
class OmittedExamples:
    """Omitted examples: the reason, and their number at each site."""

    reason: str
    rows: Mapping[str, int]

    @property
    def total(self) -> int:
        return sum(self.rows.values())


@final
@dataclass(frozen=True)
class ColumnRead:
    """Import of one column of a table.

    kind: "number", "category" or "left out".  values: levels of a category.  missing: empty cells,
    by site in ``missing_at``.  reason: why it was omitted.
    """

    name: str
    kind: str
    values: tuple[str, ...] = ()
    missing: int = 0
    reason: str = ""
    missing_at: Mapping[str, int] = field(default_factory=dict)


@final
@dataclass(frozen=True)
class Reading:
    """Import of a user's own files or arrays, before any random draw.

    rows: number of examples read at each site.  left_out: omitted examples.
    """

    source: str
    rows: Mapping[str, int]
    left_out: tuple[OmittedExamples, ...] = ()
    columns: tuple[ColumnRead, ...] = ()

    @property
    def total(self) -> int:
        return sum(self.rows.values())

    @property
    def kept(self) -> dict[str, int]:
        """Number of examples of each site that a study uses."""
        counter: Counter[str] = Counter()
        for item in self.left_out:
            counter.update(item.rows)
        return {site: rows - counter[site] for site, rows in self.rows.items()}

    def without(self, reason: str, rows: Mapping[str, int]) -> Reading:
        """Return the summary after further examples are omitted."""
        if not any(rows.values()):
            return self
        left_out = (*self.left_out, OmittedExamples(reason, dict(rows)))
        return Reading(self.source, self.rows, left_out, self.columns)


def count_at(
    sites: Sequence[str] | npt.NDArray[Any] | None, rows: npt.NDArray[np.bool_]
) -> dict[str, int]:
    """Count the marked examples of each site; all together without sites."""
    if sites is None:
        return {ALL: int(rows.sum())}
    names, codes = np.unique(np.asarray(sites), return_inverse=True)
    counts = np.bincount(codes[rows], minlength=len(names)).tolist()
    return {str(name): int(n) for name, n in zip(names, counts, strict=True)}
