"""Storage of a site: labels, and its states between exchanges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple, Protocol

from fallow.core.disclosure import payload
from fallow.core.types import SiteId, State, Values
from fallow.privacy.ledger import Released, ReleaseLedger, SumKey
from fallow.storage.files import checksum
from fallow.storage.packing import pack


class Label(NamedTuple):
    """Entry of a site's ledger: a label, and the weight and probability from the query.

    ``is_validation``: the label is held out for validation and not used for training. ``fold``: its
    fold of cross-validation, or None before it is decided (`fallow.sites.folds`).
    """

    row: int
    value: float
    cycle: int
    weight: float = 1.0
    probability: float | None = None
    is_validation: bool = False
    fold: int | None = None

    def checksum(self, site: SiteId) -> bytes:
        """Return the checksum of the label at a site, with numbers as a database stores them."""
        probability = self.probability
        if probability is not None:
            probability = float(probability)
        line = (
            site,
            self.row,
            float(self.value),
            self.cycle,
            float(self.weight),
            probability,
            self.is_validation,
            self.fold,
        )
        return checksum(repr(line).encode())


def read_label(line: Sequence[Any], site: SiteId) -> Label | None:
    """Return the label of a line of a database, or None if the line was changed.

    line: the fields of `Label` in their order, and the checksum.
    """
    *values, mark = line
    label = Label._make(values)
    label = label._replace(is_validation=bool(label.is_validation))
    if label.checksum(site) != mark:
        return None
    return label


@dataclass(frozen=True)
class PeerMessage:
    """A reply from one site to others, stored as one object for all receivers."""

    state: State

    @cached_property
    def content(self) -> bytes:
        """Return the reply as bytes."""
        return pack(self.state)

    @cached_property
    def mark(self) -> bytes:
        """Return the checksum that identifies equal contents."""
        return checksum(self.content)


PeerMessages = Mapping[SiteId, PeerMessage]
"""Messages that one site received in one relay, by sender."""


class Store(ReleaseLedger, Protocol):
    """Storage of states, releases and secrets. The changes of an exchange are one transaction."""

    def keep(self, site: SiteId, name: str, state: State | None) -> None:
        """Store a state under a name; None deletes it."""

    def receive(self, site: SiteId, function: str, messages: PeerMessages) -> None:
        """Store relayed messages under ``function/sender``, and delete earlier ones of the function."""

    def load_states(self, site: SiteId) -> dict[str, State]:
        """Return all states of a site by name, as a new dictionary."""
        ...

    def write(self, site: SiteId, labels: Sequence[Label]) -> None:
        """Add labels."""

    def load_labels(self, site: SiteId) -> list[Label]:
        """Return all labels, as a new list."""
        ...


class Question(NamedTuple):
    """A sum over examples whatever their labels, which a site computes once.

    ``over``: "all" or "pool". ``examples``: digest of the positions of these examples. ``digest``: of
    the site, the client function, its arguments, the examples and the scales of the run.
    """

    over: str
    examples: str
    digest: str


class Answers(Protocol):
    """Replies that a site sends again, bit for bit, until the examples of the question change."""

    def load_answer(self, question: Question) -> Values | None:
        """Return the earlier reply, or None."""
        ...

    def keep_answer(self, question: Question, reply: Values) -> None:
        """Store a reply, and delete those about other examples."""


ANSWER_BYTES = 2**27
"""Memory for the answers of all sites of a simulation."""


@dataclass
class MemoryAnswers:
    """Answers of simulated sites in memory, as long as there is room for them."""

    room: int = ANSWER_BYTES  # bytes
    replies: dict[str, Values] = field(default_factory=dict)

    def load_answer(self, question: Question) -> Values | None:
        """Return the earlier reply, or None."""
        return self.replies.get(question.digest)

    def keep_answer(self, question: Question, reply: Values) -> None:
        """Store a reply about all examples.  Those about a pool differ in each cycle."""
        size = payload(reply)
        if question.over != "all" or size > self.room:
            return
        self.room -= size
        self.replies[question.digest] = reply


@dataclass
class MemoryStore:
    """Store in memory."""

    states: dict[SiteId, dict[str, State]] = field(default_factory=dict)
    labels: dict[SiteId, list[Label]] = field(default_factory=dict)
    releases: dict[SiteId, dict[str, Released]] = field(default_factory=dict)
    secrets: dict[SiteId, SumKey] = field(default_factory=dict)

    def keep(self, site: SiteId, name: str, state: State | None) -> None:
        """Store a state under a name; None deletes it."""
        if state is None:
            self.states.get(site, {}).pop(name, None)
        else:
            self.states.setdefault(site, {})[name] = state

    def receive(self, site: SiteId, function: str, messages: PeerMessages) -> None:
        """Store relayed messages and delete earlier ones of the same client function."""
        states = self.states.setdefault(site, {})
        for name in names_from_relay(function, states):
            del states[name]
        for sender, peer_message in messages.items():
            states[f"{function}/{sender}"] = peer_message.state

    def load_states(self, site: SiteId) -> dict[str, State]:
        """Return all states of a site by name."""
        return dict(self.states.get(site, {}))

    def write(self, site: SiteId, labels: Sequence[Label]) -> None:
        """Add labels."""
        self.labels.setdefault(site, []).extend(labels)

    def load_labels(self, site: SiteId) -> list[Label]:
        """Return all labels in the order in which they were added."""
        return list(self.labels.get(site, []))

    def spend(self, site: SiteId, key: str, released: Released) -> None:
        """Record a release and its privacy cost."""
        self.releases.setdefault(site, {})[key] = released

    def load_releases(self, site: SiteId) -> dict[str, Released]:
        """Return the releases of a site by key, in the order of spending."""
        return dict(self.releases.get(site, {}))

    def hide(self, site: SiteId, secret: SumKey) -> None:
        """Store a secret of a site, which replaces the previous one."""
        self.secrets[site] = secret

    def load_secret(self, site: SiteId) -> SumKey | None:
        """Return the current secret of a site, or None."""
        return self.secrets.get(site)


def names_from_relay(function: str, memory: Mapping[str, State]) -> list[str]:
    """Return the names in a memory under which relays of a client function stored messages."""
    return [name for name in memory if name.startswith(f"{function}/")]
