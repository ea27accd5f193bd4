"""Query strategies crossed with training algorithms: their interaction.

The interaction of a query strategy and a training algorithm is its gain over random
sampling under that algorithm, minus its gain under plain training, paired by seed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fallow.settings.variants import ParsedStrategy
from fallow.study.records import StudyRecords
from fallow.study.statistics import Comparison, compare_pairs, differences

PLAIN_QUERY = "random"
PLAIN_TRAINING = "local"
Grid = Mapping[tuple[str, str], str]
"""(query, training) -> strategy with both."""


@dataclass(frozen=True)
class Interaction:
    """Interaction of a query strategy and a training algorithm.

    ``gains``: gain of the query over random sampling, under its training and under plain
    training, mean over seeds; ``test``: their paired difference, the interaction.
    """

    strategy: str
    training: str
    gains: tuple[float, float]
    test: Comparison


def grid(strategies: Sequence[str]) -> Grid:
    """Return the strategies that differ only in query and training algorithm.

    >>> grid(["random@training=local", "badge@training=local", "badge@rounds=2", "badge"])
    {('random', 'local'): 'random@training=local', ('badge', 'local'): 'badge@training=local'}
    """
    result = {}
    for parsed in map(ParsedStrategy.parse, strategies):
        if len(parsed.settings) != 1:
            continue
        setting, _, training = parsed.settings[0].partition("=")
        if setting == "training":
            name = parsed.strategy.partition("@")[0]
            result[name, training] = parsed.strategy
    return result


def interactions(study: StudyRecords) -> list[Interaction]:
    """Compute the interaction of every query strategy and training algorithm.

    Differences of final accuracies are in points. Plain training is local training if included,
    else the first algorithm. Holm is over all interactions of the study; those with fewer than
    two seeds are omitted.
    """
    cells = grid(study.strategies)
    gains: dict[tuple[str, str], dict[int, float]] = {}  # (query, training) -> by seed
    for strategy, training in cells:
        random = cells.get((PLAIN_QUERY, training))
        if strategy != PLAIN_QUERY and random is not None:
            gains[strategy, training] = _gain(study, cells[strategy, training], random)

    plain = _plain_training(cells)
    seeds: dict[tuple[str, str], set[int]] = {}  # common seeds of a gain and the plain one
    for strategy, training in gains:
        if training == plain:
            continue
        both = gains[strategy, training].keys() & gains.get((strategy, plain), {}).keys()
        if len(both) > 1:
            seeds[strategy, training] = both
    if not seeds:
        return []

    scores = {_name(*at): by_seed for at, by_seed in gains.items()}
    pairs = [
        (_name(strategy, training), _name(strategy, plain)) for strategy, training in seeds
    ]
    tests = compare_pairs(scores, pairs, higher_is_better=study.higher_is_better)
    result = []
    for (strategy, training), test in zip(seeds, tests, strict=True):
        both = seeds[strategy, training]
        gain = _mean(gains[strategy, training], both)
        plain_gain = _mean(gains[strategy, plain], both)
        result.append(Interaction(strategy, training, gains=(gain, plain_gain), test=test))
    return result


def _plain_training(cells: Grid) -> str:
    """Return local training, or the first algorithm without it."""
    trainings = [training for _, training in cells]
    if PLAIN_TRAINING in trainings:
        return PLAIN_TRAINING
    return next(iter(trainings), "")


def _name(strategy: str, training: str) -> str:
    return f"{strategy}@training={training}"


def _gain(study: StudyRecords, ours: str, random: str) -> dict[int, float]:
    """Return seed -> final score of one strategy minus another's."""
    scale = 1.0
    if study.measure.is_percent:
        scale = 100.0
    of_ours = {seed: scale * score for seed, score in study.final(ours).items()}
    of_random = {seed: scale * score for seed, score in study.final(random).items()}
    seeds = sorted(of_ours.keys() & of_random.keys())
    return dict(zip(seeds, differences(of_ours, of_random), strict=True))


def _mean(gain: Mapping[int, float], seeds: set[int]) -> float:
    return sum(gain[k] for k in seeds) / len(seeds)
