"""Notes of strategies beside their selected examples. Invalid notes are ignored.

A strategy can store any value under any name. Two strategies can use one name for different values,
and a report must not fail because of that.
"""

from __future__ import annotations

import math

from fallow.experiment.record import Record


def read_number(row: Record, name: str) -> float | None:
    """Return the finite number noted as ``name`` in a record, or None.

    >>> read_number({"notes": {"nan_sites": 3}}, "nan_sites")
    3.0
    >>> read_number({"notes": {"nan_sites": "three"}}, "nan_sites") is None
    True
    """
    value = (row.get("notes") or {}).get(name)
    if isinstance(value, (bool, int, float)) and math.isfinite(value):
        return float(value)
    return None


def read_numbers(row: Record, name: str) -> list[float] | None:
    """Return the finite numbers, one per class, noted as ``name``, or None.

    >>> read_numbers({"notes": {"sigma": [1, 2]}, "per_class": [0.5, 0.9]}, "sigma")
    [1.0, 2.0]
    >>> read_numbers({"notes": {"sigma": [1, 2]}, "per_class": [0.5]}, "sigma") is None
    True
    """
    value = (row.get("notes") or {}).get(name)
    of_classes = row.get("per_class") or ()
    if not isinstance(value, list) or not value or len(value) != len(of_classes):
        return None
    for item in value:
        if not isinstance(item, (bool, int, float)) or not math.isfinite(item):
            return None
    return list(map(float, value))
