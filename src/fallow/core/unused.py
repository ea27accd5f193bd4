"""Rejection of fields that have no effect, because another field or the data switch them off."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def refuse_unused(
    algorithm: object, *names: str, switch: str, used_with: Sequence[object]
) -> None:
    """Raise ValueError if a field is set while another one switches it off.

    ``switch`` is the other field, and ``used_with`` are its values with which the fields ``names``
    have an effect.
    """
    setting = getattr(algorithm, switch)
    if setting in used_with:
        return
    title = type(algorithm).__name__
    for name in names:
        value = getattr(algorithm, name)
        if value != getattr(type(algorithm), name):
            raise ValueError(
                f"{title}'s {name} is {value!r} and its {switch} is {setting!r}, which does not use "
                f"{name}; set {switch}={used_with[0]!r} or leave {name} out"
            )


def refuse_for_classes(strategy: Any) -> None:
    """Raise ValueError if a field that applies to regression only is set for classification."""
    for name in strategy.contract.regression_fields:
        value = getattr(strategy, name)
        if value != getattr(type(strategy), name):
            raise ValueError(
                f"{type(strategy).__name__}'s {name} is {value!r} and applies to regression only, but "
                f"the data have classes; leave {name} out"
            )
