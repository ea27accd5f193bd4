"""Keywords of other libraries, and what they are called here."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
from typing import Any

from fallow.core.build import nearest

TERMS: Mapping[str, str] = {
    "aggregation": "training",
    "algorithm": "training",
    "batchsize": "batch_size",
    "bs": "batch_size",
    "clients": "sites",
    "client_fraction": "participation",
    "fraction_fit": "participation",
    "labeled": "labeled",
    "learning_rate": "lr",
    "local_epochs": "epochs",
    "min_clients": "sites",
    "n_clients": "sites",
    "n_cycles": "cycles",
    "n_epochs": "epochs",
    "n_instances": "n",
    "n_iterations": "cycles",
    "n_queries": "cycles",
    "n_rounds": "rounds",
    "n_sites": "sites",
    "net": "model",
    "network": "model",
    "num_clients": "sites",
    "num_epochs": "epochs",
    "num_rounds": "rounds",
    "num_sites": "sites",
    "optim": "optimizer",
    "queries": "strategies",
    "query": "strategy",
    "query_size": "budget",
    "query_strategy": "strategy",
    "random_seed": "seed",
    "random_state": "seed",
    "trainer": "training",
    "world": "federation",
    "x_pool": "pool",
}
"""A keyword of the field -> the keyword here."""


def suggest_keyword(word: str, known: Collection[str]) -> str:
    """Return the part of a sentence that names the keyword that was probably meant.

    The table of terms comes first, the edit distance second.

    >>> suggest_keyword("learning_rate", ["lr", "rounds"])
    "; did you mean 'lr'?"
    >>> suggest_keyword("round", ["lr", "rounds"])
    "; did you mean 'rounds'?"
    """
    meant = TERMS.get(word.lower())
    if meant in known:
        return f"; did you mean {meant!r}?"
    return nearest(word, sorted(known))


def refuse_keywords(call: str, unknown: Collection[str], known: Collection[str]) -> None:
    """Raise ValueError for the first keyword that a call does not have."""
    for word in unknown:
        raise ValueError(f"{call} has no argument {word!r}{suggest_keyword(word, known)}")


def list_keywords(call: Callable[..., Any]) -> list[str]:
    """Return the names of the arguments of a call, without those that take all others."""
    parameters = inspect.signature(call).parameters.values()
    return [
        parameter.name
        for parameter in parameters
        if parameter.kind is not parameter.VAR_KEYWORD
    ]
