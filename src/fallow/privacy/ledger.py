"""What a site has let out under its name for good: releases and the ε that they cost."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

from fallow.core.refusal import Refusal
from fallow.core.types import Answer, SiteId


class Released(NamedTuple):
    """One noisy answer: what it cost, what it answered to, and itself."""

    epsilon: float
    digest: str
    answer: Answer


class Ledger(Protocol):
    """The site's own book.  An entry is in the same transaction as the answer it allows out."""

    def spend(self, site: SiteId, key: str, released: Released) -> None: ...
    def released(
        self, site: SiteId
    ) -> dict[str, Released]: ...  # by key, in the order of spending
    def hide(
        self, site: SiteId, secret: dict[str, Any]
    ) -> None: ...  # replaces the one before
    def hidden(self, site: SiteId) -> dict[str, Any] | None: ...


def check_budget(
    site: SiteId, book: Mapping[str, Released], epsilon: float, total: float | None
) -> None:
    """Raise ValueError where one more release would spend more than ``total``.

    Releases compose sequentially: ε adds up, because earlier labels are in every later count.
    """
    spent = math.fsum(line.epsilon for line in book.values())
    if total is not None and spent + epsilon > total * (1 + 1e-9):
        raise Refusal(
            f"site {site} has spent epsilon {spent:g} of {total:g} in {len(book)} releases and "
            f"releases nothing more: another would cost {epsilon:g}; raise privacy.total, lower "
            "privacy.epsilon or ask fewer queries, in a new run"
        )
