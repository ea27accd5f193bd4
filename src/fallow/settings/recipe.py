"""A recipe: data, partition, model, training, query and settings of a run, frozen and checked."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, is_dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args, get_type_hints

from fallow.core.build import find, nearest
from fallow.core.contract import Contract
from fallow.core.kinds import describe_wrong_value, refuse_truth
from fallow.core.names import BUILT_IN, OWN, NamePolicy
from fallow.core.own import own_class
from fallow.core.terms import suggest_keyword
from fallow.core.training_config import (
    KEYWORDS,
    Optimizer,
    TrainingConfig,
    TrainingStage,
    expand_keywords,
    merge_explicit,
)
from fallow.privacy import Privacy
from fallow.settings.budgets import POLICIES, Share
from fallow.settings.resolved import resolve_settings
from fallow.settings.spec import Published, Spec, literal
from fallow.settings.stopping import parse_stop
from fallow.settings.training_defaults import complete_training

if TYPE_CHECKING:
    from pydantic import TypeAdapter

TEXTS = (str, str | None)
OUTSIDE = ("name", "title", "strategies", "reference", "seeds", "bounds", "published")
"""Fields that do not change what a run computes."""
Device = Literal["none", "cpu", "cuda", "mps"]
Precision = Literal["float32", "bf16", "tf32"]
PLACES: tuple[tuple[Device, Precision], ...] = (
    ("none", "float32"),
    ("cpu", "float32"),
    ("cpu", "bf16"),
    ("cuda", "float32"),
    ("cuda", "bf16"),
    ("cuda", "tf32"),
    ("mps", "float32"),
    ("mps", "bf16"),
)
"""Every device with every precision that it may have."""
NAMES = tuple[str, ...]
Settings = dict[str, object]
"""Nested plain settings by their names, as TOML and JSON have them."""

ONE_OR_MORE = (
    "rounds",
    "score_rounds",
    "seeds",
    "rows",
    "test_rows",
    "queries_per_cycle",
)
USUAL_AUDIT = 0.1  # where somebody says audit=true
MOST_CYCLES = 10_000  # a list of budgets has one entry for each


@dataclass(frozen=True)
class Recipe:
    """Everything that decides a run but its seed.  All fields travel into ``study.json``.

    Built by hand it trains with FedAvg unless ``training`` names another algorithm.  The default of
    `fallow.run`, `fallow.compare` and files without a ``base`` is the closed form.
    Raises ValueError for a value that cannot be, with the name of the setting.

    >>> import fallow as fl
    >>> recipe = fl.Recipe("mine", strategy=fl.Spec("badge"), rounds=5)
    >>> recipe.rounds, recipe.data, str(recipe.training)
    (5, 'digits', 'fedavg')
    >>> fl.run(recipe=recipe, sites=3, cycles=1)
    Run(badge on digits, seed 0: 2 phases, 216 labels, accuracy 0.90)
    """

    name: str
    title: str = ""
    # data
    data: str = "digits"  # a named set, or a path to a table, an .npz file or a folder
    label: str | None = None  # label column of a table
    site: str | None = None  # site column of a table
    id: str | None = None  # column of row names of a table; None: "id", if there is one
    drop: tuple[str, ...] = ()  # columns of a table that are no features
    columns: tuple[str, ...] = ()  # the features of a table; (): all that can be
    task: Literal["auto", "classification", "regression"] = "auto"  # of a table
    # rows of your own data with missing or infinite features are left out
    drop_rows: bool = False
    # of images in a .npz file: (n, channels, height, width) or (n, height, width, channels)
    channels: Literal["auto", "first", "last"] = "auto"
    rows: int | None = None  # a seeded subset of the training rows
    test_rows: int | None = None
    resplit: bool = False  # test rows are drawn anew for every seed, as many as before
    # rows become what this model, with frozen weights, sees in them
    features: Spec | None = None
    # rows become what this encoder makes of them, fitted by totals over all sites
    encoder: Spec | None = None
    # auto: own tables, regression, and what an encoder makes
    standardize: Literal["auto", "federated", "none"] = "auto"
    target_scale: Literal["labeled", "oracle", "none"] = "labeled"  # numbers to predict
    partition: Spec = Spec("exact-dirichlet", {"alpha": 0.1})
    sites: int = 10  # 0 with the natural partition: every site that the data names
    flip: int = 0  # so many sites have wrong labels, C - 1 - y; scores are over the others
    # model and training
    model: Spec = Spec("linear")
    training: Spec = Spec("fedavg")
    # exact: after the last round the head of the trained model is solved for in closed form
    head: Literal["trained", "exact"] = "trained"
    training_config: TrainingConfig = TrainingConfig(
        (TrainingStage(2),), 16, Optimizer(lr=0.01)
    )
    rounds: int = 15  # rounds in a phase
    participation: float = 1.0  # share of sites in a round; all take part in the last one
    # the global model at the start of a cycle
    restart: Literal["fresh", "continue"] = "fresh"
    # the local model that a query looks at; auto: what the strategy's paper uses
    local_source: Literal["auto", "last_round", "scratch", "finetune"] = "auto"
    # for scratch and finetune
    local_training_config: TrainingConfig = TrainingConfig(
        (TrainingStage(50),), 64, Optimizer(lr=0.01), stop_at=0.99
    )
    # labels
    strategy: Spec = Spec("random")
    initial: Share = 0.10  # first labels: a fraction of all rows, or labels a site
    # who chooses them: random, typical rows of all sites, or the query (one_pass only)
    initial_by: Literal["random", "typical", "query"] = "random"
    # of every cycle alike, or of each in turn
    per_cycle: Share | tuple[Share, ...] = 0.05
    # a cycle's budget is bought in so many parts, one after the other
    queries_per_cycle: int = 1
    cycles: int = 3  # queries after the first training phase
    # share of each cycle's budget that is drawn by chance, to know how good the model is; true: 0.1
    audit: float = 0.0
    # when a run ends before its last cycle, as a sentence (`fallow.settings.stopping`); none: never
    stop: str | None = None
    # one_pass: each cycle chooses from nothing with the budget of all cycles so far; auto: what the
    # strategy's paper does
    protocol: Literal["auto", "cycles", "one_pass"] = "auto"
    budget: Literal["equal", "equal_rounded", "proportional"] = "equal"
    # share of the labels bought that is held back at each site; then the model of a site that is
    # best on them is scored
    validation: float = 0.0
    # labels of a query validate, beside those, in the first round of the next phase, in which a
    # training method may look for collaborators, and train from the second on
    fresh_first: bool = False
    privacy: Privacy = Privacy()  # noise on released counts, secure sums
    # evaluation and machinery
    # own: each site on test rows like its own rows
    test: Literal["common", "own"] = "common"
    score_rounds: int = 5  # the score of a cycle is the mean over this many last rounds
    executor: str = "auto"  # of `fallow.engine.executors`, or module:Class
    channels_last: bool = False
    # where models train and predict; none: on the processor, by the executor above
    device: Device = "none"
    # in which numbers a device takes products
    precision: Precision = "float32"
    dtype: Literal["float32", "float64"] = "float32"
    # the study it is usually run as
    strategies: tuple[str, ...] = ("random", "entropy")
    reference: str | None = None
    seeds: int = 10
    # upper bounds beside the strategies
    bounds: tuple[Literal["all-labels", "pooled"], ...] = ("all-labels", "pooled")
    published: Published | None = None

    @property
    def protected(self) -> Privacy:
        """The protections of a whole run, with what all its queries may spend together, and all
        closes of labels where totals leave with noise."""
        queries = self.cycles * self.queries_per_cycle
        delta = self.delta
        if delta is None:
            return self.privacy.over(queries)
        closes = (self.cycles + 1) * self.rounds
        return self.privacy.over(queries, closes=closes, delta=delta)

    @property
    def completed_training(self) -> TrainingConfig:
        """The training configuration, with the defaults of the model family where it has none."""
        return complete_training(self.training_config, self.model.name)

    @property
    def delta(self) -> float | None:
        """δ of the Gaussian noise on what training sends; None where there is no such noise."""
        contract = contract_of_training(self.training.name)
        if self.privacy.epsilon is None or contract is None or not contract.delta_field:
            return None
        value = self.training.fields.get(contract.delta_field)
        if value is None:
            return None
        return float(value)

    def __post_init__(self) -> None:
        for name in ONE_OR_MORE:
            _check_positive(name, getattr(self, name))
        if not self.is_natural or self.sites != 0:
            _check_positive("sites", self.sites)
        if self.cycles < 0:
            raise ValueError(f"cycles is {self.cycles}; it must be 0 or more")
        if self.cycles > MOST_CYCLES:
            raise ValueError(f"cycles is {self.cycles}; it must be {MOST_CYCLES} or less")
        _check_purchase("initial", self.initial, may_be_zero=True)
        is_list = isinstance(self.per_cycle, tuple)
        if is_list and self.cycles and len(self._listed) != self.cycles:
            raise ValueError(
                f"per_cycle lists {len(self._listed)} budgets and cycles is {self.cycles}; list "
                "one for each cycle"
            )
        for share in self._listed:
            _check_purchase("per_cycle", share, may_be_zero=False)
        fractions = [bought for bought in self.purchases if isinstance(bought, float)]
        if sum(fractions) > 1 + 1e-9:
            raise ValueError(
                f"initial + cycles x per_cycle is {sum(fractions):.2f} of all rows, beyond the "
                f"pool; lower one of them ({self.budget_words})"
            )
        if not 0 < self.participation <= 1:
            raise ValueError(
                f"participation is {self.participation}; it must lie in (0, 1]"
            )
        if not 0 <= self.validation < 1:
            raise ValueError(
                f"validation is {self.validation}; it is the share of bought labels that does not "
                "train, at least 0 and below 1"
            )
        if self.head == "exact" and self.validation > 0:
            raise ValueError(
                f"head is 'exact' and validation is {self.validation}: a model that validated best in "
                "some round has the head of that round; set validation=0 or head=trained"
            )
        if self.fresh_first and self.rounds < 2:
            raise ValueError(
                "with fresh_first labels train from the second round on, and rounds is 1; raise it"
            )
        self._check_audit()
        if self.stop is not None:
            parse_stop(self.stop)
        self.check_flip(self.sites)
        _check_executor(self.executor)
        _check_device(self)
        if self.encoder is not None and self.features is not None:
            raise ValueError(
                f"encoder is {self.encoder} and features is {self.features}; both make features of "
                "rows: leave one out"
            )
        if self.training_config.start not in ("given", "scratch"):
            raise ValueError(
                f"training_config.start is {self.training_config.start!r}; use 'given' or 'scratch'"
            )
        if self.budget not in POLICIES:
            raise ValueError(
                f"budget {self.budget!r} is unknown{nearest(self.budget, [*POLICIES])}"
            )

    def _check_audit(self) -> None:
        """Raise ValueError for an audit that cannot be."""
        if isinstance(self.audit, bool):
            object.__setattr__(self, "audit", USUAL_AUDIT if self.audit else 0.0)
        if not 0 <= self.audit < 1:
            raise ValueError(
                f"audit is {self.audit}; it is the share of each cycle's labels that is drawn by "
                "chance, at least 0 and below 1, such as 0.1"
            )
        if self.audit and self.queries_per_cycle > 1:
            raise ValueError(
                f"audit is {self.audit} and queries_per_cycle is {self.queries_per_cycle}: an audit "
                "is of the one query after each training; set queries_per_cycle=1 or audit=0"
            )

    def check_flip(self, sites: int) -> None:
        """Raise unless some of ``sites`` sites keep their labels; 0 sites are not yet counted."""
        if self.flip < 0 or (sites and self.flip >= sites):
            raise ValueError(
                f"flip is {self.flip} of {sites} sites; at least 0, and fewer than there are, can "
                "have wrong labels"
            )

    @property
    def is_natural(self) -> bool:
        """Whether the sites are those that the data names."""
        return self.partition.name.lower() == "natural"

    @property
    def purchases(self) -> tuple[Share, ...]:
        """What is bought first and in each cycle: fractions of all rows, or labels a site."""
        return (self.initial, *map(self.share_of, range(self.cycles)))

    def share_of(self, cycle: int) -> Share:
        """What the query of a cycle buys: a fraction of all rows, or labels a site.

        cycle: 0 for the first query after the first labels.
        """
        if isinstance(self.per_cycle, tuple):
            return self.per_cycle[cycle]
        return self.per_cycle

    @property
    def _listed(self) -> tuple[Share, ...]:
        """What ``per_cycle`` says, as a list."""
        if isinstance(self.per_cycle, tuple):
            return self.per_cycle
        return (self.per_cycle,)

    @property
    def budget_words(self) -> str:
        """The settings that decide how many labels are bought."""
        return f"initial={self.initial}, per_cycle={self.per_cycle}, cycles={self.cycles}"

    def check_rows(self, rows: int) -> None:
        """Raise unless ``rows`` rows are enough for the sites and for all labels to be bought."""
        if rows < self.sites:
            raise ValueError(
                f"{rows} rows cannot be shared by {self.sites} sites; use fewer sites, such as "
                f"--set sites={min(rows, 2)}, or more rows"
            )
        labels = 0.0
        for bought in self.purchases:
            if isinstance(bought, int):  # labels a site
                labels += bought * self.sites
            else:  # a fraction of all rows
                labels += bought * rows
        if labels > rows * (1 + 1e-9):
            raise ValueError(
                f"the budget asks for {labels:.0f} labels at {self.sites} sites, beyond the pool "
                f"of {rows} rows; lower one of {self.budget_words}"
            )

    def to_dict(self) -> dict[str, object]:
        """All settings as nested plain values; `recipe_from` makes the recipe of them again."""
        return asdict(self)

    @property
    def digest(self) -> str:
        """Identifies what a run of a person's own recipe computes: every setting with its value,
        without the titles and the study's extent.  Defaults are part of it, those of methods too,
        whose modules are imported: where a later version has others, it is another study.
        """
        return self.digest_under(OWN)

    def is_digested_as(self, digest: str) -> bool:
        """Whether ``digest`` is that of this recipe, on its own device or on any other: a run that
        was begun on a device may go on elsewhere, with the same draws."""
        if digest == self.digest:
            return True
        for device, precision in PLACES:
            try:
                elsewhere = replace(self, device=device, precision=precision)
            except ValueError:  # a device that has not the numbers of the recipe
                continue
            if digest == elsewhere.digest:
                return True
        return False

    def digest_under(self, policy: NamePolicy) -> str:
        """The digest of a recipe that somebody else wrote: no module is imported that ``policy``
        does not let resolve."""
        complete = replace(self, training_config=self.completed_training)
        settings = resolve_settings(complete, policy, OUTSIDE)
        text = json.dumps(settings, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def named_classes(recipe: Recipe) -> dict[str, str]:
    """Every class that a recipe names, by the setting that names it."""
    result = {
        "model": recipe.model.name,
        "training": recipe.training.name,
        "strategy": recipe.strategy.name,
        "partition": recipe.partition.name,
    }
    if recipe.features is not None:
        result["features"] = recipe.features.name
    if ":" in recipe.executor:
        result["executor"] = recipe.executor
    if recipe.encoder is not None:
        result["encoder"] = recipe.encoder.name
    return result


def _check_executor(name: str) -> None:
    if name != "auto":  # the engine is loaded where it is asked for
        from fallow.engine.executors import check_executor

        check_executor(name)


def _check_device(recipe: Recipe) -> None:
    """Raise ValueError for a device or a precision that cannot be on any machine."""
    device = recipe.device
    precision = recipe.precision
    if device == "none":
        if recipe.executor == "device":
            raise ValueError(
                "executor 'device' needs a device; set device=cuda, mps or cpu"
            )
        if precision != "float32":
            raise ValueError(
                f"precision is {precision!r} and device is 'none'; set device=cuda, mps or cpu "
                "beside it"
            )
        return
    if recipe.executor not in ("auto", "device"):
        raise ValueError(
            f"device is {device!r} and executor is {recipe.executor!r}, which trains on the "
            "processor; leave out one of them"
        )
    if precision == "tf32" and device != "cuda":
        raise ValueError(
            f"precision 'tf32' is for device=cuda and device is {device!r}; set "
            "precision=float32 or bf16"
        )
    if recipe.dtype == "float64" and precision != "float32":
        raise ValueError(
            f"dtype is 'float64' and precision is {precision!r}, which has fewer digits than "
            "float32; leave out one of them"
        )
    if recipe.dtype == "float64" and device == "mps":
        raise ValueError("device 'mps' has no float64; set dtype=float32 or device=cpu")


def _check_positive(name: str, value: int | None) -> None:
    if value is not None and value < 1:
        raise ValueError(f"{name} is {value}; it must be at least 1")


def _check_purchase(name: str, value: Share, *, may_be_zero: bool) -> None:
    kinds = "a fraction of all rows such as 0.05, or a whole number of labels per site"
    if may_be_zero and not value >= 0:  # so that NaN is refused too
        raise ValueError(f"the budget {name} is {value}; it must be 0 or more ({kinds})")
    if not may_be_zero and not value > 0:
        raise ValueError(f"the budget {name} is {value}; it must be above 0 ({kinds})")
    if isinstance(value, float) and value > 1:
        raise ValueError(f"the budget {name} is {value}, more than all rows; use {kinds}")


def recipe_from(settings: Mapping[str, object], base: Recipe | None = None) -> Recipe:
    """A recipe from nested plain settings (TOML, JSON), on top of ``base``.

    Raises ValueError naming the nearest key for an unknown one, and the key of a bad value.
    """
    settings = gather_training_config(settings)
    start = _start_settings(base, settings)
    return _validate_settings(_merge_settings(start, settings, Recipe, ""))


def gather_training_config(settings: Mapping[str, object]) -> Settings:
    """The settings with every setting of the training configuration in ``training_config``.

    It may stand there, as a keyword among the settings (``lr``, ``epochs``), or among the fields
    of the training algorithm.  Raises ValueError where two of these differ.

    >>> gather_training_config({"training": "fedavg:lr=0.1", "epochs": 5})[
    ...     "training_config"
    ... ]
    {'optimizer': {'lr': 0.1}, 'stages': [{'epochs': 5, 'part': 'all'}]}
    """
    gathered = dict(settings)
    algorithm, of_algorithm = _split_training(gathered.get("training"))
    keywords = {name: gathered.pop(name) for name in KEYWORDS if name in gathered}
    if "training" in gathered:
        gathered["training"] = algorithm
        if algorithm is None:
            del gathered["training"]
    sources = {
        "training_config": gathered.pop("training_config", None),
        "training": of_algorithm,
        "the settings": expand_keywords(keywords),
    }
    training_config: Mapping[str, object] = {}
    before = ""
    for source, config in sources.items():
        if config is None or (source != "training_config" and config == {}):
            continue
        if not isinstance(
            config, Mapping
        ):  # of another kind: refused where kinds are checked
            return {**gathered, "training_config": config}
        training_config = (
            merge_explicit(training_config, config, (before, source)) if before else config
        )
        before = source
    if before:
        gathered["training_config"] = training_config
    return gathered


def _split_training(training: object) -> tuple[object, Mapping[str, object]]:
    """A training algorithm as it stands in settings, and the settings of its training configuration
    that stand among its fields."""
    if isinstance(training, str):
        training = asdict(Spec.parse(training))
    if not isinstance(training, Mapping):
        return training, {}
    fields_of_it = training.get("fields", training)
    is_own = ":" in str(training.get("name", ""))
    if not isinstance(fields_of_it, Mapping) or (is_own and "fields" not in training):
        return training, {}
    others = dict(fields_of_it)
    config = others.pop("training_config", {})
    keywords = {}
    if not is_own:  # whose own fields may have these names
        keywords = {name: others.pop(name) for name in KEYWORDS if name in others}
    if not isinstance(config, Mapping):
        raise ValueError(
            f"training_config of {training.get('name')} is {config!r}; write it as a table beside "
            "training"
        )
    explicit = merge_explicit(
        config, expand_keywords(keywords), ("its training_config", "training")
    )
    if "fields" in training:
        return {**training, "fields": others}, explicit
    return others or None, explicit


def with_settings(recipe: Recipe, settings: Mapping[str, str]) -> Recipe:
    """``recipe`` with ``key=value`` settings from the command line, in their order; dots reach
    into parts.

    >>> with_settings(
    ...     Recipe("a"), {"partition.alpha": "1.0", "training_config.batch_size": "8"}
    ... ).training_config.batch_size
    8
    """
    merged = _start_settings(recipe, settings)
    hints = get_type_hints(Recipe)
    of_training: Settings = {}
    for key, text in settings.items():
        value = _from_text(text, hints.get(key))
        top, *parts = key.split(".")
        for part in reversed(
            parts
        ):  # training_config.batch_size=8: {"training_config": {"batch_size": 8}}
            value = {part: value}
        change = gather_training_config({top: value})
        config = change.get("training_config")
        if isinstance(config, Mapping):
            of_training = merge_explicit(of_training, config, ("one setting", "another"))
        merged = _merge_settings(merged, change, Recipe, "")
    return _validate_settings(merged)


def _from_text(text: str, hint: object) -> object:
    """A value as the command line writes it; names of columns and of queries stand between commas."""
    if hint in TEXTS:
        return text
    if hint == NAMES and not text.startswith("["):
        return [name.strip() for name in text.split(",") if name.strip()]
    return literal(text)


def _start_settings(base: Recipe | None, settings: Mapping[str, object]) -> Settings:
    """The settings to start from; on other data the base's name, title and numbers are wrong, and
    another training method brings settings of its own."""
    start: Settings = {}
    if base is not None:
        start = base.to_dict()
        data = settings.get("data", base.data)
        if data != base.data:
            start |= {"name": Path(str(data)).stem, "title": "", "published": None}
    if "training" in settings:
        start = _change_training(start, settings["training"])
    return start


def _change_training(start: Settings, training: object) -> Settings:
    """With what a training method brings along, and without what the method before it had brought;
    the same method with other fields changes nothing."""
    before = start.get("training")
    if _name_of(training) == _name_of(before):
        return start
    left = dict(start)
    if before is not None:
        had = _merge_settings(start, settings_of_training(before), Recipe, "")
        usual = {field.name: field.default for field in fields(Recipe)}
        for name in settings_of_training(before):
            if start[name] == had[name]:
                left[name] = usual[name]
    return _merge_settings(left, settings_of_training(training), Recipe, "")


def settings_of_training(training: object) -> Mapping[str, object]:
    """The settings that a training method brings along, as its contract says, given as it stands in
    settings: in words, or by its ``name``.  A study that gives them itself has them otherwise.

    Nothing is imported for the class of others, nor is a name complained about that is unknown:
    that is done where the method is built.

    >>> settings_of_training("closed-form:penalty=0.1")["rounds"]
    1
    """
    name = _name_of(training)
    if name is None:
        return {}
    contract = contract_of_training(name)
    if contract is None:
        return {}
    return contract.settings


def _name_of(training: object) -> str | None:
    """The name of a training method as it stands in settings, in words or by its ``name``."""
    name: object = None
    if isinstance(training, str):
        name = Spec.parse(training).name
    elif isinstance(training, Mapping):
        name = training.get("name")
    if isinstance(name, str):
        return name
    return None


def contract_of_training(name: str) -> Contract | None:
    """The contract of a training method of that name; None for the class of others, of which
    nothing is imported, and for a name that is unknown."""
    from fallow import training as common
    from fallow.training import personal

    try:
        cls = own_class(name) or find((common, personal), name, BUILT_IN)
    except ValueError:
        return None
    contract: Contract = cls.contract
    return contract


@cache
def _adapter() -> TypeAdapter[Recipe]:
    """Checks the settings of a recipe; making it costs a tenth of a second, using it nothing."""
    from pydantic import TypeAdapter

    return TypeAdapter(Recipe)


def _validate_settings(merged: Settings) -> Recipe:
    hints = get_type_hints(Recipe)
    for name, value in merged.items():
        refuse_truth(value, hints[name], name)
    from pydantic import ValidationError

    try:
        return _adapter().validate_python(merged)
    except ValidationError as error:
        sentence = describe_wrong_value(Recipe, error.errors())
        raise ValueError(sentence) from error


def _merge_settings(
    start: Mapping[str, object], settings: Mapping[str, object], kind: type, where: str
) -> Settings:
    """``settings`` over ``start``, checking every key against the dataclass ``kind``.

    where: the names of the parts that lead there, each with a dot, for errors.
    """
    merged = dict(start)
    hints = get_type_hints(kind)
    known = [field.name for field in fields(kind)]
    for key, value in settings.items():
        if key not in known:
            keywords = () if where else tuple(KEYWORDS)
            hint = suggest_keyword(key, [*known, *keywords])
            raise ValueError(f"{where}{key} is not a setting{hint}")
        merged[key] = _merge_value(
            old=merged.get(key),
            value=value,
            kind=_without_none(hints[key]),
            where=f"{where}{key}.",
        )
    return merged


def _merge_value(*, old: object, value: object, kind: object, where: str) -> object:
    """One setting given as ``value`` where ``old`` stood; ``kind`` is its declared type."""
    if kind is Spec:
        return _merge_spec(old, value)
    if isinstance(kind, type) and is_dataclass(kind) and isinstance(value, Mapping):
        if not isinstance(old, Mapping):  # the part was not set
            old = {}
        return _merge_settings(old, value, kind, where)
    is_truth = isinstance(value, bool)  # which Python counts among the whole numbers
    if where == "training_config.stages." and isinstance(value, int) and not is_truth:
        return [{"epochs": value}]  # training_config.stages=2: two epochs of all
    if where.endswith(".stages.") and isinstance(value, list):
        _check_stages(value, where)
    if where == "audit." and is_truth:  # true: the usual share
        return USUAL_AUDIT if value else 0.0
    if where == "bounds." and value is True:
        return ("all-labels", "pooled")
    if where == "bounds." and value is False:
        return ()
    return value


def _check_stages(stages: list[object], where: str) -> None:
    """Raise ValueError for a word in a list of stages that is no field of one: it would be left
    out in silence."""
    known = [field.name for field in fields(TrainingStage)]
    for at, stage in enumerate(stages):
        if not isinstance(stage, Mapping):
            continue  # of another kind: that is said where kinds are checked
        for key in stage:
            if key not in known:
                hint = nearest(str(key), known)
                raise ValueError(f"{where}{at}.{key} is not a setting{hint}")


def _merge_spec(old: object, value: object) -> object:
    """A class by name, or other fields for the one there is."""
    if isinstance(value, str):
        return asdict(Spec.parse(value))
    if not isinstance(value, Mapping) or "fields" in value:
        return value
    if "name" in value:  # TOML: partition = {name = ..., alpha = ...}
        others = {key: item for key, item in value.items() if key != "name"}
        return {"name": value["name"], "fields": others}
    if not isinstance(old, Mapping):
        raise ValueError(f"{dict(value)} names no class; give name beside its fields")
    return {**old, "fields": {**old["fields"], **value}}


def _without_none(hint: object) -> object:
    """The class in ``X | None``, where X is a dataclass; any other type as it is."""
    options = get_args(hint)
    if type(None) not in options:
        return hint
    for option in options:
        if is_dataclass(option):
            return option
    return hint
