"""What readers of FALE call its strategies."""

from __future__ import annotations

from fallow.study.names import setting_words
from fallow.study.strategy import Strategy

USUAL = ("training=fedavg", "training=server-solve", "protocol=one_pass", "initial=0")
"""Settings with which a strategy is the paper's."""


def call(strategy: Strategy, training: str, *, brief: bool) -> str | None:
    """The paper's two algorithms are one query under two training methods; what the paper does not
    have is said behind the name.

    FALE solves at the server and has weights, FALE-local trains at the sites and has none; both
    choose in one pass and need no first labels.
    """
    if strategy.key != "fale":
        return None
    fields = dict(strategy.spec.fields)
    is_solved = (strategy.training or training).endswith("solve")
    is_weighted = fields.pop("weights", "importance") != "none"
    name = "FALE" if is_solved else "FALE-local"
    words = [name]
    if is_weighted and not is_solved:
        words.append("weighted")
    if is_solved and not is_weighted:
        words.append("no weights")
    for key, value in fields.items():
        words.append(f"{key}={value}")

    parts = [", ".join(words)]
    for setting in strategy.settings:
        if brief and setting in USUAL:
            continue
        parts.append(setting_words(setting))
    return " + ".join(parts)
