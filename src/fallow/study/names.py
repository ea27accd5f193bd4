"""Display names of query strategies."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any

from fallow import training as trainers
from fallow.core.build import find
from fallow.core.contract import Contract, Tag
from fallow.core.extensions import fold_name
from fallow.core.wording import count_noun
from fallow.settings.spec import Spec
from fallow.settings.variants import ParsedStrategy
from fallow.study.known import PaperResults
from fallow.study.records import BOUND, StudyManifest, is_bound
from fallow.training import personal

NOTHING = PaperResults()
"""No paper says anything."""


def heading(study: StudyManifest) -> str:
    """Return the heading of the strategies of a study, which may differ only in their
    training.
    """
    chosen = {strategy.selection for strategy in _parse_strategies(study)}
    is_of_training = len(chosen) == 1 and trainings_differ(study)
    if study.config.get("cycles") == 0 or is_of_training:
        return "Algorithm"
    return "Strategy"


def trainings_differ(study: StudyManifest) -> bool:
    """Return whether strategies of a study override training settings."""
    return len({strategy.trainer for strategy in _parse_strategies(study)}) > 1


def _parse_strategies(study: StudyManifest) -> list[ParsedStrategy]:
    own = [strategy for strategy in study.strategies if not is_bound(strategy)]
    return list(map(ParsedStrategy.parse, own))


def label(
    strategy: str,
    names: Mapping[str, str],
    training: str = "fedavg",
    *,
    known: PaperResults = NOTHING,
    brief: bool = True,
) -> str:
    """Return the display name of a strategy.

    Parameters
    ----------
    strategy : str
        Specification of the strategy.
    names : mapping
        Published names.
    training : str
        Training algorithm of the study.
    known : PaperResults
        Names in papers.
    brief : bool
        Whether to omit the settings of the paper.

    >>> label("ksas@training=kcfu", {"ksas": "KAFAL"})
    'KAFAL + kcfu'
    >>> label("__main__:Mine:k=2", {}), label("mine.strategies:Mine@rounds=5", {})
    ('Mine:k=2', 'Mine + rounds=5')
    >>> label("random@trainer=10x25", {})
    'random + 10 rounds x 25 epochs'
    """
    if strategy in names:
        return names[strategy]
    parsed = ParsedStrategy.parse(strategy)
    output = known.strategy_words(parsed, fold_name(training), brief=brief)
    if output is not None:
        return output
    # the longest known strategy, and the settings after it
    starts = [*names, strategy.partition("@")[0]]
    name = max((q for q in starts if f"{strategy}@".startswith(f"{q}@")), key=len)
    settings = strategy.removeprefix(name).split("@")[1:]
    shown = names.get(name, name)
    if is_bound(name):
        shown = shown.removeprefix(BOUND).replace("-", " ")
    elif name not in names:
        code = known.code(parsed.spec)
        if code is not None:
            fields = shown.removeprefix(parsed.spec.name)
            shown = f"{code.name}{fields} (code)"
        elif ":" in parsed.spec.name:
            # a class that is in no paper: its name is sufficient
            shown = shown.removeprefix(parsed.spec.name.partition(":")[0] + ":")
    return " + ".join([shown, *map(setting_words, settings)])


def trainer_label(
    strategy: str,
    names: Mapping[str, str],
    training: str = "fedavg",
    *,
    known: PaperResults = NOTHING,
) -> str:
    """Return the display name of a strategy by its training algorithm, for studies without selection.

    >>> trainer_label("random", {}), trainer_label("random@training=ditto@rounds=5", {})
    ('FedAvg', 'Ditto + rounds=5')
    """
    if strategy in names or is_bound(strategy):
        return label(strategy, names, training, known=known)
    settings = ParsedStrategy.parse(strategy).settings
    others = [setting for setting in settings if not setting.startswith("training=")]
    for setting in settings:
        if setting not in others:
            training = setting.removeprefix("training=")
    return " + ".join([_describe_trainer(training, known), *map(setting_words, others)])


def _describe_trainer(text: str, known: PaperResults) -> str:
    """Describe a training algorithm and its parameters.

    A report runs no custom code, so a custom algorithm is shown as written.
    """
    try:
        spec = Spec.parse(text)
        if ":" in spec.name:
            return text
        method = find((trainers, personal), spec.name)
    except ValueError:
        return text
    parts = [method.contract.name]
    for key, value in spec.fields.items():
        words = known.field_words(fold_name(spec.name), key, value)
        if not words:
            shown = value
            if not isinstance(value, str):
                shown = json.dumps(value)
            words = f"{key}={shown}"
        parts.append(words)
    return ", ".join(parts)


def training_of(study: StudyManifest, strategy: str) -> str:
    """Return the name of the training algorithm of a strategy: its own, or that of the study."""
    for setting in ParsedStrategy.parse(strategy).settings:
        if setting.startswith("training="):
            return setting.partition("=")[2].partition(":")[0]
    return training_of_config(study)


def training_of_config(study: StudyManifest) -> str:
    """Return the name of the training algorithm of the study, as written."""
    spec = study.config.get("training")
    if isinstance(spec, Mapping):
        return str(spec["name"])
    return "fedavg"


def usual_training(study: StudyManifest) -> str:
    """Return the display name of the training algorithm of the study."""
    return trainer_label("random", {}, training_of_config(study), known=study.known)


def training_tags(study: StudyManifest, strategy: str) -> tuple[Tag, ...]:
    """Return the tags of a built-in training algorithm; a report runs no custom code."""
    cls = _own_training(study, strategy)
    if cls is None:
        return ()
    contract: Contract = cls.contract
    return contract.tags


PENALTIES = ("ridge", "penalty")
"""Fields for λ of closed-form training algorithms."""


def penalized_training(study: StudyManifest, strategy: str) -> str:
    """Return the training algorithm of a strategy with a small penalty, as a specification."""
    name = training_of(study, strategy)
    cls = _own_training(study, strategy)
    known = () if cls is None else [field.name for field in fields(cls)]
    penalty = next((field for field in known if field in PENALTIES), PENALTIES[0])
    return f"{name}:{penalty}=0.001"


def _own_training(study: StudyManifest, strategy: str) -> type[Any] | None:
    """Return the class of a built-in training algorithm, otherwise None."""
    name = training_of(study, strategy)
    if ":" in name:
        return None
    try:
        return find((trainers, personal), name)
    except ValueError:
        return None


WORDS = {
    "protocol=one_pass": "one pass",
    "protocol=cycles": "cycle by cycle",
    "initial=0": "no initial labels",
    "initial_by=query": "initial labels",
    "initial_by=typical": "typical initial labels",
}
"""Descriptions of settings; others are displayed as written."""


def setting_words(setting: str) -> str:
    """Describe a setting of a single strategy in a few words."""
    key, _, value = setting.partition("=")
    if key == "trainer" and (match := re.fullmatch(r"(\d+)x(\d+)", value)):
        rounds, epochs = match.groups()
        return f"{count_noun(int(rounds), 'round')} x {count_noun(int(epochs), 'epoch')}"
    if key == "training" and value:
        return _spell_training(value)
    return WORDS.get(setting, setting)


def _spell_training(text: str) -> str:
    """Return a training algorithm as written, in the spelling of its paper.

    >>> _spell_training("fedprox:mu=0.1"), _spell_training("mine:Careful")
    ('FedProx:mu=0.1', 'mine:Careful')
    """
    name, colon, settings = text.partition(":")
    try:
        spelled: str = find((trainers, personal), name).contract.name
    except ValueError:
        return text
    if spelled.casefold() != name.casefold():
        return text
    return spelled + colon + settings


def labels(
    strategies: Iterable[str],
    names: Mapping[str, str],
    training: str = "fedavg",
    *,
    known: PaperResults = NOTHING,
    by_training: bool = False,
) -> dict[str, str]:
    """Return the display name of each strategy, in full if it would be ambiguous.

    With ``by_training``, strategies are named by their training algorithms.  If strategies have
    different training algorithms, a strategy without an own one is named with that of the study.

    >>> list(labels(["a@initial=0", "b"], {"a": "b"}).values())
    ['b + no initial labels', 'b']
    >>> list(labels(["random", "random@training=closed-form"], {}).values())
    ['random + FedAvg', 'random + closed-form']
    """
    labels_of = {}
    strategies = list(strategies)
    usual = fold_name(training.partition(":")[0])
    own = [ParsedStrategy.parse(name) for name in strategies if not is_bound(name)]
    are_mixed = len({parsed.training or usual for parsed in own}) > 1
    for strategy in strategies:
        if by_training:
            labels_of[strategy] = trainer_label(strategy, names, training, known=known)
        else:
            words = label(strategy, names, training, known=known)
            parsed = ParsedStrategy.parse(strategy)
            is_named = (
                is_bound(strategy)
                or parsed.training
                or not names.keys().isdisjoint({strategy, strategy.partition("@")[0]})
                or known.strategy_words(parsed, fold_name(training), brief=True)
            )
            if are_mixed and not is_named:
                words = f"{words} + {_describe_trainer(training, known)}"
            labels_of[strategy] = words
    taken = Counter(labels_of.values())
    full = {}
    for strategy, words in labels_of.items():
        if taken[words] > 1:
            words = label(strategy, names, training, known=known, brief=False)
        full[strategy] = words
    taken = Counter(full.values())
    for strategy, words in full.items():
        if taken[words] > 1:
            full[strategy] = strategy
    return full
