"""BADGE: k-means++ on gradients of 20 classes x 64 features for 10,000 examples."""

from __future__ import annotations

from bench.selection import Pool, badge_race
from bench.timing import Entry, Race

POOL = Pool(10_000, 64, 20, picks=50)
TINY = Pool(300, 8, 3, picks=20)


def prepare(is_quick: bool) -> Race:
    if is_quick:
        return badge_race(TINY)
    return badge_race(POOL)


ENTRY = Entry(
    "badge",
    "gradients written out (10,000 x 1,280), scikit-learn's pairwise_distances for each pick",
    bar=5.0,
    compared="the 50 picks that were timed, same draws: identical",
    prepare=prepare,
)
