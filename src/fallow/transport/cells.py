"""Plausibility of aggregates for the imputation of empty cells."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from fallow.core.missing import Missing

CELLS = frozenset({"rows", "columns", "given"})
"""Fields of a reply with aggregates of cells."""


def are_cells(answer: Mapping[str, object]) -> bool:
    """Return whether a reply has aggregates of cells."""
    return answer.keys() >= CELLS


def find_fault_in_cells(
    answer: Mapping[str, object], missing: Missing | None, width: int, room: float = 0.0
) -> str | None:
    """Explain why cell aggregates are impossible, or return None if they are possible.

    ``given`` (d,) counts the nonempty cells of each column among ``rows`` rows. ``columns`` (d,)
    has the column sums, which are counts for categories. ``width`` is d. ``room`` is the tolerance
    for rounding, for example of fixed-point numbers.
    """
    rows = torch.as_tensor(answer["rows"], dtype=torch.float64)
    totals = torch.as_tensor(answer["columns"], dtype=torch.float64)
    tensor = torch.as_tensor(answer["given"], dtype=torch.float64)
    for name, value in (("columns", totals), ("given", tensor)):
        if value.shape != (width,):
            return f"{name} has the shape {tuple(value.shape)}, and a row has {width} cells"
    if rows.ndim:
        return "rows is no single number"
    if bool((tensor < -room).any()):
        return f"given is {float(tensor.min()):g}, and no count is below 0"
    if bool((tensor > rows + room).any()):
        return f"given is {float(tensor.max()):g}, more cells than the {float(rows):g} rows have"
    if not room and bool((tensor != tensor.round()).any()):
        return "given has a part of a cell, and cells are counted"
    without = tensor <= room
    if bool((totals[without].abs() > room).any()):
        return "columns is not 0 where no cell is given"
    if missing is None:
        return None
    return _find_fault_in_levels(totals, tensor, missing, room)


def _find_fault_in_levels(
    totals: Tensor, given: Tensor, missing: Missing, room: float
) -> str | None:
    """Check that each nonempty categorical cell has exactly one level."""
    for first, end in missing.levels:
        counts = totals[first:end]
        cells = float(given[first])
        is_same = bool(((given[first:end] - cells).abs() <= 2 * room).all())
        if bool((counts < -room).any()):
            return f"columns has {float(counts.min()):g} cells with one text, and no count is below 0"
        away = abs(float(counts.sum()) - cells)
        if not is_same or away > room * (end - first + 1):
            return (
                f"columns has {float(counts.sum()):g} cells with the texts of one column, and "
                f"{cells:g} of them are given"
            )
    return None
