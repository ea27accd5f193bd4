"""Pairs of a heuristic with and without the true class shares: AHFAL's Finding 3."""

from __future__ import annotations

from collections.abc import Sequence

from fallow.report.comparisons import StrategyPair
from fallow.settings.variants import ParsedStrategy


def oracle_pairs(strategies: Sequence[str]) -> list[StrategyPair]:
    """Return pairs of ``oracle-histogram:score=X`` and plain X.

    >>> oracle_pairs(["random", "oracle-histogram:score=random"])
    [StrategyPair(strategy='oracle-histogram:score=random', against='random', what='random')]
    """
    parsed = [ParsedStrategy.parse(q) for q in strategies]
    pairs = []
    for oracle in parsed:
        if oracle.key != "oraclehistogram" or set(oracle.spec.fields) - {"score"}:
            continue
        score = str(oracle.spec.fields.get("score", "entropy"))
        for plain in parsed:
            is_same_rule = plain.key == score and not plain.spec.fields
            if is_same_rule and plain.settings == oracle.settings:
                pairs.append(StrategyPair(oracle.strategy, plain.strategy, score))
    return pairs
