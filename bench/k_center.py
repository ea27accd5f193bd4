"""Core-Set: greedy k-center on 40,000 examples with 64 features."""

from __future__ import annotations

from bench.selection import Pool, core_set_race
from bench.timing import Entry, Race

POOL = Pool(40_000, 64, 10, picks=500)
TINY = Pool(300, 8, 3, picks=20)


def prepare(is_quick: bool) -> Race:
    if is_quick:
        return core_set_race(TINY)
    return core_set_race(POOL)


ENTRY = Entry(
    "k-center",
    "squared lengths once and a product with a vector for each pick, in float64",
    bar=1.0,
    compared="the 500 picks that were timed: identical",
    prepare=prepare,
)
