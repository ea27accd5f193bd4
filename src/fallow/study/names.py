"""The names of strategies: taken apart, and as a reader wants them."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from fallow import training as trainers
from fallow.core.build import find
from fallow.settings.spec import Spec
from fallow.study.records import BOUND, Study, is_bound
from fallow.training import personal

COMPAT = "fallow.compat:"
"""What the name of a strategy starts with when it does what a public code does."""

TRAINING = ("training", "plan", "trainer", "rounds")
"""Settings that say how models are trained."""


@dataclass(frozen=True)
class Strategy:
    """A query of a study: its class and fields, and the settings it changes for itself."""

    query: str
    spec: Spec
    settings: tuple[str, ...]  # "key=value", as written after each @

    @staticmethod
    def parse(query: str) -> Strategy:
        """``name:field=value@setting=value``; a text of another form is a name as a whole.

        >>> Strategy.parse("entropy:model=global@training=kcfu").settings
        ('training=kcfu',)
        """
        name, *settings = query.split("@")
        try:
            return Strategy(query, Spec.parse(name), tuple(settings))
        except ValueError:
            return Strategy(query, Spec(query), ())

    @property
    def is_code(self) -> bool:
        """Whether it does what a public code does, not what the paper says."""
        return self.spec.name.startswith(COMPAT)

    @property
    def trains_otherwise(self) -> bool:
        """Whether its models are trained in another way than those of the study: then its scores
        say little about what it picks."""
        return bool(self.trainer)

    @property
    def trainer(self) -> tuple[str, ...]:
        """The settings that say how its models are trained."""
        return tuple(s for s in self.settings if s.split("=")[0].split(".")[0] in TRAINING)

    @property
    def training(self) -> str:
        """The training method that it names for itself, as `folded`; empty if it names none."""
        named = (s.partition("=")[2] for s in self.settings if s.startswith("training="))
        return folded(next(named, "").partition(":")[0])

    @property
    def chooser(self) -> tuple[str, ...]:
        """What it is apart from how its models are trained."""
        return (
            self.query.partition("@")[0],
            *(s for s in self.settings if s not in self.trainer),
        )

    @property
    def key(self) -> str:
        """The name of its class without case, dash and underscore."""
        return folded(self.spec.name)


def heading(study: Study) -> str:
    """What the strategies of a study are called: queries; methods where they differ by how they are
    trained alone; strategies where they differ in both."""
    made = [Strategy.parse(query) for query in study.queries if not is_bound(query)]
    chosen, trained = {s.chooser for s in made}, {s.trainer for s in made}
    if study.recipe.get("cycles") == 0 or (len(chosen) == 1 and len(trained) > 1):
        return "Method"
    return "Strategy" if len(trained) > 1 else "Query"


def folded(name: str) -> str:
    """A class name as `fallow.core.build` compares it.

    >>> folded("Core-Set") == folded("core_set") == folded("CoreSet")
    True
    """
    return re.sub("[-_]", "", name).lower()


def faithful(code: str, names: Iterable[str]) -> str | None:
    """The name among ``names`` of the paper's form of a class of `fallow.compat`.

    Such a class is called as the paper's, with a word before it: the longest end of ``code`` (of
    four letters or more) that begins a name decides.

    >>> faithful("PlainNoise", ["noise-stability", "logo"])
    'noise-stability'
    """
    end = folded(code)
    known = {folded(name): name for name in names}
    for start in range(len(end) - 3):
        for name, written in known.items():
            if name.startswith(end[start:]):
                return written
    return None


def label(
    query: str, names: Mapping[str, str], training: str = "fedavg", *, brief: bool = True
) -> str:
    """A strategy in a reader's words; ``names`` are the published ones, ``training`` is that of the
    study.  ``brief`` leaves out settings with which FALE is the paper's.

    >>> label("ksas@training=kcfu", {"ksas": "KAFAL"}), label("fallow.compat:PlainLoGo", {})
    ('KAFAL + kcfu', 'PlainLoGo (code)')
    >>> label("__main__:Mine:k=2", {}), label("mine.queries:Mine@rounds=5", {})
    ('Mine:k=2', 'Mine + rounds=5')
    >>> label("random@trainer=10x25", {}), label("fale:weights=none", {})
    ('random + 10 rounds x 25 epochs', 'FALE-local')
    """
    if query in names:
        return names[query]
    strategy = Strategy.parse(query)
    if strategy.key == "fale":
        return _fale(strategy, folded(training), brief)
    name, settings = _base(query, [*names, query.partition("@")[0]])
    shown = names.get(name, name)
    if is_bound(name):
        shown = shown.removeprefix(BOUND).replace("-", " ")
    elif shown.startswith(COMPAT):
        shown = shown.removeprefix(COMPAT) + " (code)"
    elif ":" in strategy.spec.name and name not in names:  # a class of one's own
        shown = shown.removeprefix(strategy.spec.name.partition(":")[0] + ":")
    return " + ".join([shown, *map(_setting, settings)])


def trainer_label(query: str, names: Mapping[str, str], training: str = "fedavg") -> str:
    """A strategy of a study in which nothing is chosen, as a reader calls its training method.

    >>> trainer_label("random@training=dpfl:budget=5", {})
    'DPFL, 5 models'
    >>> trainer_label("random", {}), trainer_label("random@training=ditto@rounds=5", {})
    ('FedAvg', 'Ditto + rounds=5')
    """
    if query in names or is_bound(query):
        return label(query, names, training)
    settings = Strategy.parse(query).settings
    own = [s.partition("=")[2] for s in settings if s.startswith("training=")]
    rest = [_setting(s) for s in settings if not s.startswith("training=")]
    return " + ".join([_trainer(own[-1] if own else training), *rest])


GRAPHS = {
    "static": "random graph",
    "resampled": "random graph each round",
    "degree": "random graph of its degrees",
    "full": "full graph",
}


def _trainer(text: str) -> str:
    """A training method and its fields in words; a report runs no code that a study names, so one
    that is not Fallow's own stands as it is typed."""
    try:
        spec = Spec.parse(text)
        if ":" in spec.name:
            return text
        name = (
            TITLES.get(found := find((trainers, personal), spec.name))
            or found.contract.title
        )
    except ValueError:
        return text
    return ", ".join([name, *(_field(key, value) for key, value in spec.fields.items())])


