"""Coverage: 500 of 50,000 examples with 512 features, with 500 landmarks.

The memory is that of a complete query at one site, including landmarks, without the
examples.
"""

from __future__ import annotations

from multiprocessing import get_context

import torch
from torch import Tensor

from bench.shared_clusters import measure
from bench.timing import Entry, Race
from fallow.contrib import Coverage
from fallow.contrib.coverage import cover_greedily, kernel
from fallow.core.streams import stream


def prepare(is_quick: bool) -> Race:
    if is_quick:
        return race(rows=300, features=6, landmarks=20, picks=30)
    return race(rows=50_000, features=512, landmarks=500, picks=500)


def race(rows: int, features: int, landmarks: int, picks: int) -> Race:
    draw = stream(0, "bench rows")
    places = torch.randn(40, features, generator=draw)
    at = torch.randint(40, (rows,), generator=draw)
    noise = torch.randn(rows, features, generator=draw)
    x = (places[at] + noise) / features**0.5
    means = x[:landmarks].double()
    unsure = torch.rand(rows, generator=draw)
    outcome: dict[str, Tensor] = {}

    def similar() -> Tensor:
        blocks = [kernel(block, means, sigma=0.7) for block in torch.split(x, 1024)]
        return torch.cat(blocks)

    def theirs() -> None:
        outcome["theirs"] = cover_plainly(similar(), 1e-6 * unsure, picks)

    def ours() -> None:
        outcome["ours"] = cover_greedily(
            similar(),
            covered=torch.zeros(landmarks),
            weight=torch.ones(landmarks),
            besides=1e-6 * unsure,
            n=picks,
        )

    def are_close() -> bool:
        """Compare the coverage of both, up to single-precision rounding."""
        kernels = similar()
        covered = [float(kernels[rows].amax(0).sum()) for rows in outcome.values()]
        return abs(covered[0] - covered[1]) <= 1e-5 * covered[0]

    return Race(theirs, ours, are_close, runs=3)


def cover_plainly(kernels: Tensor, besides: Tensor, n: int) -> Tensor:
    """Compute the gains of all examples for each selection."""
    covered = torch.zeros(kernels.shape[1])
    picks: list[int] = []
    gain = torch.empty(len(kernels))
    for _ in range(n):
        for at in torch.split(torch.arange(len(kernels)), 1024):
            gain[at] = (kernels[at] - covered).clamp_min_(0).sum(1) + besides[at]
        gain[picks] = -torch.inf
        picks.append(int(gain.argmax()))
        covered = torch.maximum(covered, kernels[picks[-1]])
    return torch.tensor(picks)


def peak(is_quick: bool) -> float:
    rows = 50_000
    if is_quick:
        rows = 600
    with get_context("spawn").Pool(1) as pool:
        _, mb = pool.apply(measure, (Coverage(), rows))
    return float(mb)


ENTRY = Entry(
    "coverage",
    "the gains of all rows anew for each pick; three runs",
    bar=3.0,
    compared="what the picks that were timed cover: 1e-5",
    prepare=prepare,
    extra=peak,
    limit=500.0,
)
