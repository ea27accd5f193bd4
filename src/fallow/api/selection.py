"""Selection of examples from arrays, without a run."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Collection, Iterable, Mapping, Sequence, Sized
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import chain, product
from typing import Any, final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from fallow import strategies, training
from fallow.api.arrays import JoinedRows, OutputKind, as_array, as_outputs, as_rows
from fallow.api.keywords import StrategyLike, TrainingLike
from fallow.api.objects import ParsedObjects, plain, read_whole
from fallow.api.settings import check_instruction
from fallow.core.ask import Ask
from fallow.core.build import build
from fallow.core.disclosure import Disclosure
from fallow.core.exchange_key import ExchangeKey
from fallow.core.messages import ExchangeEntry, StateName
from fallow.core.methods import Methods
from fallow.core.model_vectors import Layout
from fallow.core.names import lend
from fallow.core.refusal import explain_errors
from fallow.core.suggestions import (
    explain_constructor,
    explain_function,
    nearest,
    require_known,
)
from fallow.core.types import SiteId, State
from fallow.core.view import Rows
from fallow.data.dataset import Task
from fallow.engine import Loop, row_loss
from fallow.experiment.methods import is_shared
from fallow.experiment.suitability import check_strategy
from fallow.models import check_model
from fallow.models.custom import adapt_model
from fallow.models.networks import Linear
from fallow.sites import LocalSite, RunComponents
from fallow.sites.in_process import InProcessChannel
from fallow.sites.store import Label, MemoryStore
from fallow.sites.view import MissingModel
from fallow.training import FedAvg, personal

MODELS = ("local", "global")
Picked = npt.NDArray[np.int64]
Supplied = dict[tuple[str, Rows], Tensor]
"""Model and kind of examples -> outputs (n, c) or features (n, h)."""


@explain_constructor
@final
@dataclass(frozen=True, eq=False)
class Site:
    """Data of one site, as arrays for `select`.

    Arrays may be NumPy arrays, tensors, DataFrames or lists.  They are not copied if torch
    supports their type.

    Parameters
    ----------
    pool : array-like of shape (m, ...)
        Unlabeled pool.
    labeled : tuple (x, y), optional
        Labeled examples and their class IDs, class names or regression targets.
    model : torch.nn.Module or dict, optional
        Model whose last layer is an ``nn.Linear``.  It serves as local and global model.  Use
        ``{"local": ..., "global": ...}`` for two models.
    outputs : array-like of shape (m, n_classes), optional
        Model outputs on the pool, as logits or probabilities.  Use a dict for several models, and
        a pair ``(pool, labeled)`` if the query strategy needs outputs on labeled examples.
    features : array-like of shape (m, n_hidden), optional
        Inputs of the last layer, in the same forms.  Default: computed by the model, otherwise the
        examples themselves.
    validation : tuple (x, y), optional
        Labeled examples that are not used for training.
    hidden : array-like of shape (m,), optional
        True labels of the pool, for query strategies that are upper bounds.
    outputs_are : {"probabilities", "logits"}, optional
        Kind of ``outputs``.  Default: rows that are non-negative and sum to 1 within 2 % are
        probabilities.

    Examples
    --------
    >>> import fallow as fl
    >>> fl.Site(pool=[[0.0], [1.0]], outputs=[[0.5, 0.5], [0.1, 0.9]]).outputs
    [[0.5, 0.5], [0.1, 0.9]]
    """

    pool: Any
    labeled: tuple[Any, Any] | None = None
    model: nn.Module | Mapping[str, nn.Module] | None = None
    outputs: Any = None
    features: Any = None
    validation: tuple[Any, Any] | None = None
    hidden: Any = None
    outputs_are: OutputKind | None = None

    def __repr__(self) -> str:
        output = [f"pool of {len(self.pool)}"]
        if self.labeled is not None:
            output.append(f"{len(self.labeled[1])} labeled")
        for name in ("model", "outputs", "features"):
            if getattr(self, name) is not None:
                output.append(name)
        return f"Site({', '.join(output)})"


@final
@dataclass(frozen=True, eq=False)
class Selection:
    """Selected examples of one site.

    Attributes
    ----------
    rows : ndarray of shape (k,)
        Positions in the unlabeled pool, in the order of selection.
    score : ndarray of shape (k,) or None
        Scores by which the examples were ranked, if the query strategy computes any.
    weight : ndarray of shape (k,) or None
        Weights of the labels in training, if the query strategy sets any.
    probability : ndarray of shape (k,) or None
        Inclusion probabilities, if the query strategy computes any.

    Examples
    --------
    >>> import fallow as fl
    >>> p = [[0.5, 0.5], [0.9, 0.1]]
    >>> selection = fl.select([[0.0], [1.0]], "entropy", outputs=p, n=1, details=True)
    >>> selection.rows, selection.score.round(3)
    (array([0]), array([0.693]))
    """

    rows: Picked
    score: npt.NDArray[np.float64] | None = None
    weight: npt.NDArray[np.float64] | None = None
    probability: npt.NDArray[np.float64] | None = None


@explain_function()
def select(
    pool: Any = None,
    strategy: StrategyLike | None = None,
    *,
    n: int | Mapping[Any, int] | None = None,
    labeled: tuple[Any, Any] | None = None,
    model: nn.Module | Mapping[str, nn.Module] | None = None,
    outputs: Any = None,
    features: Any = None,
    validation: tuple[Any, Any] | None = None,
    hidden: Any = None,
    outputs_are: OutputKind | None = None,
    classes: int | Sequence[Any] | None = None,
    seed: int = 0,
    cycle: int = 0,
    site: str = "site-0",
    training: TrainingLike | None = None,
    details: bool = False,
) -> Any:
    """Select examples from an unlabeled pool, or from the pools of several sites.

    The result equals that of a run with the same data, models, ``seed``, ``cycle`` and site names.

    Parameters
    ----------
    pool : array-like of shape (m, ...), or dict of str to Site
        Unlabeled pool of one site, or the sites of a federation by name.  For a federation, the
        server side of the query strategy runs too.
    strategy : query strategy, class or str
        Query strategy.
    n : int or dict of str to int
        Number of examples to select, at each site.  If a pool is smaller, all of it is
        selected, with a warning.
    labeled, model, outputs, features, validation, hidden, outputs_are : optional
        Data of a single site, as in `Site`.
    classes : int or sequence, optional
        Number of classes, or their labels in the order of the outputs.  Default: the labels that
        occur.
    seed : int, default=0
        Seed.
    cycle : int, default=0
        Cycle.  Each cycle has its own random stream.
    site : str, default="site-0"
        Name of a single site.  Each site has its own random stream.
    training : training algorithm, class or str, optional
        Training algorithm of the models, for query strategies that depend on it.
    details : bool, default=False
        Whether to return a `Selection` instead of an array.

    Returns
    -------
    ndarray of shape (k,) or Selection, or a dict of these by site
        Positions in the unlabeled pool, in the order of selection, int64.

    Raises
    ------
    ValueError
        If the query strategy needs an argument that is missing.

    Examples
    --------
    >>> import fallow as fl
    >>> fl.select(
    ...     [[0.0], [1.0], [2.0]],
    ...     fl.Entropy(),
    ...     outputs=[[1, 0], [0.5, 0.5], [0.9, 0.1]],
    ...     n=2,
    ... )
    array([1, 2])
    """
    seed = read_whole(seed, "seed")
    cycle = read_whole(cycle, "cycle")
    _check_pool_and_strategy(pool, strategy)
    if n is None:
        raise ValueError(
            "n is missing; give the number of examples to select, such as n=10"
        )
    data = {
        "labeled": labeled,
        "model": model,
        "outputs": outputs,
        "features": features,
        "validation": validation,
        "hidden": hidden,
        "outputs_are": outputs_are,
    }
    if isinstance(pool, Mapping):
        for name, value in data.items():
            if value is not None:
                raise ValueError(f"for a federation, give {name} in each fl.Site instead")
        sites = {str(name): one for name, one in pool.items()}
    elif site == "":
        raise ValueError("a site needs a name; give site='a', or omit it")
    else:
        sites = {str(site): Site(pool, **data)}
    chosen = _choose(
        strategy,
        sites,
        n=n,
        classes=classes,
        seed=seed,
        cycle=cycle,
        trained_by=training,
    )
    values: dict[str, Any] = dict(chosen)
    if not details:
        values = {name: one.rows for name, one in chosen.items()}
    if isinstance(pool, Mapping):
        return {name: values[str(name)] for name in pool}  # by the names as passed
    return values[str(site)]


def _check_pool_and_strategy(pool: object, strategy: object) -> None:
    """Reject arguments that are missing or in the wrong order."""
    check_instruction(pool, strategy, "fl.select(pool, strategy, n=...)", "pool")
    if pool is None:
        raise ValueError(
            "the pool is None; give examples, or {'a': fl.Site(...), 'b': fl.Site(...)}"
        )
    rows = pool if isinstance(pool, list | tuple) else [pool]
    if any(isinstance(row, Site) for row in rows):
        raise ValueError(
            "the pool is fl.Site without a name; give {'a': fl.Site(...), 'b': fl.Site(...)}"
        )
    if strategy is None:
        raise ValueError("the strategy is missing; write fl.select(pool, strategy, n=...)")


def _choose(
    strategy: Any,
    sites: Mapping[str, Site],
    *,
    n: Any,
    classes: int | Sequence[Any] | None,
    seed: int,
    cycle: int,
    trained_by: Any,
) -> dict[str, Selection]:
    """Select examples at each site, with both sides of the query strategy.

    ``trained_by`` is the training algorithm of the models (None: FedAvg).
    """
    method = _method(strategies, strategy, "strategy")
    if not hasattr(method, "query"):
        raise ValueError(
            f"{type(method).__name__} selects no examples; give a strategy, such as "
            "fl.Entropy()"
        )
    trainer = FedAvg()
    if trained_by is not None:
        trainer = _method(TRAINERS, trained_by, "training")
    _check_sites(method, sites)
    budget = _budget(n, sites)
    read = {name: _Read.of(name, site) for name, site in sites.items()}
    members, executor = _build_sites(method, trainer, read, classes, seed)
    ask = Ask(
        channel=InProcessChannel(members, executor),
        event_log=_UnrecordedExchanges(),
        disclosure=Disclosure(),
        key=ExchangeKey("query", "query", cycle=cycle),
        cycle=cycle,
        reveals=method.contract.disclosures,
    )
    pools = {name: len(site.pool) for name, site in members.items()}
    shared = is_shared(method)
    _warn_of_small_pools(budget, pools, shared)
    if not shared:  # as in a run
        budget = {name: min(k, pools[name]) for name, k in budget.items()}
    try:
        method.query(ask, budget, {})
        ask.flush()
    except RuntimeError as error:
        cause = error.__cause__
        if isinstance(cause, MissingModel):
            raise ValueError(_explain_missing(method, read, cause.name)) from None
        if isinstance(cause, ValueError):  # the site rejects its examples or models
            raise ValueError(str(error)) from cause
        raise
    return {name: _read_picks(site) for name, site in members.items()}


def _explain_missing(strategy: Any, read: Mapping[SiteId, _Read], model: str) -> str:
    """Explain what a query strategy lacks to read the predictions of a model."""
    name, one = min(read.items(), key=lambda item: len(item[1].models))
    ways = []
    if (model, "pool") not in one.outputs:
        ways.append(f"outputs={{{model!r}: p}}")
    elif (model, "labeled") not in one.outputs:
        ways.append(f"outputs={{{model!r}: (p, p0)}} for the pool and the labeled rows")
    elif (model, "labeled") not in one.features:
        ways.append("features=(z, z0) of the pool and of the labeled rows")
    if one.models:
        ways.append(f"model={{{model!r}: module}}")
    else:
        ways.append("model=module")
    return (
        f"{type(strategy).__name__} needs the {model} model, which site {name} does not have; give "
        f"{' or '.join(ways)}"
    )


TRAINERS = (training, personal)


def _method(package: Any, value: Any, what: str) -> Any:
    """Build an algorithm from an object, a class or a name."""
    is_object = not isinstance(value, str | type) and hasattr(value, "contract")
    if is_object:
        return value
    collected = ParsedObjects()
    spec = collected.spec(value, what)
    with lend(collected.classes):
        return build(package, spec.name, **spec.fields)


def _check_sites(strategy: Any, sites: Mapping[str, Site]) -> None:
    if not sites:
        raise ValueError("there are no sites; give at least one")
    for name, site in sites.items():
        if not isinstance(site, Site):
            raise ValueError(
                f"site {name} is {type(site).__name__}; give fl.Site(pool=..., labeled=...)"
            )
    least = strategy.contract.cohort
    if len(sites) < least:
        raise ValueError(
            f"{type(strategy).__name__} compares sites and needs at least {least}, and there is "
            f"{len(sites)}; write fl.select({{'a': fl.Site(...), 'b': fl.Site(...)}}, strategy, n=...)"
        )


def _budget(n: Any, sites: Mapping[str, Site]) -> dict[SiteId, int]:
    """Return the label budget of each site, 0 for sites that a mapping omits."""
    result = plain(n)
    shares = dict.fromkeys(sites, result)
    if isinstance(result, Mapping):
        shares = {str(name): share for name, share in result.items()}
    for name, share in shares.items():
        if name not in sites:
            hint = nearest(name, list(sites))
            raise ValueError(f"n contains no site {name!r}{hint}")
        read_whole(share, "n", "give a whole number of examples, 0 or more", least=0)
    return {name: shares.get(name, 0) for name in sites}


def _warn_of_small_pools(
    budget: Mapping[SiteId, int], pools: Mapping[SiteId, int], shared: bool
) -> None:
    """Warn if ``n`` exceeds the size of a pool.

    ``shared`` means that all sites share one budget, so that only the sum counts.
    """
    wanted = dict(budget)
    available = dict(pools)
    if shared:
        wanted = {"all sites together": sum(budget.values())}
        available = {"all sites together": sum(pools.values())}
    for name, n in wanted.items():
        if n > available[name]:
            warnings.warn(
                f"n={n} exceeds the {available[name]} unlabeled examples of {name}; "
                f"{available[name]} are selected",
                stacklevel=5,  # the caller of `select`, which is wrapped
            )


class _UnrecordedExchanges:
    """Event log that stores nothing, since a selection cannot be resumed."""

    def transaction(
        self, replaces: Collection[StateName] = ()
    ) -> AbstractContextManager[None]:
        return nullcontext()

    def recall(self, key: ExchangeKey, digest: str) -> None:
        return None

    def record(self, key: ExchangeKey, digest: str, entry: ExchangeEntry) -> None:
        return None


def _read_picks(site: LocalSite) -> Selection:
    """Return the selected examples of a site; none if it was not asked."""
    kept = site.memory.get("selected", {"rows": torch.empty(0, dtype=torch.int64)})

    def numbers(name: str) -> npt.NDArray[np.float64] | None:
        if name not in kept:
            return None
        result: npt.NDArray[np.float64] = kept[name].double().numpy()
        return result

    # The pool comes first, so that example indices at the site are positions in the pool.
    return Selection(
        rows=kept["rows"].numpy(),
        score=numbers("score"),
        weight=numbers("weight"),
        probability=numbers("probability"),
    )


@final
@dataclass(frozen=True)
class _NoTraining:
    """Placeholder for training if there is no model."""

    strategy: str

    def fit(
        self, method: Any, training_config: Any, round_: int, jobs: Sequence[Any]
    ) -> list[Any]:
        raise ValueError(
            f"{self.strategy} trains its own models during selection; give model=module"
        )


def _build_sites(
    strategy: Any,
    trainer: Any,
    read: Mapping[SiteId, _Read],
    classes: int | Sequence[Any] | None,
    seed: int,
) -> tuple[dict[SiteId, LocalSite], Any]:
    """Return the sites in this process, and the executor of their training."""
    known = _Classes.of(classes, read, strategy)
    _check_task(strategy, known, {one.width for one in read.values()})
    modules = [module for one in read.values() for module in one.models.values()]
    template = _template(modules, read, known)
    _check_needs(strategy, read)
    layout = Layout.of(template)
    methods: Methods = {"query": strategy, "training": trainer, "plain": FedAvg()}
    hidden = {
        name: known.ids(one.hidden, f"hidden labels of site {name}")
        for name, one in read.items()
        if one.hidden is not None
    }
    store = MemoryStore()
    members = {}
    for name, one in read.items():
        parts = RunComponents(
            model=template,
            layout=layout,
            methods=methods,
            classes=known.count,
            seed=seed,
            fresh=partial(_fresh, template, layout),
            hidden=hidden,
            noise="seeded",  # a selection draws from its seed, like a run
            features=one.features,
            outputs=one.outputs,
        )
        members[name] = one.site(parts, store, known)
    if not modules:
        return members, _NoTraining(type(strategy).__name__)
    task: Task = "classification" if known.count else "regression"
    return members, Loop(template, layout, row_loss(task))


def _fresh(template: nn.Module, layout: Layout, generator: torch.Generator) -> State:
    """Return newly initialized weights, for query strategies that train from scratch."""
    reset = getattr(template, "reset", None)
    if reset is None:
        raise ValueError(
            f"models are trained from new initial weights, and {type(template).__name__} "
            "has no method reset(generator) that draws them; add one"
        )
    module = copy.deepcopy(template)
    module.reset(generator)  # type: ignore[operator]
    return layout.flatten(module)


def _check_task(strategy: Any, known: _Classes, widths: set[int | None]) -> None:
    """Raise ValueError if the query strategy does not support the task.

    widths: numbers of columns of the outputs.
    """
    task: Task = "regression"
    has = "this is a regression task"
    if known.count:
        task = "classification"
        has = f"there are {known.count} classes"
    elif widths == {1}:
        has += " (outputs have one column, and classes need two or more)"
    check_strategy(strategy, type(strategy).__name__, task, has)


def _check_needs(strategy: Any, read: Mapping[SiteId, _Read]) -> None:
    """Raise ValueError if a query strategy lacks one of two models, or hidden labels."""
    needs = set(strategy.contract.needs)
    for name, one in read.items():
        if strategy.contract.simulator_only and one.hidden is None:
            raise ValueError(
                f"{type(strategy).__name__} needs the true labels of the pool of site {name}; give "
                "hidden=y"
            )
        if {"local", "global"} <= needs and one.common:
            raise ValueError(
                f"{type(strategy).__name__} compares the local with the global model, and site "
                f"{name} has one {one.common} for both; give {one.common}="
                "{'local': ..., 'global': ...}"
            )
        has_local = "local" in one.models or ("local", "pool") in one.outputs
        if "local" in needs and one.models and len(one.y) and not has_local:
            raise ValueError(_explain_missing(strategy, {name: one}, "local"))


@dataclass(frozen=True)
class _Read:
    """A `Site` as tensors.

    models, outputs, features: by name of the model.  common: the argument with one value for
    all models ("model" or "outputs"), or "".  width: number of model outputs for each example.
    """

    name: str
    pool: Tensor
    x: Tensor  # labeled examples
    y: npt.NDArray[Any]
    validation_x: Tensor
    validation_y: npt.NDArray[Any]
    hidden: npt.NDArray[Any] | None
    models: Mapping[str, Any]  # modules with a head
    outputs: Supplied
    features: Supplied
    common: str
    width: int | None

    @staticmethod
    def of(name: str, site: Site) -> _Read:
        models = {called: _module(m, name) for called, m in _by_name(site.model).items()}
        for called in models:
            require_known(called, MODELS, f"site {name} has a model called {called!r}")
        parameters = chain.from_iterable(module.parameters() for module in models.values())
        pool = _pool(site, name, next((weight.dtype for weight in parameters), None))
        with explain_errors(f"the model of site {name}: "):
            adapted: dict[str, Any] = {
                called: adapt_model(module, pool.shape[1:], None)
                for called, module in models.items()
            }
        x, y = _pair(site.labeled, "labeled", name, pool)
        validation_x, validation_y = _pair(site.validation, "validation", name, pool)
        hidden = None
        if site.hidden is not None:
            hidden = as_array(site.hidden, f"hidden labels of site {name}")
            _check_length(hidden, len(pool), f"hidden labels of site {name}", "pool")
        rows: dict[Rows, Tensor] = {"pool": pool, "labeled": x}
        outputs = _read_outputs(site.outputs, "outputs", name, rows, site.outputs_are)
        features = _read_outputs(site.features, "features", name, rows)
        if not models and site.features is None:  # examples are their own features
            for model, which in product(MODELS, rows):
                features[model, which] = rows[which].flatten(1)
        widths = {module.head.out_features for module in adapted.values()}
        widths |= {part.shape[1] for part in outputs.values()}  # (n, classes)
        if len(widths) > 1:
            raise ValueError(
                f"site {name} has models with {sorted(widths)} outputs; all must have "
                "the same number"
            )
        common = ""
        for what, value in (("outputs", site.outputs), ("model", site.model)):
            if value is not None and not isinstance(value, Mapping):
                common = what
        for supplied in (outputs, features):
            for which in rows:  # without labels, the local model is the global one
                if not len(y) and ("global", which) in supplied:
                    supplied.setdefault(("local", which), supplied["global", which])
        return _Read(
            name=name,
            pool=pool,
            x=x,
            y=y,
            validation_x=validation_x,
            validation_y=validation_y,
            hidden=hidden,
            models=adapted,
            outputs=outputs,
            features=features,
            common=common,
            width=next(iter(widths), None),
        )

    def site(self, parts: RunComponents, store: MemoryStore, known: _Classes) -> LocalSite:
        joined = JoinedRows(self.pool, self.x, self.validation_x)
        if len(joined) == 0:
            raise ValueError(f"site {self.name} has no examples; omit it")
        site = LocalSite(self.name, joined.as_tensor(), parts, store)
        labels = known.values(self.y, f"labels of site {self.name}")
        validation = known.values(
            self.validation_y, f"validation labels of site {self.name}"
        )
        first = len(self.pool)
        lines = [Label(row, value, cycle=-1) for row, value in enumerate(labels, first)]
        first += len(labels)
        for row, value in enumerate(validation, first):
            lines.append(Label(row, value, cycle=-1, is_validation=True))
        site.buy(lines)
        for name, _ in self.outputs:
            site.remember(name, {})  # its weights are unknown
        for name, module in self.models.items():
            site.remember(name, parts.layout.flatten(module))
        return site


def _pool(site: Site, name: str, dtype: torch.dtype | None) -> Tensor:
    what = f"the pool of site {name}"
    if hasattr(site.pool, "toarray"):  # a SciPy matrix, which has no length
        raise ValueError(f"{what} is sparse; give pool.toarray()")
    if not hasattr(site.pool, "__len__"):
        raise ValueError(f"{what} is {site.pool!r}; give rows of shape (n, features)")
    is_shapeless = len(site.pool) == 0 and np.ndim(site.pool) == 1
    if is_shapeless:  # an empty list has no width: use that of the labeled examples
        shape = torch.Size([1])
        if site.labeled is not None and len(site.labeled[0]):
            shape = as_rows(site.labeled[0], what).shape[1:]
        return torch.empty((0, *shape), dtype=dtype or torch.float32)
    return as_rows(site.pool, what, dtype)


def _pair(
    pair: Any,
    what: str,
    name: str,
    pool: Tensor,
) -> tuple[Tensor, npt.NDArray[Any]]:
    """Return labeled examples in the type and shape of the pool."""
    if pair is None:
        return pool[:0], np.empty(0, dtype=np.int64)
    if not isinstance(pair, tuple | list) or len(pair) != 2:
        raise ValueError(f"{what} of site {name} must be a pair (x, y)")
    y = as_array(pair[1], f"{what} labels of site {name}")
    for value in y.tolist():
        if value is None:
            raise ValueError(
                f"labels of site {name} contain None, which is not a class; omit examples "
                "without a label"
            )
    if len(y) == 0:
        return pool[:0], np.empty(0, dtype=np.int64)
    x = as_rows(pair[0], f"{what} rows of site {name}", pool.dtype)
    _check_length(y, len(x), f"{what} labels of site {name}", what)
    if x.shape[1:] != pool.shape[1:]:
        raise ValueError(
            f"site {name}: {what} rows have shape {tuple(x.shape[1:])} and those of the pool "
            f"{tuple(pool.shape[1:])}; they must agree"
        )
    return x, y


def _check_length(values: Sized, rows: int, what: str, of: str) -> None:
    if len(values) != rows:
        raise ValueError(f"{what} are {len(values)} for {rows} {of} rows; give one per row")


def _by_name(value: Any) -> dict[str, Any]:
    """Return the values of each model; one value serves both models."""
    if value is None:
        return {}
    if isinstance(value, Mapping):
        return dict(value)
    return dict.fromkeys(MODELS, value)


def _read_outputs(
    source: Any,
    what: str,
    name: str,
    rows: Mapping[Rows, Tensor],
    kind: OutputKind | None = None,
) -> Supplied:
    """Return outputs as logits (n, n_classes), or features (n, n_hidden)."""
    result: Supplied = {}
    for model, value in _by_name(source).items():
        pair = value if isinstance(value, tuple) else (value,)
        if len(pair) > 2:
            raise ValueError(f"{what} of site {name} must be an array, or (pool, labeled)")
        for which, part in zip(rows, pair, strict=False):
            words = f"{what} of site {name} ({which} rows)"
            if what == "features":
                tensor = as_rows(part, words).flatten(1)
            else:
                tensor = as_outputs(part, words, kind)
                if len(tensor) and not bool(tensor.isfinite().any()):
                    raise ValueError(f"{words}: no row is finite; the model has diverged")
            _check_length(tensor, len(rows[which]), words, which)
            result[model, which] = tensor
    return result


def _module(value: Any, name: str) -> nn.Module:
    """Check that a value is a module; its last layer is found later."""
    if not isinstance(value, nn.Module):
        raise ValueError(
            f"the model of site {name} is {type(value).__name__}; give a torch.nn.Module"
        )
    return value


def _template(
    modules: Sequence[nn.Module], read: Mapping[SiteId, _Read], known: _Classes
) -> nn.Module:
    """Return the shared architecture, or an unused placeholder if there is no model."""
    first = next(iter(read.values()))
    shape = tuple(first.pool.shape[1:])
    for name, one in read.items():
        if tuple(one.pool.shape[1:]) != shape:
            raise ValueError(
                f"rows of site {name} have shape {tuple(one.pool.shape[1:])} and others {shape}; "
                "all sites must have the same columns"
            )
    if not modules:
        return Linear(shape, max(known.count, 1))
    layouts = {Layout.of(module) for module in modules}
    if len(layouts) > 1:
        raise ValueError(
            "the models have different architectures; give all sites the same one"
        )
    template = copy.deepcopy(modules[0])
    check_model(template, shape, known.count or 1)
    return template


@dataclass(frozen=True)
class _Classes:
    """Class labels and their IDs; empty for regression."""

    names: tuple[Any, ...]

    @property
    def count(self) -> int:
        return len(self.names)

    @staticmethod
    def of(
        value: int | Sequence[Any] | None, read: Mapping[SiteId, _Read], strategy: Any
    ) -> _Classes:
        widths = {one.width for one in read.values() if one.width is not None}
        if len(widths) > 1:
            raise ValueError(
                f"models have {sorted(widths)} outputs; all must have the same number"
            )
        width = next(iter(widths), None)
        labels = [one.y for one in read.values() if len(one.y)]
        if value is None:
            classes = _occurring(labels, width, strategy)
        else:
            classes = _read_classes(value)
        if width is not None and classes and len(classes) != width:
            raise ValueError(
                f"the models have {width} outputs and the labels {len(classes)} classes; give "
                "classes= with the label of each output, in order"
            )
        return _Classes(classes)

    def ids(self, y: npt.NDArray[Any], what: str) -> Tensor:
        """Return int64 class IDs, or float64 regression targets, of shape (n,)."""
        values = self.values(y, what)
        if not self.names:
            return torch.tensor(values)
        return torch.tensor(values, dtype=torch.int64)

    def values(self, y: npt.NDArray[Any], what: str) -> list[float]:
        if not self.names:
            numbers = [float(value) for value in y.tolist()]
            if not np.isfinite(numbers).all():
                raise ValueError(
                    f"{what} contain a number that is NaN or infinite; omit it"
                )
            return numbers
        known = {name: i for i, name in enumerate(self.names)}
        result: list[float] = []
        for value in y.tolist():
            if isinstance(value, float) and value.is_integer():
                value = int(value)
            if value not in known:
                raise ValueError(
                    f"{what} contain {value!r}, which is not a class; there are "
                    f"{_some(self.names)} (classes= sets others; omit examples without a "
                    "label)"
                )
            result.append(known[value])
        return result


def _read_classes(value: object) -> tuple[Any, ...]:
    """Return the label of each output, in order."""
    names = plain(value)
    if isinstance(names, int) and not isinstance(names, bool) and names >= 0:
        return tuple(range(names))
    if isinstance(names, str) or not isinstance(names, Iterable):
        raise ValueError(
            f"classes is {value!r}; give a number of classes, or a list of their labels"
        )
    classes = tuple(plain(name) for name in names)
    for name in classes:
        if classes.count(name) > 1:
            raise ValueError(f"classes contains {name!r} twice; give each label once")
    return classes


def _some(names: Sequence[Any]) -> str:
    """Return the first six names, for a message."""
    shown = ", ".join(repr(name) for name in names[:6])
    if len(names) > 6:
        shown += ", ..."
    return shown


def _occurring(
    labels: Sequence[npt.NDArray[Any]], width: int | None, strategy: Any
) -> tuple[Any, ...]:
    """Return the classes that occur in labels and outputs; () for regression."""
    if not labels:
        if width == 1 or (width is None and not strategy.contract.classes):
            return ()
        return tuple(range(width or 2))
    y = np.concatenate([part.astype(object) for part in labels])
    is_number = all(isinstance(v, int | float | bool | np.number) for v in y)
    if not is_number:
        return tuple(sorted({str(value) for value in y}))
    if width == 1:
        return ()
    numbers = y.astype(np.float64)
    numbers = numbers[~np.isnan(numbers)]  # rejected later as a missing label
    result: tuple[int, ...] = ()
    is_whole = bool((numbers == np.floor(numbers)).all())
    if is_whole:
        result = tuple(sorted({int(value) for value in numbers}))
    if width is None:
        return result
    # Labels 1, 2, 3 with three outputs denote these in order; other labels are 0-based indices.
    is_in_order = len(result) == width == result[-1] - result[0] + 1
    if is_in_order:
        return result
    return tuple(range(width))
