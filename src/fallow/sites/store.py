"""Where a site's state is kept between exchanges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple, Protocol

from fallow.core.types import SiteId, State
from fallow.privacy import Released, ReleaseLedger
from fallow.privacy.ledger import SumKey
from fallow.storage.checksums import checksum
from fallow.storage.packing import pack


class Label(NamedTuple):
    """One line of a site's ledger: a label that was bought, and what the query attached to it.

    ``held``: it is held back for validation and trains nothing.
    """

    row: int
    value: float
    cycle: int
    weight: float = 1.0
    probability: float | None = None
    is_validation: bool = False


class Contribution(NamedTuple):
    """The labels whose exact statistics a site contributes.

    ``turn``: the step that decided on them last; "" where none of this run did.
    ``gone``: rows that were in no pool then.
    """

    turn: str = ""
    labels: tuple[Label, ...] = ()
    gone: tuple[int, ...] = ()


@dataclass(frozen=True)
class RelayedMessage:
    """A reply from one site to others, stored as one object for all receivers."""

    state: State

    @cached_property
    def content(self) -> bytes:
        """The answer as bytes."""
        return pack(self.state)

    @cached_property
    def mark(self) -> bytes:
        """Checksum, by which equal contents are recognized."""
        return checksum(self.content)


RelayedMessages = Mapping[SiteId, RelayedMessage]
"""Messages that one site received in one relay, by sender."""


class Store(ReleaseLedger, Protocol):
    """Keeps what sites remember, released and hide.  All changes of one exchange are one
    transaction."""

    def keep(self, site: SiteId, name: str, state: State | None) -> None:
        """Remember a state under a name, or with None forget it."""

    def receive(self, site: SiteId, verb: str, messages: RelayedMessages) -> None:
        """Remember what a relay brought, under ``verb/sender``, and forget what an earlier one of
        the verb did."""

    def load_states(self, site: SiteId) -> dict[str, State]:
        """All that a site remembers, by name: a new dictionary."""
        ...

    def write(self, site: SiteId, labels: Sequence[Label]) -> None:
        """Add labels that were bought."""

    def load_labels(self, site: SiteId) -> list[Label]:
        """All labels that were bought: a new list."""
        ...

    def contribute(self, site: SiteId, contribution: Contribution) -> None:
        """Replace the labels whose statistics leave; never undone."""

    def load_contribution(self, site: SiteId) -> Contribution:
        """The labels whose statistics leave."""
        ...


@dataclass
class MemoryStore:
    """A store that ends with the process."""

    states: dict[SiteId, dict[str, State]] = field(default_factory=dict)
    labels: dict[SiteId, list[Label]] = field(default_factory=dict)
    book: dict[SiteId, dict[str, Released]] = field(default_factory=dict)
    secrets: dict[SiteId, SumKey] = field(default_factory=dict)
    contributions: dict[SiteId, Contribution] = field(default_factory=dict)

    def keep(self, site: SiteId, name: str, state: State | None) -> None:
        """Remember a state under a name, or with None forget it."""
        if state is None:
            self.states.get(site, {}).pop(name, None)
        else:
            self.states.setdefault(site, {})[name] = state

    def receive(self, site: SiteId, verb: str, messages: RelayedMessages) -> None:
        """Remember what a relay brought instead of what an earlier one did."""
        states = self.states.setdefault(site, {})
        for name in names_from_relay(verb, states):
            del states[name]
        for sender, letter in messages.items():
            states[f"{verb}/{sender}"] = letter.state

    def load_states(self, site: SiteId) -> dict[str, State]:
        """All that a site remembers, by name."""
        return dict(self.states.get(site, {}))

    def write(self, site: SiteId, labels: Sequence[Label]) -> None:
        """Add labels that were bought."""
        self.labels.setdefault(site, []).extend(labels)

    def load_labels(self, site: SiteId) -> list[Label]:
        """All labels in the order of buying."""
        return list(self.labels.get(site, []))

    def contribute(self, site: SiteId, contribution: Contribution) -> None:
        """Replace the labels whose statistics leave."""
        self.contributions[site] = contribution

    def load_contribution(self, site: SiteId) -> Contribution:
        """The labels whose statistics leave; none before the first contribution."""
        return self.contributions.get(site, Contribution())

    def spend(self, site: SiteId, key: str, released: Released) -> None:
        """Note a release and what it cost."""
        self.book.setdefault(site, {})[key] = released

    def load_releases(self, site: SiteId) -> dict[str, Released]:
        """The releases of a site, by key, in the order of spending."""
        return dict(self.book.get(site, {}))

    def hide(self, site: SiteId, secret: SumKey) -> None:
        """Keep a secret of a site; it replaces the one before."""
        self.secrets[site] = secret

    def load_secret(self, site: SiteId) -> SumKey | None:
        """The secret that was hidden last; None where there is none."""
        return self.secrets.get(site)


def names_from_relay(verb: str, memory: Mapping[str, State]) -> list[str]:
    """Return the names in a memory under which relays of a client function stored messages."""
    return [name for name in memory if name.startswith(f"{verb}/")]