TITLES = {
    personal.Local: "Local",
    personal.FedAvgFT: "FedAvg+FT",
    personal.FedProxFT: "FedProx+FT",
}
"""Where tables have a shorter name than the contract of a method."""


def _field(key: str, value: object) -> str:
    if key == "budget" and isinstance(value, int):
        return _counted(str(value), "model")
    if key == "budget" and isinstance(value, list) and value:  # one for each site
        return f"{min(value)} to {max(value)} models"
    if key == "alone":
        return (
            f"{value} sites only send" if isinstance(value, str) else "some sites only send"
        )
    if key == "graph":
        return GRAPHS.get(str(value), f"{value} graph")
    return f"{key}={value if isinstance(value, str) else json.dumps(value)}"


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
}
"""Settings in words; others stand as they are typed."""


def _setting(setting: str) -> str:
    """A setting of one strategy alone, in a few words."""
    key, _, value = setting.partition("=")
    if key == "trainer" and (found := re.fullmatch(r"(\d+)x(\d+)", value)):
        rounds, epochs = found.groups()
        return f"{_counted(rounds, 'round')} x {_counted(epochs, 'epoch')}"
    return value if key == "training" and value else WORDS.get(setting, setting)


def _counted(number: str, unit: str) -> str:
    return f"{number} {unit}" + "s" * (number != "1")


def _fale(strategy: Strategy, training: str, brief: bool) -> str:
    """The paper's two algorithms are one query under two training methods; what the paper does not
    have is said behind the name.

    FALE solves at the server and has weights, FALE-local trains at the sites and has none; both
    choose in one pass and need no first labels.
    """
    fields = dict(strategy.spec.fields)
    is_solved = (strategy.training or training).endswith("solve")
    is_weighted = fields.pop("weights", "importance") != "none"
    more = [f"{key}={value}" for key, value in fields.items()]
    if is_weighted is not is_solved:
        more.insert(0, "weighted" if is_weighted else "no weights")
    usual = ["training=fedavg", "training=server-solve", "protocol=one_pass", "initial=0"]
    rest = [_setting(s) for s in strategy.settings if not (brief and s in usual)]
    name = "FALE" if is_solved else "FALE-local"
    return " + ".join([", ".join([name, *more]), *rest])


def labels(
    queries: Iterable[str],
    names: Mapping[str, str],
    training: str = "fedavg",
    *,
    by_training: bool = False,
) -> dict[str, str]:
    """Each strategy in a reader's words; those that would share them are called in full.

    ``by_training``: they are called by their training methods, because nothing is chosen.

    >>> list(labels(["fale:weights=none", "fale:weights=none@initial=0"], {}).values())
    ['FALE-local', 'FALE-local + no first labels']
    """
    call = trainer_label if by_training else label
    found = {query: call(query, names, training) for query in queries}
    taken = Counter(found.values())
    full = {
        query: words if taken[words] == 1 else label(query, names, training, brief=False)
        for query, words in found.items()
    }
    taken = Counter(full.values())
    return {query: words if taken[words] == 1 else query for query, words in full.items()}
