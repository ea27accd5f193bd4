"""FEAL: 500 of 50,000 examples with 64 features, skipping near duplicates."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import normalize

from bench.timing import Entry, Race
from fallow.core.streams import stream
from fallow.strategies import FEAL
from fallow.strategies.feal import pass_over_crowds

BLOCK = 1024  # rows


def prepare(is_quick: bool) -> Race:
    if is_quick:
        return race(rows=400, features=6, picks=40)
    return race(rows=50_000, features=64, picks=500)


def race(rows: int, features: int, picks: int) -> Race:
    """Return a benchmark on sorted examples; one in four is a near duplicate."""
    draw = stream(0, "bench features")
    point = torch.randn(rows // 4, features, generator=draw)
    near = point[torch.randint(rows // 4, (rows,), generator=draw)]
    x = near + 0.3 * torch.randn(rows, features, generator=draw)
    feal = FEAL()
    outcome: dict[str, Tensor] = {}

    def theirs() -> None:
        crowds = compare_all(x, feal.neighbors, feal.similar)
        outcome["theirs"] = pass_over_crowds(crowds, picks)

    def ours() -> None:
        outcome["ours"] = pass_over_crowds(feal.crowds(x), picks)

    return Race(
        theirs, ours, lambda: torch.equal(outcome["theirs"], outcome["ours"]), runs=3
    )


def compare_all(x: Tensor, k: int, cut: float) -> list[list[int]]:
    """Find the k most similar other examples of each example, block by block."""
    unit = normalize(x)
    crowds = []
    for first in range(0, len(x), BLOCK):
        cosine = unit[first : first + BLOCK] @ unit.T
        rows = torch.arange(len(cosine))
        cosine[rows, first + rows] = -torch.inf
        best, at = cosine.topk(k, 1)
        is_crowd = (best > cut).all(1)
        for row, is_one in enumerate(is_crowd.tolist()):
            crowd: list[int] = []
            if is_one:
                crowd = at[row].tolist()
            crowds.append(crowd)
    return crowds


ENTRY = Entry(
    "feal",
    "the five most similar others of every row, in blocks, before the walk; three runs",
    bar=5.0,
    compared="the picks that were timed: identical",
    prepare=prepare,
    ceiling=10.0,
)
