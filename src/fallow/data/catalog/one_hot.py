"""One-hot encoding of texts in the form of published benchmarks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

MISSING = "missing"


def one_hot(
    column: str, codes: npt.NDArray[np.integer], levels: Sequence[str]
) -> tuple[npt.NDArray[np.float32], tuple[str, ...]]:
    """Return a column for each level and one for "missing", which stays 0, with their
    names.

    codes: (n,) numbers of levels; the result is (n, levels + 1). The first of two levels
    has no column. This is the form of the bmdal_reg benchmark (Holzmüller et al., 2023),
    whose shapes are in FALE's Table 1. No level is omitted to make the columns independent.

    >>> one_hot("wet", np.array([1, 0, 1]), ("no", "yes"))[1]
    ('wet=yes', 'wet=missing')
    """
    first = 0
    if len(levels) == 2:
        first = 1
    columns = []
    names = []
    for level in range(first, len(levels)):
        columns.append(codes == level)
        names.append(f"{column}={levels[level]}")
    columns.append(np.zeros(len(codes), dtype=bool))
    names.append(f"{column}={MISSING}")
    return np.stack(columns, axis=1).astype(np.float32), tuple(names)
