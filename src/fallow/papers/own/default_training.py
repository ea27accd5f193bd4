"""How a study trains that does not say how."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fallow import queries
from fallow.core.build import find
from fallow.core.names import BUILT_IN
from fallow.core.own import own_class
from fallow.core.training_config import KEYWORDS
from fallow.privacy import Privacy
from fallow.study.strategy import Strategy

CLOSED_FORM = "closed-form"
FEDAVG = "fedavg"
OF_NETWORKS = (
    *(
        "model",
        "features",
        "head",
        "training_config",
        "rounds",
        "score_rounds",
        "fresh_first",
    ),
    *("participation", "restart", "local_source", "local_training_config", "trainer"),
    *KEYWORDS,
)
"""Settings that say what a network is or how it is trained, round after round."""
UNSAID = (None, False, "false", "null")
"""Values of a setting that ask for nothing, in Python and on the command line."""


def default_training(settings: Mapping[str, object], strategies: Iterable[str]) -> str:
    """The training method of somebody who names none: ``closed-form``, or ``fedavg`` where a setting
    or a strategy is about a network that is trained, or noise is asked for.

    settings: by their names in a recipe, or as the command line has them ("lr": "0.1");
    strategies: as they are typed, beside those that the settings name.

    >>> default_training({"cycles": 2}, ["random", "margin"])
    'closed-form'
    >>> default_training({"model": "mlp"}, ["random"]), default_training({}, ["ifal"])
    ('fedavg', 'fedavg')
    """
    if _speaks_of_networks(settings) or _adds_noise(settings):
        return FEDAVG
    named = [*strategies, *_named_in(settings)]
    if any(_is_for_networks(Strategy.parse(text)) for text in named):
        return FEDAVG
    return CLOSED_FORM


def _speaks_of_networks(settings: Mapping[str, object]) -> bool:
    """Whether one of the settings is about a network or its training."""
    for name, value in settings.items():
        if name.partition(".")[0] in OF_NETWORKS and value not in UNSAID:
            return True
    return False


def _adds_noise(settings: Mapping[str, object]) -> bool:
    """Whether what leaves a site has noise: exact totals are then refused."""
    epsilon = settings.get("privacy.epsilon")
    privacy = settings.get("privacy")
    if isinstance(privacy, Privacy):
        epsilon = privacy.epsilon
    elif isinstance(privacy, Mapping):
        epsilon = privacy.get("epsilon", epsilon)
    return epsilon not in UNSAID


def _named_in(settings: Mapping[str, object]) -> list[str]:
    """The strategies that settings name; of what is none something else will complain."""
    query = settings.get("query")
    if isinstance(query, Mapping):  # query = {name = "ifal", epochs = 5}
        query = query.get("name")
    found = [query]
    queries = settings.get("queries")
    if isinstance(queries, str):  # as the command line has them
        found += queries.split(",")
    elif isinstance(queries, list | tuple):
        found += queries
    return [text for text in found if isinstance(text, str)]


def _is_for_networks(strategy: Strategy) -> bool:
    """Whether a strategy means nothing, or something else, where a model is solved for, and does not
    say itself how its models are trained."""
    changed: dict[str, object] = {}
    for setting in strategy.settings:
        key, _, value = setting.partition("=")
        changed[key] = value
    if "training" in changed:
        return False
    if _speaks_of_networks(changed) or _adds_noise(changed):
        return True
    name = strategy.spec.name
    try:
        query = own_class(name) or find(queries, name, BUILT_IN)
    except ValueError:
        # a class of others, of which nothing is imported, or an unknown name
        return False
    return bool(query.contract.not_solved) or "disagreement" in query.contract.tags
