"""Disclosure log: kind, description and bytes of data that left each site."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from fallow.core.types import SiteId, Value, Values

PASSED = ("sent", "received")


def payload(reply: Values) -> int:
    """Return the bytes of a flat dictionary: tensors by their size, numbers as 8 bytes.

    >>> import torch
    >>> payload({"p": torch.zeros(10), "n": 3})
    48
    """
    return sum(_size(value) for value in reply.values())


def _size(value: Value) -> int:
    if isinstance(value, Tensor):
        return value.numel() * value.element_size()
    if isinstance(value, str):
        return len(value.encode())
    return 8


def count_relayed_messages(
    routes: Mapping[SiteId, Sequence[SiteId]],
) -> dict[str, dict[SiteId, int]]:
    """Count the replies that each site sends and receives.  routes: receiver -> senders.

    >>> count_relayed_messages({"a": ["b", "c"], "b": ["c"]})
    {'sent': {'b': 1, 'c': 2}, 'received': {'a': 2, 'b': 1}}
    """
    sent: Counter[SiteId] = Counter()
    received = {}
    for receiver, senders in routes.items():
        sent.update(senders)
        if senders:
            received[receiver] = len(senders)
    return {"sent": dict(sent), "received": received}


@dataclass
class Disclosure:
    """Counters by (kind, client function), for the table "What left each site".

    An entry has ``masked`` if the server side saw aggregates of masked contributions, and
    ``epsilon`` if a site spent privacy budget.  An entry of a relay has the numbers of replies that
    each site ``sent`` and ``received``: a reply to three sites counts three times.
    """

    entries: dict[tuple[str, str, str], dict[str, Any]] = field(default_factory=dict)
    """Counters by operation, function and description; two algorithms may use one name."""

    def add(
        self,
        kind: str,
        function: str,
        description: str,
        up: int,
        down: int,
        sites: int,
        epsilon: float = 0.0,
        masked: bool = False,
        passed: Mapping[str, Mapping[SiteId, int]] | None = None,
    ) -> None:
        zero = {
            "description": description,
            "bytes": 0,
            "bytes_down": 0,
            "sites": 0,
            "exchanges": 0,
        }
        entry = self.entries.setdefault((kind, function, description), zero)
        entry["bytes"] += up
        entry["bytes_down"] += down
        entry["sites"] = max(entry["sites"], sites)
        entry["exchanges"] += 1
        if epsilon:
            entry["epsilon"] = entry.get("epsilon", 0.0) + epsilon
        if masked:
            entry["masked"] = True
        for way, many in (passed or {}).items():
            entry[way] = dict(Counter(entry.get(way, {})) + Counter(many))

    def plus(self, other: Disclosure) -> Disclosure:
        """Return the sum of both; neither is changed."""
        joined = Disclosure({key: dict(entry) for key, entry in self.entries.items()})
        for (kind, function, description), entry in other.entries.items():
            joined.add(
                kind,
                function,
                description,
                up=entry["bytes"],
                down=entry["bytes_down"],
                sites=entry["sites"],
                epsilon=entry.get("epsilon", 0.0),
                masked=entry.get("masked", False),
                passed={way: entry[way] for way in PASSED if way in entry},
            )
            # `add` has counted one of them
            of_both = joined.entries[kind, function, description]
            of_both["exchanges"] += entry["exchanges"] - 1
        return joined

    @property
    def bytes_up(self) -> int:
        return sum(e["bytes"] for e in self.entries.values())

    @property
    def bytes_down(self) -> int:
        return sum(e["bytes_down"] for e in self.entries.values())

    def rows(self) -> list[Any]:  # of `fallow.experiment.record.DisclosureEntry`
        """Return one row per kind and client function, as stored in records."""
        rows = []
        for (kind, function, _), entry in sorted(self.entries.items()):
            rows.append({"kind": kind, "function": function, **entry})
        return rows

    @staticmethod
    def of(rows: Sequence[Mapping[str, Any]]) -> Disclosure:
        """Return the disclosure that ``rows`` describe, from which a resumed run continues."""
        entries = {}
        for row in rows:
            entry = dict(row)
            del entry["kind"], entry["function"]
            entries[row["kind"], row["function"], row["description"]] = entry
        return Disclosure(entries)
