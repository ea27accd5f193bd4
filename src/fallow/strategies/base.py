"""Helpers of query strategies; see `fallow.core.methods` for their protocols."""

from __future__ import annotations

from fallow.core import client
from fallow.core.limits import check_fields
from fallow.core.messages import To
from fallow.core.methods import Budget, Memo
from fallow.core.values import Kind, LabelCount

__all__ = ["Budget", "Memo", "check_fields", "label_counts", "selects", "stores"]


def label_counts(budget: Budget) -> To:
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
    return client.keep("number of stored tensors", takes=takes)
