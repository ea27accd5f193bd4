"""`python -m bench.query_seconds`: cost of a query at one site, by query strategy.

The site has an unlabeled pool of 5,000 images (28 x 28), a LeNet, and a budget of 250
labels. Forward passes are included. Strategies run in turn and the median of five is
reported. Writes ``bench/query_seconds.json``. AHFAL's paper states that its query costs
about as much as KSAS and much less than BADGE.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from bench.timing import CPU, Seconds, describe_machine
from fallow.core.ask import Ask
from fallow.core.disclosure import Disclosure
from fallow.core.exchange_key import ExchangeKey
from fallow.core.messages import ExchangeEntry, StateName
from fallow.core.methods import Methods, Query
from fallow.core.model_vectors import Layout
from fallow.core.streams import stream
from fallow.core.types import State
from fallow.engine import Loop, row_loss
from fallow.models import build_model
from fallow.sites import LocalSite, RunComponents
from fallow.sites.in_process import InProcessChannel
from fallow.sites.store import Label, MemoryStore
from fallow.strategies import AHFAL, BADGE, KSAS, CoreSet, Entropy
from fallow.training import FedAvg

STRATEGIES: Mapping[str, Any] = {
    "entropy": Entropy(),
    "ahfal": AHFAL(),
    "ksas": KSAS(),
    "core_set": CoreSet(),
    "badge": BADGE(),
}
RESULTS = Path(__file__).with_name("query_seconds.json")


class Nothing:
    """Event log that stores nothing, so each exchange is sent."""

    def transaction(
        self, replaces: Collection[StateName] = ()
    ) -> AbstractContextManager[None]:
        return nullcontext()

    def recall(self, key: ExchangeKey, digest: str) -> None:
        return None

    def record(self, key: ExchangeKey, digest: str, entry: ExchangeEntry) -> None:
        return None


def site(strategy: Query, pool: int, labeled: int) -> LocalSite:
    """Return a site with random images and different local and global models."""
    model = build_model("lenet", (1, 28, 28), 10, stream(0, "template"))
    layout = Layout.of(model)
    methods: Methods = {"query": strategy, "training": FedAvg(), "plain": FedAvg()}

    def fresh(generator: torch.Generator) -> State:
        return layout.flatten(build_model("lenet", (1, 28, 28), 10, generator))

    parts = RunComponents(model, layout, methods, 10, 0, fresh)
    x = torch.randn(pool + labeled, 1, 28, 28, generator=stream(0, "images"))
    made = LocalSite("a", x, parts, MemoryStore())
    made.buy([Label(pool + i, i % 10, cycle=-1) for i in range(labeled)])
    for name in ("local", "global"):
        made.remember(name, fresh(stream(0, name)))
    return made


def seconds(pool: int, labeled: int, selected: int, runs: int) -> dict[str, Seconds]:
    """Return the CPU seconds of a complete query by strategy."""
    taken: dict[str, list[float]] = {name: [] for name in STRATEGIES}
    for run in range(runs):
        for name, strategy in STRATEGIES.items():
            here = site(strategy, pool, labeled)
            executor = Loop(here.parts.model, here.parts.layout, row_loss("classification"))
            channel = InProcessChannel({"a": here}, executor)
            ask = Ask(
                channel, Nothing(), Disclosure(), ExchangeKey("query", "query", cycle=run)
            )
            started = CPU()
            strategy.query(ask, {"a": selected}, {})
            taken[name].append(CPU() - started)
            if len(here.memory["selected"]["rows"]) != selected:
                raise RuntimeError(f"{name} did not select {selected} examples")
    return {name: Seconds.of(times) for name, times in taken.items()}


def rows(seconds: Mapping[str, Seconds]) -> list[dict[str, Any]]:
    """Return one row per strategy, with its cost relative to AHFAL."""
    ahfal = seconds["ahfal"].median
    return [
        {
            "strategy": name,
            "seconds": s.median,
            "fastest": s.fastest,
            "slowest": s.slowest,
            "times_ahfal": s.median / ahfal,
        }
        for name, s in seconds.items()
    ]


def main() -> int:
    torch.set_num_threads(1)
    machine = describe_machine()
    measured = rows(seconds(5_000, 250, 250, 5))
    shown = Table("strategy", "seconds", "times AHFAL")
    for row in measured:
        shown.add_row(row["strategy"], f"{row['seconds']:.3f}", f"{row['times_ahfal']:.2f}")
    Console().print(shown)
    protocol = (
        "one site, pool 5,000 of 28x28, LeNet, 250 selections, CPU seconds, median of five"
    )
    content = {"about": protocol, "machine": machine, "rows": measured}
    RESULTS.write_text(json.dumps(content, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
