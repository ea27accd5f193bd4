"""A run that goes back: what its coordinator asks anew.

When a site is left out of a round, or nothing can be computed with an answer, the coordinator asks
again what came since, under keys that no site has seen, such as ``0/train/3/0~1``.  A site goes
along: what it was asked from that place on stands no more, so that it can be asked again, with
other models.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from fallow.core.refusal import Refusal
from fallow.core.types import SiteId
from fallow.federation.ledger.orders import Orders
from fallow.federation.site.schedule import OrderPlace, RunSchedule
from fallow.network.envelope import Order


@final
@dataclass(frozen=True)
class GoingBack:
    """The runs of a study, as they go back at a site.

    A coordinator gains no label, no labeling task, no score, no epsilon and no delta by it: these
    are counted in totals that are never taken back.

    is_masked: sums are secure sums.  Then a run goes back to its newest exchange alone: a sum that
    is begun anew among fewer sites, with other keys, would show the part of those that are missing
    (`privacy.guard`).
    """

    schedule: RunSchedule
    orders: Orders
    site: SiteId
    is_masked: bool = False

    def follow(self, order: Order, place: OrderPlace, newest: str | None) -> None:
        """Go back where a new order does.  In the transaction of its turn, so that it counts also
        where the order fails.

        newest: the key of what the run has asked last.  Raises Refusal for an order that comes
        before it and is not asked anew.
        """
        if self.orders.is_taken_back(order.run, order.key):
            raise Refusal(
                f"site {self.site} has gone back behind exchange {order.key}, and it is over: this "
                "is a replay, or the coordinator's folder was put back from a backup"
            )
        is_back = newest is not None and place.rank <= self.schedule.place(newest).rank
        if is_back and not place.is_anew:
            raise Refusal(
                f"site {self.site} has performed {newest}, and order {order.key} comes before it in "
                "a run of this study: a run goes on, and goes back where something is asked anew"
            )
        if self.is_masked and place.is_anew:
            self._check_newest(order, place)
        if is_back or self._has_failed(order, place):
            self._go_back(order, place)

    def _check_newest(self, order: Order, place: OrderPlace) -> None:
        """Of all that was ever asked in a run, also where it stands no more: else a run could go
        back one exchange at a time."""
        for key in self.orders.load_every_key(order.run):
            if place.rank < self.schedule.place(key).rank:
                raise Refusal(
                    f"site {self.site} has performed {key} and does not go back to {order.key}: "
                    "with secure sums nothing but the newest exchange is asked anew"
                )

    def _has_failed(self, order: Order, place: OrderPlace) -> bool:
        """Whether the exchange failed under another key, which is over then."""
        for key in self.orders.load_failed_keys(order.run):
            if key != order.key and self.schedule.place(key).rank == place.rank:
                return True
        return False

    def _go_back(self, order: Order, place: OrderPlace) -> None:
        newest: str | None = None  # of what was performed before this place
        taken_back: list[str] = []
        for key in self.orders.load_standing_keys(order.run):
            if self.schedule.place(key).rank < place.rank:
                newest = key
            else:
                taken_back.append(key)
        for key in self.orders.load_failed_keys(order.run):
            if self.schedule.place(key).rank >= place.rank:
                taken_back.append(key)
        self.orders.go_back(run=order.run, key=order.key, keys=taken_back, newest=newest)
