"""Query strategies of scikit-activeml, run at each site."""

from __future__ import annotations

import inspect
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, final

import numpy as np
import torch
from torch import Tensor

from fallow.core.ask import Ask
from fallow.core.contract import Contract
from fallow.core.kinds import literal
from fallow.core.optional import import_optional
from fallow.core.refusal import explain_errors
from fallow.core.suggestions import explain_constructor, nearest, require_known
from fallow.core.view import SelectedExamples, View
from fallow.strategies.base import Budget, Memo, check_fields, label_counts, selects

CLASSIFIERS = ("clf", "estimator")  # arguments of `query` that take a classifier
OWN_CLASSIFIER = (
    "EpistemicUncertaintySampling",
    "FourDs",
    "MonteCarloEER",
    "ProbabilisticAL",
    "ValueOfInformationEER",
)
"""Query strategies that refit the classifier, or need a kind of classifier of their own."""
EMBEDDING = "clf_embedding_flag_name"
CLUSTERING = "cluster_algo_dict"
SEED = "random_state"
PROVIDED = ("missing_label", SEED)
"""Parameters that every query strategy has; a site sets them."""


@explain_constructor
@final
@dataclass(frozen=True)
class FromScikitActiveML:
    """Pool-based query strategy of scikit-activeml, run at each site.

    It requires the extra ``scikit-activeml``.  Query strategies that need a classifier receive the
    model of the site, without fitting it, and the examples.  Others receive the features of the
    model, as `MaxHerding` does.

    Parameters
    ----------
    strategy
        Query strategy of ``skactiveml.pool``: an object, a class or a name.
    settings
        Parameters of the query strategy that differ from the default, such as
        ``"k=5;cluster_algo_dict.n_init=10"``.  They are taken from ``strategy`` if it is an
        object.
    model
        Model whose features and predictions are used.

    Notes
    -----
    Random numbers come from the random stream of the site, so ``random_state`` has no effect.  The
    number of classes is that of the study.  Query strategies that need an ensemble, a regressor or
    a discriminator, or that refit the classifier, are not supported.

    References
    ----------
    Kottke et al. scikit-activeml: A Library and Toolbox for Active Learning Algorithms. 2021.

    Examples
    --------
    >>> import fallow as fl
    >>> pool = [[1.0, 0.0], [1.0, 0.1], [1.0, 0.2], [0.0, 1.0]]
    >>> strategy = fl.FromScikitActiveML("MaxHerding")  # doctest: +SKIP
    >>> fl.select(pool, strategy, outputs=[[0.5, 0.5]] * 4, n=1)  # doctest: +SKIP
    array([2])
    """

    strategy: Any
    settings: str = ""
    model: Literal["local", "global"] = "local"

    contract: ClassVar[Contract] = Contract(
        title="scikit-activeml",
        needs=("local",),
        draws=True,
        aliases=("fallow.integrations:FromScikitActiveML",),
    )

    def __post_init__(self) -> None:
        check_fields(self)
        name, settings = _read_strategy(self.strategy)
        settings = ";".join(filter(None, (settings, self.settings)))
        object.__setattr__(self, "strategy", name)
        object.__setattr__(self, "settings", settings)
        contract = replace(self.contract, title=f"{name} (scikit-activeml)")
        object.__setattr__(self, "contract", contract)
        _build_strategy(name, settings, classes=2, seed=0)

    def query(self, ask: Ask, budget: Budget, memo: Memo) -> Memo:
        ask.keep(self.select, to=label_counts(budget))
        return memo

    @selects()
    def select(self, view: View, n: int) -> SelectedExamples:
        """Return the examples that the strategy of scikit-activeml selects.

        Parameters
        ----------
        view : View
            Data of the site.
        n : int
            Number of examples to select.
        """
        generator = view.stream("scikit-activeml")
        seed = int(torch.randint(2**31 - 1, (), generator=generator))
        strategy = _build_strategy(self.strategy, self.settings, view.classes, seed)
        argument = _find_classifier_argument(type(strategy))
        pool = self._read_features(view, "pool", argument)
        labeled = pool[:0]
        labels = view.labels.double()
        if len(labels):
            labeled = self._read_features(view, "labeled", argument)
            is_finite = labeled.isfinite().all(1)
            labeled = labeled[is_finite]
            labels = labels[is_finite]
        is_finite = pool.isfinite().all(1)
        candidates = is_finite.nonzero().squeeze(1)
        x = torch.cat([labeled, pool[candidates]]).double().numpy()
        y = torch.cat([labels, torch.full((len(candidates),), math.nan)]).double().numpy()
        arguments: dict[str, Any] = {}
        if argument is not None:
            arguments[argument] = _build_classifier(view, self.model, seed).fit(x, y)
            arguments[f"fit_{argument}"] = False
        size = min(n, len(candidates))
        selected = torch.zeros(0, dtype=torch.int64)
        if size:
            rows = strategy.query(x, y, batch_size=size, **arguments)
            selected = candidates[torch.as_tensor(rows) - len(labeled)]
        not_finite = (~is_finite).nonzero().squeeze(1)  # come last
        return SelectedExamples(torch.cat([selected, not_finite])[:n])

    def _read_features(
        self, view: View, which: Literal["pool", "labeled"], argument: str | None
    ) -> Tensor:
        """Return what the query strategy sees of the examples, (m, d)."""
        if argument is None:
            return view.embed(self.model, which)
        return view.rows(which).flatten(1)


def _pool() -> Any:
    return import_optional(
        "skactiveml.pool",
        "fallow-core[scikit-activeml]",
        "a query strategy of scikit-activeml",
    )


