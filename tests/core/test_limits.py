"""Each declared range and choice of every component is enforced, and says the field."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

import pytest

from fallow import encoders, strategies, training
from fallow.core.build import names
from fallow.core.limits import Limits, list_limits
from fallow.core.training_config import Optimizer, TrainingConfig, TrainingStage
from fallow.data.partition import partitions
from fallow.privacy.settings import Privacy
from fallow.training import personal

OTHERS = (Optimizer, TrainingConfig, TrainingStage, Privacy)
"""Dataclasses that are no components."""


def list_classes() -> list[Any]:
    """Return all components with declared ranges or choices."""
    places = (strategies, training, personal, encoders, partitions)
    classes = {*names(places).values(), *OTHERS}
    return sorted(filter(is_dataclass, classes), key=lambda cls: cls.__name__)


def list_outside(limits: Limits) -> Iterator[float]:
    """Yield numbers that a range excludes."""
    yield math.nan
    for bound, step in ((limits.ge, -1), (limits.le, 1)):
        if bound is not None:
            yield bound + step
    yield from (bound for bound in (limits.gt, limits.lt) if bound is not None)
    if limits.is_finite:
        yield math.inf


def list_wrong(cls: Any) -> Iterator[tuple[str, Any]]:
    """Yield the fields of a class, each with values that its declaration excludes."""
    for name, (limits, kinds) in list_limits(cls).items():
        if limits is None:  # a choice
            if cls is not Optimizer:  # its message has other words
                yield name, "other"
            continue
        numbers = [*list_outside(limits)]
        if float not in kinds:
            numbers = [int(number) for number in numbers if math.isfinite(number)]
            numbers.append(2.5)
        for value in (*numbers, True, "a few"):
            yield name, value


@pytest.mark.parametrize("cls", list_classes())
def test_values_outside_a_declaration_are_refused(cls: Any) -> None:
    for name, value in list_wrong(cls):
        with pytest.raises(ValueError, match=rf"{name}\b.* is {value!r}; "):
            cls(**{name: value})


def test_most_fields_of_numbers_declare_a_range() -> None:
    without = set()
    for cls in list_classes():
        limits = list_limits(cls)
        for field in fields(cls):
            if field.type in ("int", "float") and field.name not in limits:
                without.add(f"{cls.__name__}.{field.name}")
    assert sorted(without) == []
