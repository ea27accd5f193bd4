"""Pairs of a plain heuristic and the same one told the true class shares: AHFAL's Finding 3."""

from __future__ import annotations

from collections.abc import Sequence

from fallow.report.findings.pairs import Pair
from fallow.study.strategy import Strategy


def oracle_pairs(strategies: Sequence[str]) -> list[Pair]:
    """``oracle-histogram:score=X`` and plain X.

    >>> oracle_pairs(["random", "oracle-histogram:score=random"])
    [Pair(query='oracle-histogram:score=random', against='random', what='random')]
    """
    parsed = [Strategy.parse(q) for q in strategies]
    found = []
    for told in parsed:
        if told.key != "oraclehistogram" or set(told.spec.fields) - {"score"}:
            continue
        score = str(told.spec.fields.get("score", "entropy"))
        found += [
            Pair(told.query, plain.query, score)
            for plain in parsed
            if (plain.key, plain.settings) == (score, told.settings)
            and not plain.spec.fields
        ]
    return found
