"""IFAL: the 250 nearest neighbors of 50,000 examples with 64 features, for three models."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import normalize

from bench.timing import Entry, Race
from fallow.core.streams import stream
from fallow.strategies.parts import most_similar

MODELS = 3
BLOCK = 256  # examples; 1,024 take longer


def prepare(is_quick: bool) -> Race:
    if is_quick:
        return race(rows=300, features=6, k=60)
    return race(rows=50_000, features=64, k=250)


def race(rows: int, features: int, k: int) -> Race:
    draw = stream(0, "bench features")
    models = [torch.randn(rows, features, generator=draw) for _ in range(MODELS)]
    # how often each example is a neighbor, for each model
    results: dict[str, list[Tensor]] = {}

    def count(near: Tensor) -> Tensor:
        return torch.bincount(near.flatten(), minlength=rows)

    def theirs() -> None:
        results["theirs"] = [count(plain_neighbors(x, k)) for x in models]

    def ours() -> None:
        results["ours"] = [count(most_similar(x, k)[1]) for x in models]

    def are_equal() -> bool:
        """Check that the neighbors are equal, except for ties in single precision."""
        differ = 0.0
        for a, b in zip(results["theirs"], results["ours"], strict=True):
            differ += float((a - b).abs().sum()) / 2
        return differ <= 1e-6 * MODELS * rows * k

    return Race(theirs, ours, are_equal, runs=1)


def plain_neighbors(x: Tensor, k: int) -> Tensor:
    """Compute similarities block by block and take the largest of each row."""
    unit = normalize(x)
    results = []
    for first in range(0, len(x), BLOCK):
        cosine = unit[first : first + BLOCK] @ unit.T
        rows = torch.arange(len(cosine))
        cosine[rows, first + rows] = -torch.inf
        results.append(cosine.topk(k, 1).indices)
    return torch.cat(results)


ENTRY = Entry(
    "ifal",
    "a product of each block of 256 rows with all and topk, in float32; one run",
    bar=1.5,
    compared="the lists that were timed: the same but for 1 in a million neighbors",
    prepare=prepare,
    ceiling=10.0,
)
