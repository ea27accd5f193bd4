"""Variants of a configuration in a study: strategies with their own settings, and upper bounds.

`ParsedStrategy` has the parts of the specification of a strategy, for names and tables.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from fallow.core.extensions import fold_name
from fallow.privacy.settings import Privacy
from fallow.settings.budgets import LabelBudget
from fallow.settings.config import OF_FILES, ExperimentConfig, with_settings
from fallow.settings.spec import Spec

BOUND = "bound:"
SHARED = (
    *OF_FILES,
    "name",
    "rows",
    "test_rows",
    "resplit",
    "features",
    "partition",
    "sites",
    "flip",
    "strategy",
    "validation",
    "test",
    "strategies",
    "seeds",
    "reference",
    "bounds",
    "published",
)
"""Settings that all strategies of a study share, so that they are comparable."""


def check_distinct(strategies: Iterable[str]) -> None:
    """Raise ValueError for a strategy that is listed twice, also if it is spelled differently.

    >>> check_distinct(["random", "random@rounds=3", "margin"])
    >>> check_distinct(["random", "margin", "Random"])
    Traceback (most recent call last):
    ValueError: strategies lists 'random' and 'Random', which are the same; list each strategy once
    """
    known: dict[str, str] = {}
    for text in strategies:
        key = _spell(text)
        if key in known:
            raise ValueError(
                f"strategies lists {known[key]!r} and {text!r}, which are the same; list each "
                "strategy once"
            )
        known[key] = text


def _spell(text: str) -> str:
    """Return a strategy in the spelling by which two are compared."""
    name, at, rest = text.partition("@")
    name, colon, fields = name.strip().partition(":")
    return f"{name.lower().replace('_', '-')}{colon}{fields}{at}{rest}"


def bounds_of(config: ExperimentConfig) -> tuple[str, ...]:
    """Return the upper bounds of a configuration, as names of runs.

    >>> bounds_of(ExperimentConfig("a", bounds=("pooled",)))
    ('bound:pooled',)
    """
    return tuple(BOUND + name for name in config.bounds)


def variant(config: ExperimentConfig, strategy: str) -> ExperimentConfig:
    """Return the configuration with another query strategy, or of an upper bound.

    Parameters
    ----------
    config : ExperimentConfig
        Experiment configuration.
    strategy : str
        Query strategy.  ``strategy@key=value`` overrides a setting, and ``strategy@trainer=10x25``
        trains 10 rounds of 25 epochs.  ``bound:all-labels`` trains once on all labels.
        ``bound:pooled`` is entropy sampling on pooled data with the same label budget.  Upper
        bounds have no privacy settings.

    >>> variant(ExperimentConfig("a"), "ksas@training=fedprox:mu=0.1").training
    Spec(name='fedprox', fields={'mu': 0.1})
    """
    name, *settings = strategy.split("@")
    changes = {}
    for part in settings:
        key, equals, value = part.partition("=")
        if not equals:
            raise ValueError(
                f"{part!r} in {strategy!r} is not of the form key=value; write random@rounds=20"
            )
        changes[key] = value
    changed = _expand_trainer(changes)
    for key in changed:
        if key.split(".")[0] in SHARED:
            raise ValueError(
                f"{strategy!r} changes {key}, which all strategies of a study share; change it with "
                f"--set {key}={changed[key]}"
            )
    own = config
    if changed:  # usually there are no changes, and a run calls this nine times
        own = with_settings(config, changed)
    if name.startswith(BOUND):
        return _turn_into_bound(own, name)
    return replace(own, strategy=Spec.parse(name))


def _turn_into_bound(config: ExperimentConfig, name: str) -> ExperimentConfig:
    """Return the configuration of an upper bound: ``bound:all-labels`` or ``bound:pooled``."""
    config = replace(
        config,
        protocol="cycles",
        initial_by="random",
        privacy=Privacy(),
        evaluation_fraction=0.0,
        stop=None,
    )
    if name == "bound:all-labels":
        return replace(config, strategy=Spec("random"), initial=1.0, cycles=0)
    if name != "bound:pooled":
        raise ValueError(
            f"{name!r} is not an upper bound; use bound:all-labels or bound:pooled"
        )
    later = config.budget
    if isinstance(later, tuple):
        later = tuple(_pool_share(share, config.sites) for share in later)
    else:
        later = _pool_share(later, config.sites)
    return replace(
        config,
        strategy=Spec("entropy"),
        sites=1,
        flip=0,
        test="common",
        partition=Spec("iid"),
        participation=1.0,
        initial=_pool_share(config.initial, config.sites),
        budget=later,
    )


def _expand_trainer(settings: dict[str, str]) -> dict[str, str]:
    """Expand ``trainer=10x25`` to 10 rounds of 25 epochs."""
    if "trainer" not in settings:
        return settings
    rounds, x, epochs = settings["trainer"].partition("x")
    if not (rounds.isdecimal() and x and epochs.isdecimal()):
        raise ValueError(
            f"trainer={settings['trainer']} is not of the form ROUNDSxEPOCHS; write trainer=10x25"
        )
    others = {key: value for key, value in settings.items() if key != "trainer"}
    return {"rounds": rounds, "training_config.stages": epochs, **others}


def _pool_share(share: LabelBudget, sites: int) -> LabelBudget:
    """Convert the label budget of all sites to that of a single site."""
    if isinstance(share, int):  # labels per site
        return share * sites
    return share  # fraction of all examples, at any site


TRAINING = ("training", "training_config", "trainer", "rounds")
"""Settings that determine how models are trained."""


@dataclass(frozen=True)
class ParsedStrategy:
    """Query strategy of a study: class, parameters, and settings that it overrides."""

    strategy: str
    spec: Spec
    settings: tuple[str, ...]  # "key=value", as written after each @

    @staticmethod
    def parse(strategy: str) -> ParsedStrategy:
        """Parse ``name:parameter=value@setting=value``; other text is a name.

        >>> ParsedStrategy.parse("entropy:model=global@training=kcfu").settings
        ('training=kcfu',)
        """
        name, *settings = strategy.split("@")
        try:
            return ParsedStrategy(strategy, Spec.parse(name), tuple(settings))
        except ValueError:
            return ParsedStrategy(strategy, Spec(strategy), ())

    @property
    def trains_otherwise(self) -> bool:
        """Whether the strategy overrides training settings, which affect its scores."""
        return bool(self.trainer)

    @property
    def trainer(self) -> tuple[str, ...]:
        """Overridden settings of training."""
        result = []
        for setting in self.settings:
            key = setting.partition("=")[0]
            if key.partition(".")[0] in TRAINING:
                result.append(setting)
        return tuple(result)

    @property
    def training(self) -> str:
        """Overridden training algorithm, after `fold_name`, or ""."""
        for setting in self.settings:
            key, _, value = setting.partition("=")
            if key == "training":
                return fold_name(value.partition(":")[0])
        return ""

    @property
    def selection(self) -> tuple[str, ...]:
        """Specification without training settings."""
        others = [setting for setting in self.settings if setting not in self.trainer]
        return (self.strategy.partition("@")[0], *others)

    @property
    def key(self) -> str:
        """Class name without case, hyphens and underscores."""
        return fold_name(self.spec.name)
