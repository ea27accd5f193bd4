"""Leverage scores of examples at ten sites from aggregates, against one decomposition.

The ratio is 0.8 to 1: two passes and the scores take 8 n d² operations for n examples of d columns.
The decomposition, which reads the examples of all sites at once, does not take longer.

`extra` measures the memory of a complete FALE selection in a separate process.
"""

from __future__ import annotations

import subprocess
import sys

import torch
from torch import Tensor

from bench.memory import read_memory
from bench.query_seconds import Nothing
from bench.timing import Entry, Race
from fallow.core.ask import Ask
from fallow.core.disclosure import Disclosure
from fallow.core.exchange_key import ExchangeKey
from fallow.core.methods import Methods
from fallow.core.model_vectors import Layout
from fallow.core.streams import stream
from fallow.engine import Loop, row_loss
from fallow.models import build_model
from fallow.sites import LocalSite, RunComponents
from fallow.sites.in_process import InProcessChannel
from fallow.sites.store import MemoryStore
from fallow.strategies import FALE
from fallow.strategies.parts import leverage
from fallow.training import FedAvg

SITES = 10


def scores(sites: list[Tensor]) -> Tensor:
    """Return the leverage scores of all sites, (n,), without intercept and rotation."""
    d = sites[0].shape[1]
    n = sum(len(x) for x in sites)
    mean = torch.zeros(d, dtype=torch.float64)
    spreads = [torch.stack(leverage.spread(x, mean)) for x in sites]  # (2, d) each
    squares, varies = torch.stack(spreads).sum(0)
    unit = leverage.scales(squares, varies).unsqueeze(1)

    def gram(basis: Tensor) -> Tensor:
        parts = [leverage.products(x, mean, unit * basis) for x in sites]
        return leverage.matrix(torch.stack(parts).sum(0), d)

    first = leverage.first_pass(gram(torch.eye(d, dtype=torch.float64)), n)
    basis = unit * leverage.second_pass(gram(first), first).basis
    return torch.cat([leverage.leverages(x, mean, basis) for x in sites])


def decompose(x: Tensor) -> Tensor:
    """Compute the same scores from the left singular vectors."""
    left: Tensor = torch.linalg.svd(x, full_matrices=False)[0]
    return left.square().sum(1)


def rows(n: int, d: int) -> Tensor:
    """Return columns of very different scales, two of which are nearly equal."""
    x = torch.randn(n, d, generator=stream(0, "bench rows"), dtype=torch.float64)
    x[:, 1] = x[:, 0] + 1e-3 * x[:, 1]
    return x.mul_(torch.logspace(-3, 3, d, dtype=torch.float64))


def prepare(is_quick: bool) -> Race:
    if is_quick:
        x = rows(500, 12)
    else:
        x = rows(53_500, 379)
    sites = list(x.chunk(SITES))
    return Race(
        lambda: decompose(x),
        lambda: scores(sites),
        lambda: torch.allclose(scores(sites), decompose(x), rtol=0, atol=1e-10),
        runs=3,
    )


def selection(n: int, d: int) -> float:
    """Return the peak memory of a selection in MB, beyond the memory used before."""
    model = build_model("linear", (d,), 1, stream(0, "template"))
    layout = Layout.of(model)
    methods: Methods = {"query": FALE(), "training": FedAvg(), "plain": FedAvg()}
    fresh = layout.flatten(model)
    parts = RunComponents(
        model, layout, methods, 0, 0, lambda generator: fresh, noise="seeded"
    )
    members = {}
    for at in range(SITES):
        x = torch.randn(n // SITES, d, generator=stream(0, "rows", at))
        members[f"site-{at}"] = LocalSite(f"site-{at}", x, parts, MemoryStore())
    ask = Ask(
        InProcessChannel(members, Loop(model, layout, row_loss("regression"))),
        Nothing(),
        Disclosure(),
        ExchangeKey("query", "query"),
    )
    before = read_memory("VmHWM")
    FALE().query(ask, dict.fromkeys(members, 100), {})
    return read_memory("VmHWM") - before


def extra(is_quick: bool) -> float:
    """Measure `selection` in a separate process."""
    size = "111_753, 132"
    if is_quick:
        size = "500, 12"
    code = (
        f"import torch; torch.set_num_threads(1); from bench import leverage; "
        f"print(leverage.selection({size}))"
    )
    values = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    return float(values.stdout)


ENTRIES = (
    Entry(
        "leverage",
        "torch.linalg.svd of the examples of all sites, 53,500 with 379 columns, in float64",
        bar=0.8,
        compared="scores of all rows: 1e-10",
        prepare=prepare,
        extra=extra,
        limit=200.0,
    ),
)
