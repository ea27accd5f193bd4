"""What every query strategy is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from fallow.core.ask import Ask, To
from fallow.core.contract import Contract
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
