"""The names of strategies: taken apart, and as a reader wants them."""

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
from fallow.core.words import count_noun
from fallow.settings.spec import Spec
from fallow.study.known import Known
from fallow.study.records import BOUND, Study, is_bound
from fallow.study.strategy import Strategy, fold_name
from fallow.training import personal

__all__ = [
    "Strategy",
    "fold_name",
    "heading",
    "label",
    "labels",
    "penalised_training",
    "setting_words",
    "trainer_label",
    "training_of",
    "training_tags",
    "usual_training",
]

NOTHING = Known()
"""No paper says anything."""


def heading(study: Study) -> str:
    """What the strategies of a study are called: queries; methods where they differ by how they are
    trained alone; strategies where they differ in both."""
    strategies = [Strategy.parse(query) for query in study.queries if not is_bound(query)]
    chosen = {strategy.chooser for strategy in strategies}
    trained = {strategy.trainer for strategy in strategies}
    if study.recipe.get("cycles") == 0 or (len(chosen) == 1 and len(trained) > 1):
        return "Method"
    return "Strategy" if len(trained) > 1 else "Query"


def label(
    query: str,
    names: Mapping[str, str],
    training: str = "fedavg",
    *,
    known: Known = NOTHING,
    brief: bool = True,
) -> str:
    """A strategy in a reader's words.

    ``names`` are the published ones, ``training`` is that of the study, ``known`` what papers say.
    ``brief`` leaves out settings with which a strategy is the paper's.

    >>> label("ksas@training=kcfu", {"ksas": "KAFAL"})
    'KAFAL + kcfu'
    >>> label("__main__:Mine:k=2", {}), label("mine.queries:Mine@rounds=5", {})
    ('Mine:k=2', 'Mine + rounds=5')
    >>> label("random@trainer=10x25", {})
    'random + 10 rounds x 25 epochs'
    """
    if query in names:
        return names[query]
    strategy = Strategy.parse(query)
    said = known.strategy_words(strategy, fold_name(training), brief=brief)
    if said is not None:
        return said
    name, settings = _base(query, [*names, query.partition("@")[0]])
    shown = names.get(name, name)
    if is_bound(name):
        shown = shown.removeprefix(BOUND).replace("-", " ")
    elif name not in names:
        code = known.code(strategy.spec)
        if code is not None:
            fields = shown.removeprefix(strategy.spec.name)
            shown = f"{code.name}{fields} (code)"
        elif ":" in strategy.spec.name:
            # a class that no paper speaks of: its name says enough
            shown = shown.removeprefix(strategy.spec.name.partition(":")[0] + ":")
    return " + ".join([shown, *map(setting_words, settings)])


def trainer_label(
    query: str,
    names: Mapping[str, str],
    training: str = "fedavg",
    *,
    known: Known = NOTHING,
) -> str:
    """A strategy of a study in which nothing is chosen, as a reader calls its training method.

    >>> trainer_label("random", {}), trainer_label("random@training=ditto@rounds=5", {})
    ('FedAvg', 'Ditto + rounds=5')
    """
    if query in names or is_bound(query):
        return label(query, names, training, known=known)
    settings = Strategy.parse(query).settings
    own = [s.partition("=")[2] for s in settings if s.startswith("training=")]
    rest = [setting_words(s) for s in settings if not s.startswith("training=")]
    return " + ".join([_trainer(own[-1] if own else training, known), *rest])


def _trainer(text: str, known: Known) -> str:
    """A training method and its fields in words; a report runs no code that a study names, so one
    that is not Fallow's own stands as it is typed."""
    try:
        spec = Spec.parse(text)
        if ":" in spec.name:
            return text
        method = find((trainers, personal), spec.name)
    except ValueError:
        return text
    said = [method.contract.name]
    for key, value in spec.fields.items():
        words = known.field_words(fold_name(spec.name), key, value)
        said.append(
            words or f"{key}={value if isinstance(value, str) else json.dumps(value)}"
        )
    return ", ".join(said)


