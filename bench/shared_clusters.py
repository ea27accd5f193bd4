"""`python -m bench.shared_clusters`: cost of queries with aggregated features.

One site has 50,000 examples of 512 features in 10 classes, a linear model and a budget of
500 labels. A second measurement with half as many examples shows how the cost grows. Client
side and server side run once on one core, without a network. Memory is the peak of the
process beyond its memory with the examples.
"""

from __future__ import annotations

from multiprocessing import get_context

import torch

from bench.memory import read_memory
from bench.query_seconds import Nothing
from bench.timing import CPU
from fallow.core.ask import Ask
from fallow.core.disclosure import Disclosure
from fallow.core.exchange_key import ExchangeKey
from fallow.core.methods import Methods, Query
from fallow.core.model_vectors import Layout
from fallow.core.streams import stream
from fallow.core.types import State
from fallow.engine import Loop, row_loss
from fallow.models import build_model
from fallow.sites import LocalSite, RunComponents
from fallow.sites.in_process import InProcessChannel
from fallow.sites.store import Label, MemoryStore
from fallow.strategies import Pivotal, Typical, TypicalUnsure
from fallow.training import FedAvg

FEATURES = 512
CLASSES = 10
LABELS = 500


def site_of(strategy: Query, rows: int) -> LocalSite:
    """Return a site with examples around 40 centers, a global model and some labels."""
    draw = stream(0, "bench rows")
    places = torch.randn(40, FEATURES, generator=draw)
    at = torch.randint(40, (rows,), generator=draw)
    x = (places[at] + torch.randn(rows, FEATURES, generator=draw)) / FEATURES**0.5
    model = build_model("linear", (FEATURES,), CLASSES, stream(0, "template"))
    layout = Layout.of(model)
    state = layout.flatten(model, torch.float32)
    state["w"] = torch.randn(layout.d, generator=draw)

    def fresh(_: torch.Generator) -> State:
        return state

    methods: Methods = {"query": strategy, "training": FedAvg(), "plain": FedAvg()}
    parts = RunComponents(model, layout, methods, CLASSES, 0, fresh)
    site = LocalSite("a", x, parts, MemoryStore())
    site.buy([Label(row, row % CLASSES, -1) for row in range(100)])
    site.remember("global", state)
    return site


def measure(strategy: Query, rows: int) -> tuple[float, float]:
    """Return the seconds, and the peak memory in MB beyond the examples."""
    torch.set_num_threads(1)
    site = site_of(strategy, rows)
    parts = site.parts
    channel = InProcessChannel(
        {"a": site}, Loop(parts.model, parts.layout, row_loss("classification"))
    )
    ask = Ask(channel, Nothing(), Disclosure(), ExchangeKey("query", "query"))
    before = read_memory("VmHWM")
    started = CPU()
    strategy.query(ask, {"a": LABELS}, {})
    return CPU() - started, read_memory("VmHWM") - before


def main() -> None:
    strategies: tuple[Query, ...] = (
        Typical(),
        TypicalUnsure(),
        Pivotal(),
    )
    for strategy in strategies:
        for rows in (25_000, 50_000):
            with get_context("spawn").Pool(1) as pool:
                seconds, mb = pool.apply(measure, (strategy, rows))
            name = type(strategy).__name__
            print(f"{name}: {rows:,} rows, {seconds:.1f} s, {mb:.0f} MB beside the rows")


if __name__ == "__main__":
    main()
