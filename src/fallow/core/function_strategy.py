"""A plain function as a query strategy."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import field, fields, make_dataclass
from functools import cache
from typing import Any

from fallow.core import client
from fallow.core.contract import Contract
from fallow.core.values import LabelCount

SELECTS = client.keep("number of selected examples", takes={"n": LabelCount()})
SIGNATURE = (
    "a query strategy is a function of (view, n) that returns n positions in the pool"
)


@cache
def strategy_class(function: Callable[..., Any]) -> type[Any]:
    """Return the query strategy whose ``select`` is the function: (view, n,
    setting=default, ...).

    Its contract has only `select`: the coordinator sees the number of selected examples.
    Raises ValueError for a function with other parameters.

    >>> def largest(view, n, power=1.0): ...
    >>> strategy_class(largest)(power=2.0)
    largest(power=2.0)
    """
    name = function.__name__.strip("<>")
    parameters = list(inspect.signature(function).parameters.values())
    _check_parameters(name, parameters)
    settings = []
    for parameter in parameters[2:]:
        default = field(kw_only=True)
        if parameter.default is not parameter.empty:
            default = field(default=parameter.default, kw_only=True)
        settings.append((parameter.name, parameter.annotation, default))
    members = {
        "__doc__": function.__doc__,
        "contract": Contract(title=name),
        "query": _ask_for_selection,
        "select": SELECTS(_call(function)),
    }
    made = make_dataclass(name, settings, namespace=members, frozen=True)
    made.__module__ = function.__module__
    return made


def _check_parameters(name: str, parameters: list[inspect.Parameter]) -> None:
    splats = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    has_splat = any(parameter.kind in splats for parameter in parameters)
    if len(parameters) < 2 or has_splat:
        shown = ", ".join(map(str, parameters))
        raise ValueError(f"{name}({shown}) is not a query strategy: {SIGNATURE}")


def _ask_for_selection(self: Any, ask: Any, budget: Mapping[str, int], memo: Any) -> Any:
    """Let every site select as many examples as its label budget (server side)."""
    to = {site: {"n": n} for site, n in budget.items() if n > 0}
    ask.keep(self.select, to=to)
    return memo


def _call(function: Callable[..., Any]) -> Callable[..., Any]:
    def select(self: Any, view: Any, n: int) -> Any:
        settings = {item.name: getattr(self, item.name) for item in fields(self)}
        return function(view, n, **settings)

    return select
