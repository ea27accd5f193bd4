"""Core-Set: greedy k-center, picks out of 50,000 rows with 64 features."""

from __future__ import annotations

from bench.selection import Pool, core_set_race
from bench.timing import Entry, Race

POOL = Pool(50_000, 64, 10, picks=500)
COMPARED = Pool(5_000, 64, 10, picks=500)
TINY = Pool(300, 8, 3, picks=20)


def prepare(is_quick: bool) -> Race:
    if is_quick:
        return core_set_race(TINY, TINY)
    return core_set_race(POOL, COMPARED)


ENTRY = Entry(
    "k-center",
    "a column of scikit-learn's pairwise_distances for each pick",
    bar=8.0,
    compared="500 picks out of 5,000 rows in float64: identical",
    prepare=prepare,
)
