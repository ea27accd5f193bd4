"""Ways to choose rows crossed with ways to train: whether they are worth more together.

The interaction of a query and a training method is what the query gains over plain choice under
that method, minus what it gains under plain training, seed by seed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from fallow.study.names import Strategy
from fallow.study.records import StudyRecords
from fallow.study.statistics import Comparison, compare_pairs, differences

PLAIN_QUERY = "random"
PLAIN_TRAINING = "local"
Grid = Mapping[tuple[str, str], str]
"""(query, training) -> the strategy that has both."""


@dataclass(frozen=True)
class Interaction:
    """``gains``: of the query over random rows, under its training and under plain training, mean
    over seeds; ``test``: their paired difference, the interaction."""

    query: str
    training: str
    gains: tuple[float, float]
    test: Comparison


def grid(strategies: Sequence[str]) -> Grid:
    """The strategies that differ in query and training method alone.

    >>> grid(["random@training=local", "badge@training=local", "badge@rounds=2", "badge"])
    {('random', 'local'): 'random@training=local', ('badge', 'local'): 'badge@training=local'}
    """
    found = {}
    for strategy in map(Strategy.parse, strategies):
        key, _, training = (
            strategy.settings[0].partition("=") if strategy.settings else ("",) * 3
        )
        if key == "training" and len(strategy.settings) == 1:
            found[strategy.query.partition("@")[0], training] = strategy.query
    return found


def interactions(
    study: StudyRecords, over: Literal["final", "area"] = "final"
) -> list[Interaction]:
    """Every query beside random rows under every training method beside local training.

    ``over``: final scores, or areas under the learning curve.  Accuracies are in points.  Where
    local training is not among the methods, the first one is plain.  Holm is over all interactions
    of the study; those of fewer than two seeds are left out.
    """
    cells = grid(study.strategies)
    trainings = [t for _, t in cells]
    plain = PLAIN_TRAINING if PLAIN_TRAINING in trainings else next(iter(trainings), "")
    gains = {
        (q, t): _gain(study, cells[q, t], cells[PLAIN_QUERY, t], over)
        for q, t in cells
        if q != PLAIN_QUERY and (PLAIN_QUERY, t) in cells
    }
    terms = [
        (q, t)
        for q, t in gains
        if t != plain and len(gains[q, t].keys() & gains.get((q, plain), {}).keys()) > 1
    ]
    if not terms:
        return []
    scores = {_name(*at): by_seed for at, by_seed in gains.items()}
    pairs = [(_name(q, t), _name(q, plain)) for q, t in terms]
    tests = compare_pairs(scores, pairs, higher_is_better=study.higher_is_better)
    return [
        Interaction(q, t, (_mean(gains[q, t], both), _mean(gains[q, plain], both)), test)
        for (q, t), test in zip(terms, tests, strict=True)
        for both in [gains[q, t].keys() & gains[q, plain].keys()]
    ]


def _name(query: str, training: str) -> str:
    return f"{query}@training={training}"


def _gain(study: StudyRecords, ours: str, random: str, over: str) -> dict[int, float]:
    """Seed -> score of one strategy minus another's."""
    scale = 100.0 if study.measure == "accuracy" else 1.0
    scores = study.final if over == "final" else study.areas
    a, b = ({k: scale * s for k, s in scores(q).items()} for q in (ours, random))
    return dict(zip(sorted(a.keys() & b.keys()), differences(a, b), strict=True))


def _mean(gain: Mapping[int, float], seeds: set[int]) -> float:
    return sum(gain[k] for k in seeds) / len(seeds)
