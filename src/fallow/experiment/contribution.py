"""Minimum number of new labels before sites contribute new statistics of labeled examples.

Two consecutive aggregates of exact statistics differ by the newly labeled examples.  If only one
was added, it can be reconstructed.  Statistics therefore cover the labels of the last contribution,
until ``privacy.min_new_labels`` labels are new.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

from fallow.core import client
from fallow.core.ask import Ask, keep_at_all, sum_of_all
from fallow.core.contract import Contract
from fallow.core.methods import Methods, methods_by_owner
from fallow.core.types import Values
from fallow.core.values import Count, Optional, Whole
from fallow.core.view import View
from fallow.privacy.settings import Privacy


@final
@dataclass(frozen=True)
class MinNewLabels:
    """Decides once before each training phase whose labels statistics are of.

    Attributes
    ----------
    counts_all : bool
        New labels are counted over all sites, by secure aggregation.  Otherwise each site decides by
        its own.
    needs_all : bool
        No site may be missing, as in the exchanges that follow.
    """

    counts_all: bool = False
    needs_all: bool = False

    contract: ClassVar[Contract] = Contract(
        title="Minimum number of new labels",
        regression=True,
    )

    # -- server side ------------------------------------------------------------------------

    def decide(self, ask: Ask) -> None:
        """Let sites contribute their current labels if enough of them are new."""
        total: int | None = None
        if self.counts_all:
            count = sum_of_all if self.needs_all else Ask.sum
            total = round(float(count(ask, self.new_labels)["labels"]))
        if self.needs_all:
            keep_at_all(ask, self.contribute, total=total)
        else:
            ask.keep(self.contribute, total=total)

    # -- client side ------------------------------------------------------------------------

    @client.sum(
        "aggregates of numbers of labels since the last contribution",
        returns={"labels": Count(of="labels")},
        when=lambda self: self.counts_all,
    )
    def new_labels(self, view: View) -> Values:
        return {"labels": float(view.new_labels)}

    @client.keep("nothing", takes={"total": Optional(Whole())})
    def contribute(self, view: View, total: int | None = None) -> Values:
        """Return the number of new labels at this site, or use the number ``total`` of all sites."""
        if total is None:
            total = view.new_labels
        return {"new": total}


def with_min_new_labels(methods: Methods, privacy: Privacy, *, classes: bool) -> Methods:
    """Add the decision on contributions to the algorithms of a run, if one of them needs it.

    ``classes`` means classification, which has no scale of regression targets.
    """
    if privacy.waits_for == 1:
        return methods
    waiting = []
    for owner, method in methods_by_owner(methods).items():
        if method.contract.waits and not (classes and owner == "scaling"):
            waiting.append(method.contract)
    if not waiting:
        return methods
    min_new_labels = methods.copy()
    min_new_labels["contribution"] = MinNewLabels(
        counts_all=privacy.secure_sum,
        needs_all=any(contract.missing.startswith("stops") for contract in waiting),
    )
    return min_new_labels
