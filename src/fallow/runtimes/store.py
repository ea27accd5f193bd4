"""Where a site's state is kept between exchanges."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from fallow.core.types import SiteId, State


class Label(NamedTuple):
    """One line of a site's ledger: a label that was bought, and what the query attached to it."""

    row: int
    value: float
    cycle: int
    weight: float = 1.0
    probability: float | None = None


class Store(Protocol):
    """Keeps what sites remember.  All changes of one exchange are one transaction."""

    def keep(self, site: SiteId, name: str, state: State | None) -> None: ...  # None forgets
    def kept(self, site: SiteId) -> dict[str, State]: ...
    def write(self, site: SiteId, labels: Sequence[Label]) -> None: ...
    def written(self, site: SiteId) -> list[Label]: ...


@dataclass
class MemoryStore:
    """A store that ends with the process."""

    states: dict[SiteId, dict[str, State]] = field(default_factory=dict)
    labels: dict[SiteId, list[Label]] = field(default_factory=dict)

    def keep(self, site: SiteId, name: str, state: State | None) -> None:
        if state is None:
            self.states.get(site, {}).pop(name, None)
        else:
            self.states.setdefault(site, {})[name] = state

    def kept(self, site: SiteId) -> dict[str, State]:
        return dict(self.states.get(site, {}))

    def write(self, site: SiteId, labels: Sequence[Label]) -> None:
        self.labels.setdefault(site, []).extend(labels)

    def written(self, site: SiteId) -> list[Label]:
        return list(self.labels.get(site, []))
