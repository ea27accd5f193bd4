"""Defaults of a study: training algorithm, and strategies for the user's own data."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from fallow import strategies
from fallow.core.build import find
from fallow.core.names import BUILT_IN, own_class
from fallow.core.training_config import KEYWORDS
from fallow.core.wording import join_words
from fallow.data.dataset import Dataset
from fallow.experiment.methods import has_gradient_steps, is_untrained, methods_of
from fallow.experiment.suitability import works_on
from fallow.privacy.settings import Privacy
from fallow.settings.config import ExperimentConfig, config_from
from fallow.settings.spec import split_strategies
from fallow.settings.variants import ParsedStrategy, variant

CLOSED_FORM = "closed-form"
USUAL_SEEDS = 7
"""Seeds of `fallow.compare`: with fewer, three exact tests cannot reach p = 0.05."""
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
"""Settings of a network or of its training, round after round."""
OF_STEPS = ("training_config", "restart", *KEYWORDS)
"""Settings of gradient steps, which a closed-form solution does not have."""


def has_fraction(config: ExperimentConfig) -> bool:
    """Return whether a label budget is a fraction of all examples."""
    return any(isinstance(budget, float) for budget in config.purchases)


UNUSED: Mapping[str, tuple[Callable[[ExperimentConfig], bool], str]] = {
    "rounds": (
        lambda config: config.rounds > 1 and not has_gradient_steps(config),
        "the training algorithm finds its model in one round",
    ),
    "participation": (
        lambda config: config.participation < 1 and config.rounds == 1,
        "there is one round, and all sites train in the last one",
    ),
    "evaluation_fraction": (
        lambda config: config.evaluation_fraction > 0 and config.cycles == 0,
        "there are no cycles",
    ),
    "stop": (
        lambda config: config.stop is not None and config.cycles == 0,
        "there are no cycles",
    ),
    "initial_by": (
        lambda config: config.initial_by != "random" and config.initial == 0,
        "there is no initial labeled set",
    ),
    "budget_allocation": (
        lambda config: config.budget_allocation != "equal" and not has_fraction(config),
        "whole numbers of labels hold at each site, and only fractions are allocated",
    ),
}
"""Settings that have no effect if a function of the configuration is true, and why."""
OF_COMPARISONS = ("strategies", "seeds", "reference", "bounds")
"""Settings of several runs."""
DISABLED = (None, False, "false", "null")
"""Values that turn a setting off, in Python and on the command line."""
REMEDY = (
    'and closed-form, the default training algorithm, has no network; add training="fedavg"'
)


def default_training(settings: Mapping[str, object], strategies: Iterable[str]) -> str:
    """Return the default training algorithm: ``closed-form``.

    Parameters
    ----------
    settings : mapping
        Settings by name, with values as in a configuration or on the command line ("lr": "0.1").
    strategies : iterable of str
        Query strategies in addition to those in the settings.

    Raises
    ------
    ValueError
        If a setting or a query strategy requires a network, or noise is configured.  These need an
        explicit training algorithm.

    >>> default_training({"cycles": 2}, ["random", "margin"])
    'closed-form'
    >>> default_training({"rounds": 15}, ["random"])
    Traceback (most recent call last):
        ...
    ValueError: rounds is a setting of networks, and closed-form, ... add training="fedavg"
    """
    _check_settings(settings, "")
    for text in [*strategies, *_strategies_in(settings)]:
        _check_strategy(ParsedStrategy.parse(text))
    return CLOSED_FORM


def default_config(
    settings: Mapping[str, object], strategies: Iterable[str] = ()
) -> ExperimentConfig:
    """Return the configuration of a data file alone, with the defaults of `fallow.compare`.

    Parameters
    ----------
    settings : mapping
        Settings that the caller will add, by name.  ``data`` is the file.
    strategies : iterable of str, optional
        Query strategies that the caller will run.

    >>> config = default_config({"data": "patients.csv"})
    >>> config.name, str(config.training), str(config.partition)
    ('patients', 'closed-form', 'iid')
    """
    usual: dict[str, object] = {
        "name": Path(str(settings["data"])).stem,
        "partition": "iid",
        "training_config": {},  # defaults of the model family
        "bounds": (),
        "seeds": USUAL_SEEDS,
    }
    if "training" not in settings:
        usual["training"] = default_training(settings, strategies)
    return config_from(usual)


def check_specified(
    settings: Mapping[str, object], config: ExperimentConfig, strategies: Sequence[str] = ()
) -> None:
    """Check that settings of gradient steps, and those of `UNUSED`, have an effect.

    Parameters
    ----------
    settings : mapping
        Settings that the user specified, by name.  Others, such as those of a configuration that a
        file extends, are not checked.
    config : ExperimentConfig
        Configuration with these settings.
    strategies : sequence of str, optional
        Query strategies.  Default: those of the configuration.

    Raises
    ------
    ValueError
        If a setting has no effect on any strategy.

    >>> config = config_from({"name": "a", "training": "closed-form"})
    >>> check_specified({"lr": 0.1}, config, ["random@training=fedavg", "random"])
    >>> check_specified({"lr": 0.1}, config, ["random"])
    Traceback (most recent call last):
        ...
    ValueError: lr is a setting of gradient steps, and closed-form has a closed-form solution; ...
    """
    texts = strategies or (str(config.strategy), *config.strategies)
    specified = [name for name, value in settings.items() if _is_specified(value)]
    steps = _list_step_settings(specified)
    unused = [name for name in specified if name in UNUSED]
    keys_of: dict[str, list[str]] = {}
    for text in texts:
        keys = [part.partition("=")[0] for part in ParsedStrategy.parse(text).settings]
        keys_of[text] = _list_step_settings(keys)
    if not steps and not unused and not any(keys_of.values()):
        return
    variants = {text: variant(config, text) for text in texts}
    for name in unused:
        is_unused, reason = UNUSED[name]
        if all(is_unused(item) for item in variants.values()):
            raise ValueError(f"{name} has no effect, because {reason}; omit it")
    n_solved = 0
    for text, item in variants.items():
        if has_gradient_steps(item):
            continue
        n_solved += 1
        if keys_of[text]:
            _refuse_step_setting(f"{keys_of[text][0]} of {text}", item)
        if steps and n_solved == len(variants):
            _refuse_step_setting(steps[0], item)


def _is_specified(value: object) -> bool:
    """Return whether a value, in Python or of the command line, specifies something."""
    if isinstance(value, str):
        return value not in ("false", "null", "none", "[]")
    if isinstance(value, Mapping | list | tuple):
        return len(value) > 0
    return value is not None and value is not False


def _list_step_settings(names: Iterable[str]) -> list[str]:
    """Return the names of settings of gradient steps."""
    return [name for name in names if name.partition(".")[0] in OF_STEPS]


def _refuse_step_setting(name: str, config: ExperimentConfig) -> NoReturn:
    reason = "has a closed-form solution"
    if is_untrained(config):
        reason = "trains nothing"
    raise ValueError(
        f"{name} is a setting of gradient steps, and {config.training.name} {reason}; "
        "omit it, or set training=fedavg"
    )


def check_single_run(settings: Mapping[str, object]) -> None:
    """Raise ValueError for settings of a comparison, which a single run does not have.

    >>> check_single_run({"seeds": 3})
    Traceback (most recent call last):
        ...
    ValueError: seeds is a setting of comparisons, and a run has one strategy and one seed; ...
    """
    for name in OF_COMPARISONS:
        if _is_specified(settings.get(name)):
            raise ValueError(
                f"{name} is a setting of comparisons, and a run has one strategy and one seed; "
                "omit it, or run a comparison (fl.compare, fallow compare)"
            )


def _check_settings(settings: Mapping[str, object], where: str) -> None:
    """Raise ValueError for network settings and for noise."""
    for name, value in settings.items():
        if name.partition(".")[0] in OF_NETWORKS and value not in DISABLED:
            raise ValueError(f"{name}{where} is a setting of networks, {REMEDY}")
    if _adds_noise(settings):
        raise ValueError(
            f"privacy.epsilon{where} adds noise, and closed-form, the default training algorithm, "
            'needs exact aggregates; add training="fedavg"'
        )


def _adds_noise(settings: Mapping[str, object]) -> bool:
    """Return whether noise is added to what leaves a site."""
    epsilon = settings.get("privacy.epsilon")
    privacy = settings.get("privacy")
    if isinstance(privacy, Privacy):
        epsilon = privacy.epsilon
    elif isinstance(privacy, Mapping):
        epsilon = privacy.get("epsilon", epsilon)
    return epsilon not in DISABLED


def _strategies_in(settings: Mapping[str, object]) -> list[str]:
    """Return the strategies in the settings; values of other types are rejected elsewhere."""
    strategy = settings.get("strategy")
    if isinstance(strategy, Mapping):  # strategy = {name = "ifal", epochs = 5}
        strategy = strategy.get("name")
    named = [strategy]
    listed = settings.get("strategies")
    if isinstance(listed, str):  # as written on the command line
        named += split_strategies(listed)
    elif isinstance(listed, list | tuple):
        named += listed
    return [text for text in named if isinstance(text, str)]


def _check_strategy(parsed: ParsedStrategy) -> None:
    """Raise ValueError for a strategy that needs a network and specifies no training algorithm."""
    changed: dict[str, object] = {}
    for setting in parsed.settings:
        key, _, value = setting.partition("=")
        changed[key] = value
    if "training" in changed:
        return
    _check_settings(changed, f" of {parsed.strategy}")
    name = parsed.spec.name
    try:
        strategy = own_class(name) or find(strategies, name, BUILT_IN)
    except ValueError:
        # a custom class, which is not imported, or an unknown name
        return
    if strategy.contract.not_solved or "disagreement" in strategy.contract.tags:
        raise ValueError(f"{parsed.strategy} needs a network, {REMEDY}")


NUMBERS = (
    "random",
    "badge",
    "random@training=closed-form",
    "badge@training=closed-form",
)
"""Strategies for regression. Of those that support it, only BADGE was as good as random
sampling on tables (studies/fale.md). Each is combined with FedAvg and a closed-form
regressor.
"""
SOLVED = NUMBERS[:2]
"""The same for a study that trains all models in closed form."""


def suit_strategies(
    strategies: Sequence[str], config: ExperimentConfig, dataset: Dataset
) -> tuple[str, ...]:
    """Return the strategies, or others if one of them does not support the data.

    A single strategy is replaced by a single one.

    >>> from fallow.data import load
    >>> suit_strategies(
    ...     ["margin"], ExperimentConfig("a", data="diabetes"), load("diabetes")
    ... )
    ('badge',)
    """
    chosen = tuple(strategies)
    if all(_is_for(variant(config, strategy), dataset) for strategy in chosen):
        return chosen
    if len(chosen) == 1:
        return NUMBERS[1:2]
    if methods_of(config)["training"].contract.is_solved:
        return SOLVED
    return NUMBERS


def describe_change(before: Sequence[str], after: Sequence[str], dataset: Dataset) -> str:
    """Explain why other strategies than those of the configuration are compared, or return
    "".
    """
    if tuple(before) == tuple(after):
        return ""
    instead = f"{join_words(after)} instead of {join_words(before)}"
    return f"{dataset.name} is a regression task: {instead}; --strategy names others"


def _is_for(config: ExperimentConfig, dataset: Dataset) -> bool:
    contract = methods_of(config)["query"].contract
    return dataset.task != "regression" or works_on(contract, dataset.task)
