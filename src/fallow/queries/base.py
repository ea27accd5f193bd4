"""What every query strategy is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Literal, Protocol, get_args, get_origin, get_type_hints

from fallow.core.ask import Ask
from fallow.core.contract import Contract
from fallow.core.messages import To
from fallow.core.types import SiteId

Budget = Mapping[SiteId, int]
"""Labels each site may buy in this cycle."""

Memo = dict[str, Any]
"""What a method remembers across cycles; journaled.  ``memo["notes"]`` is shown in reports."""


class Query(Protocol):
    """A strategy: the server half is `query`, the site half its verbs.

    A verb that picks returns `Picks` with exactly ``min(n, pool)`` different pool positions.  The
    site answers for an empty pool before any verb that picks is asked.
    """

    contract: Contract

    def query(self, ask: Ask, budget: Budget, memo: Memo) -> Memo: ...


def orders(budget: Budget) -> To:
    """Each site's own number of picks, as the ``to`` of an exchange; sites that buy nothing are
    not asked."""
    return {site: {"n": n} for site, n in budget.items() if n > 0}


def check_choices(query: Any) -> None:
    """Raise ValueError where a field that is a `Literal` holds none of its values: a misspelt
    choice must not run as another."""
    hints = get_type_hints(type(query))
    for field in fields(query):
        known, value = get_args(hints[field.name]), getattr(query, field.name)
        if get_origin(hints[field.name]) is Literal and value not in known:
            name = f"{type(query).__name__}'s {field.name}"
            raise ValueError(
                f"{name} is {value!r}; use one of {', '.join(map(repr, known))}"
            )
