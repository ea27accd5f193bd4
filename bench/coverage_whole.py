"""Complete coverage query at one site against the greedy selection with given landmarks.

The query selects 500 of 50,000 examples with 512 features and includes landmarks and
kernels.
"""

from __future__ import annotations

import torch
from torch import Tensor

from bench.coverage import cover_plainly
from bench.query_seconds import Nothing
from bench.shared_clusters import LABELS, site_of
from bench.timing import Entry, Race
from fallow.contrib import Coverage
from fallow.contrib.coverage import kernel
from fallow.core.ask import Ask
from fallow.core.disclosure import Disclosure
from fallow.core.exchange_key import ExchangeKey
from fallow.engine import Loop, row_loss
from fallow.sites.in_process import InProcessChannel


def prepare(is_quick: bool) -> Race:
    rows = 50_000
    if is_quick:
        rows = 900
    site = site_of(Coverage(), rows)
    parts = site.parts
    results: dict[str, Tensor] = {}

    def theirs() -> None:
        means = site.x[:LABELS].double()
        blocks = [kernel(block, means, sigma=0.7) for block in torch.split(site.x, 1024)]
        cover_plainly(torch.cat(blocks), torch.zeros(rows), LABELS)

    def ours() -> None:
        loop = Loop(parts.model, parts.layout, row_loss("classification"))
        channel = InProcessChannel({"a": site}, loop)
        ask = Ask(channel, Nothing(), Disclosure(), ExchangeKey("query", "query"))
        Coverage().query(ask, {"a": LABELS}, {})
        results["picks"] = site.memory["picks"]["rows"]

    def are_whole() -> bool:
        """Check that the selected examples are unlabeled, distinct and complete."""
        picks = results["picks"]
        is_new = not bool(torch.isin(picks, site.labeled).any())
        return is_new and len(set(picks.tolist())) == LABELS

    return Race(theirs, ours, are_whole, runs=1)


ENTRY = Entry(
    "coverage-whole",
    "the gains of all rows anew for each pick, with landmarks given; one run",
    bar=1.0,
    compared="500 different rows without labels; the choice itself is compared in coverage",
    prepare=prepare,
)
