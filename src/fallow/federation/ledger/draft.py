"""What an order changes at a site, until it is done."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import final

from fallow.core.types import SiteId, State
from fallow.federation.ledger.store import SiteStore
from fallow.privacy import Released
from fallow.privacy.ledger import SumKey
from fallow.sites.store import Contribution, Label, RelayedMessages, names_from_relay


@final
class Draft:
    """A store that writes nothing until `flush`, which belongs to the transaction that writes the
    answer.  So training holds no lock, and an order that fails or dies leaves no trace, but for the
    cost of noise (`abandon`)."""

    def __init__(self, store: SiteStore) -> None:
        self._store = store
        self.clear()

    def clear(self) -> None:
        """Forget what an order changed."""
        self._kept: dict[str, State | None] = {}
        self._labels: list[Label] = []
        self._spent: dict[str, Released] = {}
        self._secret: SumKey | None = None
        self._contribution: Contribution | None = None

    @property
    def epsilon(self) -> float:
        """What the order spent on noise."""
        return math.fsum(released.epsilon for released in self._spent.values())

    def flush(self, site: SiteId) -> None:
        """Write everything."""
        for name, state in self._kept.items():
            self._store.keep(site, name, state)
        self._store.write(site, self._labels)
        for key, released in self._spent.items():
            self._store.spend(site, key, released)
        if self._secret is not None:
            self._store.hide(site, self._secret)
        if self._contribution is not None:
            self._store.contribute(site, self._contribution)
        self.clear()

    def abandon(self, site: SiteId) -> None:
        """An order failed, and changes nothing.  Noise that was drawn for it is spent all the same:
        whether an order fails may depend on noisy counts (a bound of a masked sum, for instance),
        and drawn anew again and again they would tell the true ones.

        Raises Refusal beyond the site's own limit, as `flush` does.
        """
        drawn = self._spent
        self.clear()
        if not drawn:
            return
        # what `flush` began to write may stand in the book already
        known = self._store.load_releases(site)
        for key, released in drawn.items():
            if key not in known:
                self._store.spend(site, key, released)

    def keep(self, site: SiteId, name: str, state: State | None) -> None:
        """As `SiteStore.keep`, when the order is done."""
        self._kept[name] = state

    def receive(self, site: SiteId, verb: str, letters: RelayedMessages) -> None:
        """As `SiteStore.keep` for each letter; what an earlier relay of the verb brought goes."""
        for name in names_from_relay(verb, self.load_states(site)):  # of an earlier relay
            self._kept[name] = None
        for sender, letter in letters.items():
            self._kept[f"{verb}/{sender}"] = letter.state

    def load_states(self, site: SiteId) -> dict[str, State]:
        """All that the site remembers, with what the order changed."""
        states = self._store.load_states(site)
        for name, state in self._kept.items():
            if state is None:
                states.pop(name, None)
            else:
                states[name] = state
        return states

    def write(self, site: SiteId, labels: Sequence[Label]) -> None:
        """As `SiteStore.write`, when the order is done."""
        self._labels += labels

    def load_labels(self, site: SiteId) -> list[Label]:
        """All labels by their rows, with those of the order."""
        labels = self._store.load_labels(site)
        labels += self._labels
        return sorted(labels)

    def contribute(self, site: SiteId, contribution: Contribution) -> None:
        """As `SiteStore.contribute`, when the order is done."""
        self._contribution = contribution

    def load_contribution(self, site: SiteId) -> Contribution:
        """The labels whose statistics leave."""
        if self._contribution is not None:
            return self._contribution
        return self._store.load_contribution(site)

    def spend(self, site: SiteId, key: str, released: Released) -> None:
        """As `SiteStore.spend`, when the order is done."""
        self._spent[key] = released

    def load_releases(self, site: SiteId) -> dict[str, Released]:
        """All releases of the run, with those of the order."""
        return {**self._store.load_releases(site), **self._spent}

    def hide(self, site: SiteId, secret: SumKey) -> None:
        """As `SiteStore.hide`, when the order is done."""
        self._secret = secret

    def load_secret(self, site: SiteId) -> SumKey | None:
        """The secret that was hidden last; None where there is none."""
        if self._secret is not None:
            return self._secret
        return self._store.load_secret(site)
