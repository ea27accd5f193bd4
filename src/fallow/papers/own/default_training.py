"""How a study trains that does not say how."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fallow import queries
from fallow.core.build import find
from fallow.core.names import BUILT_IN
from fallow.core.own import own_class
from fallow.study.strategy import Strategy

CLOSED_FORM = "closed-form"
FEDAVG = "fedavg"
OF_NETWORKS = (
    *("model", "features", "head", "plan", "rounds", "score_rounds"),
    *("participation", "restart", "local_source", "local_plan"),
)
"""Settings that say what a network is or how it is trained, round after round."""


def default_training(settings: Mapping[str, object], strategies: Iterable[str]) -> str:
    """The training method of somebody who names none: ``closed-form``, or ``fedavg`` where a setting
    or a strategy is about a network that is trained, or noise is asked for.

    settings: by their names in a recipe; strategies: as they are typed, beside those that the
    settings name.

    >>> default_training({"cycles": 2}, ["random", "margin"])
    'closed-form'
    >>> default_training({"model": "mlp"}, ["random"]), default_training({}, ["ifal"])
    ('fedavg', 'fedavg')
    """
    if any(name in settings for name in OF_NETWORKS) or _adds_noise(settings):
        return FEDAVG
    named = [*strategies, *_named_in(settings)]
    if any(_is_about_networks(Strategy.parse(text)) for text in named):
        return FEDAVG
    return CLOSED_FORM


def _adds_noise(settings: Mapping[str, object]) -> bool:
    """Whether what leaves a site has noise: exact totals are then refused."""
    privacy = settings.get("privacy")
    return isinstance(privacy, Mapping) and privacy.get("epsilon") is not None


def _named_in(settings: Mapping[str, object]) -> list[str]:
    """The strategies that settings name; of what is none something else will complain."""
    found = [settings.get("query")]
    queries = settings.get("queries")
    if isinstance(queries, list | tuple):
        found += queries
    return [text for text in found if isinstance(text, str)]


def _is_about_networks(strategy: Strategy) -> bool:
    """Whether a strategy means nothing, or something else, where a model is solved for."""
    changed = [setting.partition("=")[0].partition(".")[0] for setting in strategy.settings]
    if "training" in changed:
        return False  # it says itself how it is trained
    if any(name in changed for name in OF_NETWORKS):
        return True
    name = strategy.spec.name
    try:
        query = own_class(name) or find(queries, name, BUILT_IN)
    except (
        ValueError
    ):  # a class of others, of which nothing is imported, or an unknown name
        return False
    return bool(query.contract.not_solved)
