"""Names of strategies in the FALE paper."""

from __future__ import annotations

from fallow import training as trainers
from fallow.core.build import find
from fallow.core.contract import Contract
from fallow.settings.variants import ParsedStrategy
from fallow.study.names import setting_words

USUAL = ("training=fedavg", "training=server-solve", "protocol=one_pass", "initial=0")
"""Settings of a strategy that are those of the paper."""


def name_strategy(strategy: ParsedStrategy, training: str, *, brief: bool) -> str | None:
    """Return the name of a strategy in the paper, followed by settings that the paper does
    not have.

    The paper's two algorithms are one query strategy with two training algorithms. FALE
    solves on the server side and has weights. FALE-local trains at the sites and has none.
    Both select in one pass and need no initial labels. A selection with FALE's weights is
    called FALE with any training algorithm.
    """
    if strategy.key != "fale":
        return None
    fields = dict(strategy.spec.fields)
    is_solved = _is_solved(strategy.training or training)
    is_weighted = fields.pop("weights", "importance") != "none"
    if is_weighted and is_solved:
        words = ["FALE"]
    elif is_weighted:
        words = ["FALE", "trained at the sites"]
    elif is_solved:
        words = ["FALE", "no weights"]
    else:
        words = ["FALE-local"]
    for key, value in fields.items():
        words.append(f"{key}={value}")

    parts = [", ".join(words)]
    for setting in strategy.settings:
        if brief and setting in USUAL:
            continue
        parts.append(setting_words(setting))
    return " + ".join(parts)


def _is_solved(training: str) -> bool:
    """Return whether a built-in training algorithm is closed-form; no other is imported."""
    try:
        contract: Contract = find(trainers, training).contract
    except ValueError:
        return False
    return "least-squares" in contract.tags
