"""Pairs of strategies in one study that differ in one thing, and their paired differences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fallow.settings.spec import Spec
from fallow.study.known import PaperResults
from fallow.study.records import StudyRecords
from fallow.study.statistics import Comparison, compare_pairs, differences
from fallow.study.strategy import ParsedStrategy, fold_name


@dataclass(frozen=True)
class StrategyPair:
    """``strategy`` compared with ``against``; ``what`` names the difference in a word."""

    strategy: str
    against: str
    what: str


def setting_pairs(strategies: Sequence[str]) -> list[StrategyPair]:
    """Return the pairs of ``X@setting=value`` and X.

    They show the effect of training, privacy or the local model on X, which may have own
    settings.

    >>> setting_pairs(["ksas", "ksas@training=kcfu"])[0].what
    'training=kcfu'
    """
    values = []
    for strategy in strategies:
        shorter = [q for q in strategies if strategy.startswith(f"{q}@")]
        if shorter:
            plain = max(shorter, key=len)
            changed = strategy.removeprefix(plain).split("@")[1:]
            values.append(StrategyPair(strategy, plain, ", ".join(changed)))
    return values


def code_pairs(strategies: Sequence[str], known: PaperResults) -> list[StrategyPair]:
    """Return the pairs of a published code and the algorithm as its paper describes it.

    The paper's form has no ``@`` settings, and the fields of the code or none.
    """
    pairs = []
    for strategy in map(ParsedStrategy.parse, strategies):
        code = known.code(strategy.spec)
        if code is None:
            continue
        plain = _find_plain_form(code.of, strategy.spec, strategies, known)
        if plain is not None:
            pairs.append(StrategyPair(strategy.strategy, plain, code.name))
    return pairs


def _find_plain_form(
    name: str, of_code: Spec, strategies: Sequence[str], known: PaperResults
) -> str | None:
    """Return the strategy of that name without settings, and with the fields ``of_code`` or
    none.

    If there are several, return the last one.
    """
    plain_form = None
    for strategy in map(ParsedStrategy.parse, strategies):
        is_paper = strategy.key == fold_name(name) and known.code(strategy.spec) is None
        fields = strategy.spec.fields
        same_fields = not fields or dict(fields) == dict(of_code.fields)
        if is_paper and same_fields and not strategy.settings:
            plain_form = strategy.strategy
    return plain_form


def compare_final_scores(
    study: StudyRecords, pairs: Sequence[StrategyPair]
) -> list[tuple[StrategyPair, Comparison]]:
    """Compare final scores of the pairs with two or more common seeds, with Holm over these
    pairs.

    Differences of accuracies are in points, those of errors in their own unit.
    """
    scores = {}
    for pair in pairs:
        for strategy in (pair.strategy, pair.against):
            final = study.final(strategy)
            scores[strategy] = {seed: study.scale * score for seed, score in final.items()}

    ready = []
    for pair in pairs:
        by_seed = differences(scores[pair.strategy], scores[pair.against])
        if len(by_seed) > 1:
            ready.append(pair)

    names = [(pair.strategy, pair.against) for pair in ready]
    tests = compare_pairs(scores, names, higher_is_better=study.higher_is_better)
    return list(zip(ready, tests, strict=True))
