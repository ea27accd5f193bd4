"""IFAL: the 250 most similar others of each of 50,000 rows with 64 features, for one model."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import normalize

from bench.timing import Entry, Race
from fallow.core.streams import stream
from fallow.queries.parts import most_similar

BLOCK = 256  # rows; 1,024 take longer


def prepare(is_quick: bool) -> Race:
    if is_quick:
        return race(rows=300, features=6, k=60)
    return race(rows=50_000, features=64, k=250)


def race(rows: int, features: int, k: int) -> Race:
    x = torch.randn(rows, features, generator=stream(0, "bench features"))
    found: dict[str, Tensor] = {}

    def theirs() -> None:
        found["theirs"] = plain_neighbours(x, k)

    def ours() -> None:
        found["ours"] = most_similar(x, k)[1]

    def are_equal() -> bool:
        """The same lists but for neighbours that are equally close up to single precision."""
        votes = [torch.bincount(at.flatten(), minlength=rows) for at in found.values()]
        differ = int((votes[0] - votes[1]).abs().sum()) / 2
        return differ <= 1e-6 * rows * k

    return Race(theirs, ours, are_equal, runs=1)


def plain_neighbours(x: Tensor, k: int) -> Tensor:
    """Products of blocks, and the largest of each row."""
    unit = normalize(x)
    found = []
    for first in range(0, len(x), BLOCK):
        cosine = unit[first : first + BLOCK] @ unit.T
        rows = torch.arange(len(cosine))
        cosine[rows, first + rows] = -torch.inf
        found.append(cosine.topk(k, 1).indices)
    return torch.cat(found)


ENTRY = Entry(
    "ifal",
    "a product of each block of 256 rows with all and topk, in float32; one run",
    bar=1.5,
    compared="the lists that were timed: the same but for 1 in a million neighbours",
    prepare=prepare,
)
