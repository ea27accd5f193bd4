"""Helpers of query strategies; see `fallow.core.methods` for their protocols."""

from __future__ import annotations

from dataclasses import Field, fields
from typing import Any, ClassVar, Literal, Protocol, get_args, get_origin, get_type_hints

from fallow.core import client
from fallow.core.messages import To
from fallow.core.methods import Budget, Memo
from fallow.core.values import Kind, LabelCount

__all__ = ["Budget", "Memo", "check_choices", "orders", "selects", "stores"]


class DataclassInstance(Protocol):
    """Instance of any dataclass, as accepted by `dataclasses.fields`."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]


def orders(budget: Budget) -> To:
    """Return the number of selected examples of each site, as ``to`` of an exchange.

    Sites without label budget are not included.
    """
    return {site: {"n": n} for site, n in budget.items() if n > 0}


def selects(**takes: Kind) -> client.ClientFunction:
    """Declare a client function that selects ``n`` examples, and its other arguments."""
    kinds = {"n": LabelCount(), **takes}
    return client.keep("number of selected examples", takes=kinds)


def stores(**takes: Kind) -> client.ClientFunction:
    """Declare a client function whose result the site stores, and its arguments."""
    return client.keep("number of tensors kept", takes=takes)


def check_choices(strategy: DataclassInstance) -> None:
    """Raise ValueError if a `Literal` field holds another value.

    A misspelled choice must not run as another one.
    """
    hints = get_type_hints(type(strategy))
    for field in fields(strategy):
        hint = hints[field.name]
        known = get_args(hint)
        value = getattr(strategy, field.name)
        if get_origin(hint) is Literal and value not in known:
            name = f"{type(strategy).__name__}'s {field.name}"
            choices = ", ".join(map(repr, known))
            raise ValueError(f"{name} is {value!r}; use one of {choices}")
