"""Changes that an instruction makes at a site, buffered until it is completed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import final

from fallow.core.types import SiteId, State, Values
from fallow.deployment.ledger.store import SiteStore
from fallow.privacy.ledger import Released, SumKey
from fallow.sites.store import Label, PeerMessages, Question, names_from_relay


@final
class Draft:
    """Store that writes nothing until `flush`, in the transaction that stores the reply.

    Training therefore holds no lock. An instruction that fails leaves no changes except the privacy
    cost of its noise (`abandon`).
    """

    def __init__(self, store: SiteStore) -> None:
        self._store = store
        self.clear()

    def clear(self) -> None:
        """Discard the changes of an instruction."""
        self._kept: dict[str, State | None] = {}
        self._labels: list[Label] = []
        self._answers: dict[Question, Values] = {}
        self._spent: dict[str, Released] = {}
        self._secret: SumKey | None = None

    @property
    def epsilon(self) -> float:
        """Return the epsilon that the instruction spent."""
        return math.fsum(released.epsilon for released in self._spent.values())

    def flush(self, site: SiteId) -> None:
        """Write all changes."""
        for name, state in self._kept.items():
            self._store.keep(site, name, state)
        self._store.write(site, self._labels)
        for question, reply in self._answers.items():
            self._store.keep_answer(question, reply)
        for key, released in self._spent.items():
            self._store.spend(site, key, released)
        if self._secret is not None:
            self._store.hide(site, self._secret)
        self.clear()

    def abandon(self, site: SiteId) -> None:
        """Discard the changes of a failed instruction, but charge the noise that was drawn.

        Whether an instruction fails may depend on noisy counts, for example on the bound of a
        masked sum. Fresh noise for repeated attempts would reveal the true counts.

        Raises Refusal beyond the site's own limit, as `flush` does.
        """
        drawn = self._spent
        self.clear()
        if not drawn:
            return
        # `flush` may have written some of the releases already
        known = self._store.load_releases(site)
        for key, released in drawn.items():
            if key not in known:
                self._store.spend(site, key, released)

    def keep(self, site: SiteId, name: str, state: State | None) -> None:
        """Store a state as `SiteStore.keep` does, at the end of the instruction."""
        self._kept[name] = state

    def receive(self, site: SiteId, function: str, messages: PeerMessages) -> None:
        """Store peer messages, and delete those of an earlier relay of the client function."""
        # messages of an earlier relay
        for name in names_from_relay(function, self.load_states(site)):
            self._kept[name] = None
        for sender, peer_message in messages.items():
            self._kept[f"{function}/{sender}"] = peer_message.state

    def load_states(self, site: SiteId) -> dict[str, State]:
        """Return all stored states, including the changes of the instruction."""
        states = self._store.load_states(site)
        for name, state in self._kept.items():
            if state is None:
                states.pop(name, None)
            else:
                states[name] = state
        return states

    def write(self, site: SiteId, labels: Sequence[Label]) -> None:
        """Write labels as `SiteStore.write` does, at the end of the instruction."""
        self._labels += labels

    def load_labels(self, site: SiteId) -> list[Label]:
        """Return all labels by row, including those of the instruction."""
        labels = self._store.load_labels(site)
        labels += self._labels
        return sorted(labels)

    def load_answer(self, question: Question) -> Values | None:
        """Return the earlier reply to a question, also of the instruction, or None."""
        if question in self._answers:
            return self._answers[question]
        return self._store.load_answer(question)

    def keep_answer(self, question: Question, reply: Values) -> None:
        """Store a reply as `SiteStore.keep_answer` does, at the end of the instruction."""
        self._answers[question] = reply

    def spend(self, site: SiteId, key: str, released: Released) -> None:
        """Record a release as `SiteStore.spend` does, at the end of the instruction."""
        self._spent[key] = released

    def load_releases(self, site: SiteId) -> dict[str, Released]:
        """Return all releases of the run, including those of the instruction."""
        return {**self._store.load_releases(site), **self._spent}

    def hide(self, site: SiteId, secret: SumKey) -> None:
        """Store a secret as `SiteStore.hide` does, at the end of the instruction."""
        self._secret = secret

    def load_secret(self, site: SiteId) -> SumKey | None:
        """Return the latest secret, or None if there is none."""
        if self._secret is not None:
            return self._secret
        return self._store.load_secret(site)
