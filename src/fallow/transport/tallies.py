"""Plausibility of tallies in an evaluation set, which estimate the error of a model."""

from __future__ import annotations

from collections.abc import Mapping

import torch

TALLY = frozenset({"chosen", "wrong", "left", "doubt", "drawn", "beyond", "squares"})
"""Fields of a reply about selected and drawn rows (`fallow.experiment.audit`)."""
NOT_NEGATIVE = ("chosen", "wrong", "left", "doubt", "drawn", "squares")


def are_tallies(answer: Mapping[str, object]) -> bool:
    """Return whether a reply is a tally or an aggregate of tallies."""
    return answer.keys() >= TALLY


def find_fault_in_tallies(
    answer: Mapping[str, object],
    rows: float | None,
    labels: float | None,
    room: float = 0.0,
) -> str | None:
    """Explain why a tally of ``rows`` rows and ``labels`` labels is impossible, or return None.

    Counts may be None if they are unknown. ``room`` is the tolerance for rounding, for example of
    fixed-point numbers.

    >>> answer = dict.fromkeys(TALLY, 0.0)
    >>> find_fault_in_tallies({**answer, "drawn": 3.0}, rows=9, labels=2)
    'drawn is 3, and there are 2 labels at most'
    """
    values = {}
    for name in sorted(TALLY):
        value = torch.as_tensor(answer[name], dtype=torch.float64)
        if value.ndim:
            return f"{name} is no single number"
        values[name] = float(value)
    for name in NOT_NEGATIVE:
        if values[name] < -room:
            return f"{name} is {values[name]:g}, which is below 0"
    together = values["chosen"] + values["left"]
    if rows is not None and together > rows + room:
        return f"chosen and left are {together:g} together, and there are {rows:g} rows"
    if values["doubt"] > values["left"] + room:
        return f"doubt is {values['doubt']:g}, more than left, {values['left']:g}"
    if labels is not None and values["drawn"] > labels + room:
        return f"drawn is {values['drawn']:g}, and there are {labels:g} labels at most"
    most = values["drawn"] * values["squares"]  # Cauchy-Schwarz inequality
    beyond = (
        values["beyond"] * values["beyond"]
    )  # infinite instead of a power that overflows
    if beyond > most * (1 + 1e-6) + room * (1 + values["drawn"]):
        return "beyond is more than its squares allow"
    return None