def training_of(study: Study, query: str) -> str:
    """The training method of a strategy, as it is typed and without its fields: its own, or that of
    the study."""
    named = [
        setting.partition("=")[2].partition(":")[0]
        for setting in Strategy.parse(query).settings
        if setting.startswith("training=")
    ]
    if named:
        return named[0]
    usual = study.recipe.get("training")
    return str(usual["name"]) if isinstance(usual, Mapping) else "fedavg"


def usual_training(study: Study) -> str:
    """The training method of the strategies that name none of their own, in a reader's words."""
    usual = study.recipe.get("training")
    name = str(usual["name"]) if isinstance(usual, Mapping) else "fedavg"
    return trainer_label("random", {}, name, known=study.known)


def training_tags(study: Study, query: str) -> tuple[Tag, ...]:
    """The tags of a strategy's training method; none of one that is not Fallow's own, because a
    report runs no code that a study names."""
    cls = _own_training(study, query)
    if cls is None:
        return ()
    contract: Contract = cls.contract
    return contract.tags


PENALTIES = ("ridge", "penalty")
"""What training methods that solve for their model call λ."""


def penalised_training(study: Study, query: str) -> str:
    """The training method of a strategy with a small penalty, as one types it."""
    name = training_of(study, query)
    cls = _own_training(study, query)
    known = () if cls is None else [field.name for field in fields(cls)]
    penalty = next((field for field in known if field in PENALTIES), PENALTIES[0])
    return f"{name}:{penalty}=0.001"


def _own_training(study: Study, query: str) -> type[Any] | None:
    """The class of a strategy's training method; None where it is not Fallow's own."""
    name = training_of(study, query)
    if ":" in name:
        return None
    try:
        return find((trainers, personal), name)
    except ValueError:
        return None


def _base(query: str, known: Iterable[str]) -> tuple[str, list[str]]:
    """The longest of the known queries that this one begins with, and the settings after it.

    >>> _base(
    ...     "logo@local_source=last_round@rounds=2",
    ...     ["logo", "logo@local_source=last_round"],
    ... )
    ('logo@local_source=last_round', ['rounds=2'])
    """
    base = max((k for k in known if f"{query}@".startswith(f"{k}@")), key=len)
    return base, query.removeprefix(base).split("@")[1:]


WORDS = {
    "protocol=one_pass": "one pass",
    "protocol=cycles": "cycle by cycle",
    "initial=0": "no first labels",
    "initial_by=query": "first labels",
    "initial_by=typical": "typical first labels",
}
"""Settings in words; others stand as they are typed."""


def setting_words(setting: str) -> str:
    """A setting of one strategy alone, in a few words."""
    key, _, value = setting.partition("=")
    if key == "trainer" and (found := re.fullmatch(r"(\d+)x(\d+)", value)):
        rounds, epochs = found.groups()
        return f"{count_noun(int(rounds), 'round')} x {count_noun(int(epochs), 'epoch')}"
    return value if key == "training" and value else WORDS.get(setting, setting)


def labels(
    queries: Iterable[str],
    names: Mapping[str, str],
    training: str = "fedavg",
    *,
    known: Known = NOTHING,
    by_training: bool = False,
) -> dict[str, str]:
    """Each strategy in a reader's words; those that would share them are called in full.

    ``by_training``: they are called by their training methods, because nothing is chosen.

    >>> list(labels(["a@initial=0", "b"], {"a": "b"}).values())
    ['b + no first labels', 'b']
    """
    call = trainer_label if by_training else label
    found = {query: call(query, names, training, known=known) for query in queries}
    taken = Counter(found.values())
    full = {}
    for query, words in found.items():
        if taken[words] > 1:
            words = label(query, names, training, known=known, brief=False)
        full[query] = words
    taken = Counter(full.values())
    return {query: words if taken[words] == 1 else query for query, words in full.items()}