def _read_strategy(value: Any) -> tuple[str, str]:
    """Return the name of a query strategy, and its settings that differ from the default."""
    if isinstance(value, str):
        return value, ""
    if isinstance(value, type):
        return value.__name__, ""
    name = type(value).__name__
    if getattr(_pool(), name, None) is not type(value):
        raise ValueError(
            f"{name} is not a query strategy of skactiveml.pool; give an object, a class or a name "
            "from there"
        )
    parameters = inspect.signature(type(value)).parameters
    chosen = {
        key: setting
        for key, setting in value.get_params(deep=False).items()
        if key not in PROVIDED and setting is not parameters[key].default
    }
    return name, _write_settings(name, chosen)


def _write_settings(name: str, settings: Mapping[str, Any]) -> str:
    """Return settings as text; entries of dictionaries have dotted names.

    >>> _write_settings("MaxHerding", {"metric": "rbf", "metric_dict": {"gamma": 4.0}})
    'metric="rbf";metric_dict.gamma=4.0'
    """
    parts = []
    for key, value in settings.items():
        entries = {key: value}
        if isinstance(value, Mapping):
            entries = {f"{key}.{entry}": part for entry, part in value.items()}
        for word, part in entries.items():
            try:
                parts.append(f"{word}={json.dumps(part)}")
            except TypeError as error:
                raise ValueError(
                    f"{name}'s {word} is {part!r:.60}, which cannot be stored with a study; use "
                    "numbers, words, and lists and dictionaries of them"
                ) from error
    return ";".join(parts)


def _parse_settings(text: str) -> dict[str, Any]:
    """Invert `_write_settings`.

    >>> _parse_settings("metric=rbf; metric_dict.gamma=4.0")
    {'metric': 'rbf', 'metric_dict': {'gamma': 4.0}}
    """
    result: dict[str, Any] = {}
    for part in filter(None, (part.strip() for part in text.split(";"))):
        word, equals, value = part.partition("=")
        if not equals:
            raise ValueError(f"{part!r} in settings is not of the form name=value")
        name, _, entry = word.partition(".")
        if entry:
            result.setdefault(name, {})[entry] = literal(value)
        else:
            result[name] = literal(value)
    return result


def _build_strategy(name: str, settings: str, classes: int, seed: int) -> Any:
    """Return the query strategy of scikit-activeml, with the values that a site provides."""
    pool = _pool()
    base = import_optional(
        "skactiveml.base",
        "fallow-core[scikit-activeml]",
        "a query strategy of scikit-activeml",
    ).SingleAnnotatorPoolQueryStrategy
    known = {
        word: cls
        for word, cls in vars(pool).items()
        if isinstance(cls, type) and issubclass(cls, base)
    }
    require_known(name, known, f"skactiveml.pool has no query strategy {name!r}")
    cls = known[name]
    _find_classifier_argument(cls)
    parameters = inspect.signature(cls).parameters
    values = _parse_settings(settings)
    for word in values:
        if word not in parameters or word in PROVIDED:
            accepted = [key for key in parameters if key not in PROVIDED]
            raise ValueError(f"{name} has no setting {word!r}{nearest(word, accepted)}")
    if "n_classes" in parameters:
        values.setdefault("n_classes", max(classes, 2))
    if "classes" in parameters:
        values.setdefault("classes", list(range(classes)))
    if EMBEDDING in parameters:
        values.setdefault(EMBEDDING, "return_embeddings")
    if CLUSTERING in parameters:  # some strategies would cluster by NumPy's global seed
        values[CLUSTERING] = {SEED: seed, **(values.get(CLUSTERING) or {})}
    with explain_errors(f"{name} cannot be made with {values}: ", of=TypeError):
        return cls(**values, random_state=seed)


def _find_classifier_argument(cls: type[Any]) -> str | None:
    """Return the argument of ``query`` that takes a classifier, or None if there is none.

    Raises ValueError for a query strategy that needs anything else.
    """
    if cls.__name__ in OWN_CLASSIFIER:
        raise ValueError(
            f"{cls.__name__} refits the classifier or needs a special one, and the model of a "
            "site is trained by the study; use another query strategy"
        )
    parameters = list(inspect.signature(cls.query).parameters.values())[3:]
    required = [item.name for item in parameters if item.default is item.empty]
    for name in required:
        if name not in CLASSIFIERS:
            raise ValueError(
                f"{cls.__name__} needs {name}, which a site does not have; use a query strategy "
                "that needs a classifier at most"
            )
    return required[0] if required else None


def _build_classifier(view: View, model: str, seed: int) -> Any:
    """Return the model of a site as a classifier of scikit-activeml; ties are random."""
    from skactiveml.base import SkactivemlClassifier

    state = view.model(model)
    like = view.rows()

    class SiteModel(SkactivemlClassifier):
        """Classifier that is fitted already."""

        def fit(self, X: Any, y: Any, sample_weight: Any = None) -> SiteModel:  # noqa: N803
            if hasattr(self, "classes_"):
                raise ValueError(
                    "this query strategy refits the classifier, and the model of a site is trained "
                    "by the study; use another query strategy"
                )
            self._validate_data(X, y, sample_weight)
            return self

        def predict_proba(self, X: Any, return_embeddings: bool = False) -> Any:  # noqa: N803
            rows = torch.as_tensor(np.asarray(X)).to(like).reshape(-1, *like.shape[1:])
            features, logits = view.look(state, rows)
            probabilities = logits.double().softmax(1).numpy()
            if return_embeddings:
                return probabilities, features.double().numpy()
            return probabilities

    classes = list(range(view.classes))
    return SiteModel(classes=classes, missing_label=math.nan, random_state=seed)
