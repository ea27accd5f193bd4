"""The most similar examples for FEAL and IFAL among 50,000 examples."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import normalize

from bench.timing import Entry, Race
from fallow.core.streams import stream
from fallow.strategies import FEAL
from fallow.strategies.feal import pass_over_crowds
from fallow.strategies.parts.neighbors import most_similar

BLOCK = 256  # examples; 1,024 take longer


def plain_neighbors(x: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Compute cosines block by block and return the k largest of each row, with positions."""
    unit = normalize(x)
    cosines = []
    positions = []
    for first in range(0, len(x), BLOCK):
        cosine = unit[first : first + BLOCK] @ unit.T
        rows = torch.arange(len(cosine))
        cosine[rows, first + rows] = -torch.inf
        best, at = cosine.topk(k, 1)
        cosines.append(best)
        positions.append(at)
    return torch.cat(cosines), torch.cat(positions)


def race_feal(is_quick: bool) -> Race:
    """Return a benchmark on sorted examples; one in four is a near duplicate."""
    rows, features, selected = (400, 6, 40) if is_quick else (50_000, 64, 500)
    draw = stream(0, "bench features")
    point = torch.randn(rows // 4, features, generator=draw)
    near = point[torch.randint(rows // 4, (rows,), generator=draw)]
    x = near + 0.3 * torch.randn(rows, features, generator=draw)
    feal = FEAL()
    outcome: dict[str, Tensor] = {}

    def theirs() -> None:
        best, at = plain_neighbors(x, feal.neighbors)
        crowds: list[list[int]] = [[] for _ in range(rows)]
        for row in (best > feal.similar).all(1).nonzero().flatten().tolist():
            crowds[row] = at[row].tolist()
        outcome["theirs"] = pass_over_crowds(crowds, selected)

    def ours() -> None:
        outcome["ours"] = pass_over_crowds(feal.crowds(x), selected)

    return Race(
        theirs, ours, lambda: torch.equal(outcome["theirs"], outcome["ours"]), runs=1
    )


def race_ifal(is_quick: bool) -> Race:
    """Return a benchmark of the neighbors that one model gives."""
    rows, features, k = (300, 6, 60) if is_quick else (50_000, 512, 250)
    x = torch.randn(rows, features, generator=stream(0, "bench features"))
    neighbors: dict[str, Tensor] = {}

    def theirs() -> None:
        neighbors["theirs"] = plain_neighbors(x, k)[1]

    def ours() -> None:
        neighbors["ours"] = most_similar(x, k)[1]

    def are_equal() -> bool:
        """Check that lists are equal, except for ties in single precision."""
        counts = [
            torch.bincount(near.flatten(), minlength=rows) for near in neighbors.values()
        ]
        return float((counts[0] - counts[1]).abs().sum()) / 2 <= 1e-6 * rows * k

    return Race(theirs, ours, are_equal, runs=1)


ENTRIES = (
    Entry(
        "feal",
        "the five most similar others of every row, in blocks, before the walk; one run",
        bar=5.0,
        compared="the selections that were timed: identical",
        prepare=race_feal,
        ceiling=10.0,
    ),
    Entry(
        "ifal",
        # 50,000² / 2 x 512 x 2 = 1.28 TFLOP, at 67 GFLOP/s in float32
        "a product of each block of 256 rows with all and topk, in float32; one run; "
        "the products of all pairs alone take 19 s",
        bar=1.5,
        compared="the lists that were timed: the same but for 1 in a million neighbors",
        prepare=race_ifal,
        ceiling=25.0,
    ),
)
