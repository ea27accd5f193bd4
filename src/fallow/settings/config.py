"""Experiment configuration: a frozen dataclass that is validated on creation."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, is_dataclass, replace
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_origin

from fallow.catalog import name_of_data
from fallow.core.build import find, resolve_name
from fallow.core.kinds import conditions_of, drop_none, hints_of, literal, refuse_conversion
from fallow.core.limits import (
    Conflict,
    Limits,
    NonNegativeInt,
    PositiveInt,
    check_limits,
)
from fallow.core.load_options import NAMES as NAMES_OF_OPTIONS
from fallow.core.load_options import LoadOptions
from fallow.core.names import BUILT_IN, OWN, NamePolicy, own_class
from fallow.core.suggestions import (
    explain_constructor,
    require_known,
    suggest_keyword,
)
from fallow.core.training_config import (
    KEYWORDS,
    Optimizer,
    TrainingConfig,
    TrainingStage,
    expand_keywords,
    merge_explicit,
)
from fallow.core.wording import add_parameters
from fallow.core.wrong_values import describe_wrong_value
from fallow.privacy.settings import Privacy
from fallow.settings.budgets import (
    BudgetAllocation,
    LabelBudget,
    check_budget,
    check_budget_kind,
    describe_reading,
)
from fallow.settings.classes import (
    NAMED_MEASUREMENTS,
    PARTS,
    packages_of,
    resolve_settings,
)
from fallow.settings.components import check_component, has_parameter
from fallow.settings.descriptions import MEANINGS
from fallow.settings.spec import Published, Spec
from fallow.settings.stopping import parse_stop
from fallow.settings.training_defaults import complete_training

if TYPE_CHECKING:
    from pydantic import TypeAdapter

    from fallow.core.contract import Contract

TEXTS = (str, str | None)
OF_FILES = ("data", *NAMES_OF_OPTIONS)
"""Settings that determine, with the files, which examples are read."""
OUTSIDE = ("name", "title", "strategies", "reference", "seeds", "bounds", "published")
"""Fields that do not affect the results of a run."""
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
"""Valid combinations of device and precision."""
NAMES = tuple[str, ...]
NUMBERS = tuple[float, ...]
Settings = dict[str, object]
"""Nested settings by name, as in TOML and JSON."""

BUDGETS = ("initial", "budget")
LISTED = "; 'fallow settings' and docs/settings.md list them"
"""End of the sentence about an unknown setting that is near no other."""
COVERAGE = Limits(
    gt=0,
    lt=1,
    meaning="the share of new examples whose prediction set contains their label",
    advice=", such as 0.9",
)
MOST_CYCLES = 10_000  # a list of budgets has one entry for each
SITES = Limits(ge=0, advice=" (0: all sites in the data, with the natural partition)")
DISCLOSURE = "disclosure"
"""Name of the attacks in the setting ``measure``."""
EVALUATION_FRACTION = Limits(
    ge=0,
    lt=1,
    meaning="the fraction of each cycle's labels that are drawn at random",
    advice=", such as 0.1",
)


CONFLICTS = (
    Conflict(
        ("head", "validation"),
        lambda head, validation: head == "exact" and validation > 0,
        ": a model with the best validation score has the head of an earlier round; set "
        "validation=0 or head=trained",
    ),
    Conflict(
        ("fresh_first", "rounds"),
        lambda fresh_first, rounds: fresh_first and rounds < 2,
        ": labels of the cycle are used from the second round on; set rounds=2 or more",
    ),
    Conflict(
        ("evaluation_fraction", "queries_per_cycle"),
        lambda fraction, queries: fraction and queries > 1,
        ": an evaluation set requires one query per training; set queries_per_cycle=1 or "
        "evaluation_fraction=0",
    ),
    Conflict(
        ("encoder", "features"),
        lambda encoder, features: encoder is not None and features is not None,
        "; both compute features of examples: omit one",
    ),
    Conflict(
        ("executor", "device"),
        lambda executor, device: executor == "device" and device == "none",
        "; set device=cuda, mps or cpu",
    ),
    Conflict(
        ("precision", "device"),
        lambda precision, device: precision != "float32" and device == "none",
        "; also set device=cuda, mps or cpu",
    ),
    Conflict(
        ("device", "executor"),
        lambda device, executor: device != "none" and executor not in ("auto", "device"),
        ", which trains on the CPU; omit one of them",
    ),
    Conflict(
        ("precision", "device"),
        lambda precision, device: precision == "tf32" and device != "cuda",
        ", which does not support it; set device=cuda, or precision=float32 or bf16",
    ),
    Conflict(
        ("dtype", "precision"),
        lambda dtype, precision: dtype == "float64" and precision != "float32",
        ", which has fewer digits than float32; omit one of them",
    ),
    Conflict(
        ("dtype", "device"),
        lambda dtype, device: dtype == "float64" and device == "mps",
        ", which does not support it; set dtype=float32 or device=cpu",
    ),
)
"""Settings that exclude each other."""


@explain_constructor
@dataclass(frozen=True)
class ExperimentConfig(LoadOptions):
    """Experiment configuration: all settings of an experiment except the seed.

    The configuration is stored in ``study.json``.

    The defaults of ``training`` and ``partition`` depend on the entry point.  They are FedAvg
    and exact-dirichlet with alpha 0.1 for an `ExperimentConfig` created directly.  They are
    `ClosedForm` and the sites in the data, otherwise iid, for `fallow.run`, `fallow.compare`
    and files without ``base``.

    Parameters
    ----------
    name : str
        Name of the experiment.
    training_config : TrainingConfig
        Local training in a round.
    local_training_config : TrainingConfig
        Training of the local model that a query strategy uses.
    privacy : Privacy
        Secure aggregation and differential privacy.

    Raises
    ------
    ValueError
        If a value is invalid.

    Examples
    --------
    >>> import fallow as fl
    >>> config = fl.ExperimentConfig("mine", strategy=fl.Spec("badge"), rounds=5)
    >>> config.rounds, config.data, str(config.training)
    (5, 'digits', 'fedavg')
    >>> fl.run(config=config, sites=3, cycles=1)
    Run(badge on digits, seed 0: 2 phases, 216 labels, accuracy 0.90)
    """

    name: str
    title: str = ""
    # data
    data: str = "digits"
    rows: PositiveInt | None = None
    test_rows: PositiveInt | None = None
    resplit: bool = False
    features: Spec | None = None
    encoder: Spec | None = None
    standardize: Literal["auto", "federated", "ranges", "none"] = "auto"
    target_scale: Literal["labeled", "oracle", "none"] = "labeled"
    partition: Spec = Spec("exact-dirichlet", {"alpha": 0.1})
    sites: Annotated[int, SITES] = 10
    flip: NonNegativeInt = 0
    # model and training
    model: Spec = Spec("linear")
    training: Spec = Spec("fedavg")
    head: Literal["trained", "exact"] = "trained"
    training_config: TrainingConfig = TrainingConfig(
        (TrainingStage(2),), 16, Optimizer(lr=0.01)
    )
    rounds: PositiveInt = 15
    participation: Annotated[float, Limits(gt=0, le=1)] = 1.0
    restart: Literal["fresh", "continue"] = "fresh"
    local_source: Literal["auto", "last_round", "scratch", "finetune"] = "auto"
    local_training_config: TrainingConfig = TrainingConfig(
        (TrainingStage(50),), 64, Optimizer(lr=0.01), stop_at=0.99
    )
    # labels
    strategy: Spec = Spec("random")
    initial: LabelBudget = 0.10
    initial_by: Literal["random", "typical", "query"] = "random"
    budget: LabelBudget | tuple[LabelBudget, ...] = 0.05
    queries_per_cycle: PositiveInt = 1
    cycles: Annotated[int, Limits(ge=0, le=MOST_CYCLES)] = 3
    evaluation_fraction: Annotated[float, EVALUATION_FRACTION] = 0.0
    stop: str | None = None
    protocol: Literal["auto", "cycles", "one_pass"] = "auto"
    budget_allocation: BudgetAllocation = "equal"
    validation: Annotated[
        float,
        Limits(ge=0, lt=1, meaning="the fraction of labels that are not used for training"),
    ] = 0.0
    fresh_first: bool = False
    privacy: Privacy = Privacy()
    # evaluation and execution
    test: Literal["common", "own"] = "common"
    score_rounds: PositiveInt = 5
    metrics: tuple[str, ...] = ()
    coverage: Annotated[float, COVERAGE] | None = None
    measure: tuple[str, ...] = ()
    executor: str = "auto"
    channels_last: bool = False
    device: Device = "none"
    precision: Precision = "float32"
    dtype: Literal["float32", "float64"] = "float32"
    # defaults of the study
    strategies: tuple[str, ...] = ("random", "entropy")
    reference: str | None = None
    seeds: PositiveInt = 10
    bounds: tuple[Literal["all-labels", "pooled"], ...] = ("all-labels", "pooled")
    published: Published | None = None
    CONFLICTS = CONFLICTS

    @property
    def protected(self) -> Privacy:
        """Privacy settings of a run, with the privacy budget of all its queries.

        With noise on training contributions, the end of labeling of each cycle counts too.
        """
        queries = self.cycles * self.queries_per_cycle
        delta = self.delta
        if delta is None:
            return self.privacy.over(queries)
        closes = (self.cycles + 1) * self.rounds
        return self.privacy.over(queries, closes=closes, delta=delta)

    @property
    def completed_training(self) -> TrainingConfig:
        """Training configuration with the defaults of the model family filled in."""
        return complete_training(self.training_config, self.model.name)

    @property
    def completed_model(self) -> Spec:
        """Model with the fields that it shares with the training algorithm.

        Raises ValueError for another value of such a field.

        >>> config = ExperimentConfig(
        ...     "a", training=Spec("boosted-trees", {"depth": 2}), model=Spec("trees")
        ... )
        >>> str(config.completed_model)
        'trees:stages=100:depth=2'
        """
        contract = contract_of_training(self.training.name)
        if contract is None or not contract.model_fields:
            return self.model
        cls = class_of_training(self.training.name)
        shared = {
            name: self.training.fields.get(name, getattr(cls, name))
            for name in contract.model_fields
        }
        for name, value in self.model.fields.items():
            if value != shared.get(name, value):
                raise ValueError(
                    f"model is {self.model}, and training {self.training} determines its "
                    f"{name}, {shared[name]!r}; omit it there"
                )
        return Spec(self.model.name, {**self.model.fields, **shared})

    @property
    def delta(self) -> float | None:
        """Delta of the Gaussian noise on training contributions, or None without such noise."""
        contract = contract_of_training(self.training.name)
        if self.privacy.epsilon is None or contract is None or not contract.delta_field:
            return None
        value = self.training.fields.get(contract.delta_field)
        if value is None:
            return None
        return float(value)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_limits(self)
        for name, hint in hints_of(ExperimentConfig).items():
            value = getattr(self, name)
            if get_origin(hint) is tuple and isinstance(value, str):
                raise ValueError(
                    f"{name} is {value!r}; it must be a list, such as [{value!r}]"
                )
        if self.sites == 0 and not self.is_natural:
            raise ValueError("sites is 0; it must be at least 1")
        for name in BUDGETS:
            check_budget_kind(name, getattr(self, name))
        if isinstance(self.budget, list):  # from Python
            object.__setattr__(self, "budget", tuple(self.budget))
        check_budget("initial", self.initial, may_be_zero=True)
        is_list = isinstance(self.budget, tuple)
        if is_list and self.cycles and len(self._listed) != self.cycles:
            raise ValueError(
                f"budget lists {len(self._listed)} numbers and cycles is {self.cycles}; "
                "give one for each cycle"
            )
        for share in self._listed:
            check_budget("budget", share, may_be_zero=False)
        fractions = [bought for bought in self.purchases if isinstance(bought, float)]
        if sum(fractions) > 1 + 1e-9:
            raise ValueError(
                f"initial + cycles x budget is {sum(fractions):.2f} of all examples, more "
                "than the unlabeled pool; lower one of them "
                f"({self.budget_words}){self._describe_whole()}"
            )
        if self.stop is not None:
            parse_stop(self.stop)
        _check_metrics(self.metrics)
        _check_measure(self.measure)
        self.check_flip(self.sites)
        _check_executor(self.executor)
        if self.training_config.start not in ("given", "scratch"):
            raise ValueError(
                f"training_config.start is {self.training_config.start!r}; use 'given' or 'scratch'"
            )

    def check_flip(self, sites: int) -> None:
        """Raise ValueError unless at least one site has correct labels.

        Parameters
        ----------
        sites : int
            Number of sites; 0 while it is unknown.
        """
        if sites and self.flip >= sites:
            raise ValueError(
                f"flip is {self.flip} of {sites} sites; it must be below the number of sites"
            )

    @property
    def is_natural(self) -> bool:
        """Whether the sites are those in the data."""
        return self.partition.name.lower() == "natural"

    @property
    def purchases(self) -> tuple[LabelBudget, ...]:
        """Label budgets of the initial labeled set and of each cycle."""
        return (self.initial, *map(self.budget_of, range(self.cycles)))

    def budget_of(self, cycle: int) -> LabelBudget:
        """Return the label budget of a cycle: a fraction of all examples, or labels per site.

        Parameters
        ----------
        cycle : int
            Cycle; 0 is the first one after the initial labeled set.
        """
        if isinstance(self.budget, tuple):
            return self.budget[cycle]
        return self.budget

    @property
    def _listed(self) -> tuple[LabelBudget, ...]:
        """``budget`` as a tuple."""
        if isinstance(self.budget, tuple):
            return self.budget
        return (self.budget,)

    @property
    def budget_words(self) -> str:
        """Settings that determine the number of labels, as text."""
        return f"initial={self.initial}, budget={self.budget}, cycles={self.cycles}"

    @property
    def budget_reading(self) -> str:
        """How a label budget of 1 is read, or an empty text."""
        return describe_reading(self.initial, self._listed)

    def _describe_whole(self) -> str:
        """Return the part of a sentence about budgets of 1.0, which may be meant as 1."""
        if 1.0 not in [item for item in self.purchases if isinstance(item, float)]:
            return ""
        return "; 1.0 means all examples: for 1 label at each site write 1"

    def check_rows(self, rows: int) -> None:
        """Raise ValueError if there are too few examples for the sites or the label budget.

        Parameters
        ----------
        rows : int
            Number of training examples of all sites.
        """
        if rows < self.sites:
            raise ValueError(
                f"{rows} examples cannot be distributed over {self.sites} sites; use "
                f"fewer sites, such as --set sites={min(rows, 2)}, or more examples"
            )
        labels = 0.0
        for bought in self.purchases:
            if isinstance(bought, int):  # labels per site
                labels += bought * self.sites
            else:  # fraction of all examples
                labels += bought * rows
        if labels > rows * (1 + 1e-9):
            raise ValueError(
                f"the label budget is {labels:.0f} labels at {self.sites} sites, more "
                f"than the unlabeled pool of {rows} examples; lower one of "
                f"{self.budget_words}{self._describe_whole()}"
            )

    def to_dict(self) -> dict[str, object]:
        """Return all settings as nested plain values; `config_from` is the inverse."""
        return asdict(self)

    @property
    def digest(self) -> str:
        """Digest of all settings that affect the results of a run.

        It includes the defaults of all components, so that a version with other defaults has another
        digest.  It excludes titles, and the strategies and seeds of a study.  Custom modules are
        imported.
        """
        return self.digest_under(OWN)

    def is_digested_as(self, digest: str) -> bool:
        """Return whether a digest belongs to this configuration on any device.

        A run can be resumed on another device with the same random draws.

        Parameters
        ----------
        digest : str
            Digest of a stored run.
        """
        if digest == self.digest:
            return True
        for device, precision in PLACES:
            try:
                elsewhere = replace(self, device=device, precision=precision)
            except ValueError:  # the device does not support the dtype or precision
                continue
            if digest == elsewhere.digest:
                return True
        return False

    def digest_under(self, policy: NamePolicy) -> str:
        """Return the digest of an untrusted configuration.

        Parameters
        ----------
        policy : NamePolicy
            Names that may be imported.
        """
        complete = replace(self, training_config=self.completed_training)
        settings = resolve_settings(complete, policy, OUTSIDE)
        text = json.dumps(settings, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


if ExperimentConfig.__doc__:
    ExperimentConfig.__doc__ = add_parameters(
        ExperimentConfig.__doc__,
        "".join(
            f"    {setting.name}\n        {MEANINGS[setting.name]}\n"
            for setting in fields(ExperimentConfig)
            if setting.name in MEANINGS
        ),
    )


def named_classes(config: ExperimentConfig) -> dict[str, str]:
    """Return the names of all components, by setting; ``module:Class`` for an extension."""
    result = {
        "model": config.model.name,
        "training": config.training.name,
        "strategy": config.strategy.name,
        "partition": config.partition.name,
    }
    if config.features is not None:
        result["features"] = config.features.name
    if ":" in config.executor:
        result["executor"] = config.executor
    if config.encoder is not None:
        result["encoder"] = config.encoder.name
    for setting, name in result.items():
        if setting in PARTS:
            result[setting] = resolve_name(packages_of(setting), name)
    return result


def _check_metrics(names: tuple[str, ...]) -> None:
    """Raise ValueError for an unknown metric or one that is listed twice."""
    if not names:
        return
    from fallow.engine.score_metrics import find_metric

    for name in names:
        find_metric(name)
    _refuse_twice("metrics", names)


def _check_measure(names: tuple[str, ...]) -> None:
    """Raise ValueError for an unknown measurement or one that is listed twice."""
    known = [DISCLOSURE, *map(str.lower, import_module(NAMED_MEASUREMENTS).MODULES)]
    for name in names:
        require_known(name, known, f"measure lists {name!r}, which is not a measurement")
    _refuse_twice("measure", names)


def _refuse_twice(setting: str, names: tuple[str, ...]) -> None:
    """Raise ValueError for a name that a setting lists twice."""
    for name in dict.fromkeys(names):
        if names.count(name) > 1:
            raise ValueError(f"{setting} lists {name!r} twice; list it once")


def _check_executor(name: str) -> None:
    if name != "auto":  # load the engine only if needed
        from fallow.engine.executors import check_executor

        check_executor(name)


def config_from(
    settings: Mapping[str, object], base: ExperimentConfig | None = None
) -> ExperimentConfig:
    """Create an experiment configuration from nested plain settings, on top of ``base``.

    Raises ValueError for an unknown key (with the closest name) and for an invalid value.
    """
    settings = gather_training_config(settings)
    start = _start_settings(base, settings)
    return _validate_settings(_merge_settings(start, settings, ExperimentConfig, ""))


def gather_training_config(settings: Mapping[str, object]) -> Settings:
    """Move all settings of the training configuration to ``training_config``.

    They may also be keywords (``lr``, ``epochs``) or fields of the training algorithm.  Raises
    ValueError if two sources contradict each other.

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
    for source, chosen_config in sources.items():
        if chosen_config is None or (source != "training_config" and chosen_config == {}):
            continue
        if not isinstance(chosen_config, Mapping):  # rejected when types are checked
            return {**gathered, "training_config": chosen_config}
        training_config = merge_explicit(training_config, chosen_config, (before, source))
        before = source
    if before:
        gathered["training_config"] = training_config
    return gathered


def _split_training(training: object) -> tuple[object, Mapping[str, object]]:
    """Split a training algorithm into its own fields and those of the training configuration."""
    if isinstance(training, str):
        training = asdict(Spec.parse(training))
    if not isinstance(training, Mapping):
        return training, {}
    fields_of_it = training.get("fields", training)
    is_own = ":" in str(training.get("name", ""))
    if not isinstance(fields_of_it, Mapping) or (is_own and "fields" not in training):
        return training, {}
    others = dict(fields_of_it)
    chosen_config = others.pop("training_config", {})
    keywords = {}
    if not is_own:  # fields of a custom class may have these names
        keywords = {name: others.pop(name) for name in KEYWORDS if name in others}
    if not isinstance(chosen_config, Mapping):
        raise ValueError(
            f"training_config of {training.get('name')} is {chosen_config!r}; write it as a "
            "separate table, next to training"
        )
    explicit = merge_explicit(
        chosen_config, expand_keywords(keywords), ("its training_config", "training")
    )
    if "fields" in training:
        return {**training, "fields": others}, explicit
    return others or None, explicit


def with_settings(
    config: ExperimentConfig, settings: Mapping[str, str]
) -> ExperimentConfig:
    """Return ``config`` with ``key=value`` settings from the command line, in order.

    Dots in a key select nested settings.

    >>> with_settings(
    ...     ExperimentConfig("a"),
    ...     {"partition.alpha": "1.0", "training_config.batch_size": "8"},
    ... ).training_config.batch_size
    8
    """
    merged = _start_settings(config, settings)
    of_training: Settings = {}
    for key, text in settings.items():
        change = gather_training_config(_read_setting(key, text))
        chosen_config = change.get("training_config")
        if isinstance(chosen_config, Mapping):
            of_training = merge_explicit(
                of_training, chosen_config, ("one setting", "another")
            )
        merged = _merge_settings(merged, change, ExperimentConfig, "")
    return _validate_settings(merged)


def check_setting(key: str, text: str) -> None:
    """Raise ValueError for a setting that is invalid in every configuration.

    Unknown settings, components and parameters, and values of a wrong type are.  Values of
    parameters are checked when the component is created.  PyTorch is not imported.

    >>> check_setting("privacy.epsilon", "x")
    Traceback (most recent call last):
        ...
    ValueError: privacy.epsilon is 'x'; it must be a number, at least 1e-06 and at most 1e+06, or none
    """
    if key not in hints_of(ExperimentConfig) and has_parameter(key):
        return
    check_nested(_read_setting(key, text))


def check_nested(settings: Mapping[str, object]) -> None:
    """Raise ValueError for nested settings that are invalid in every configuration.

    As `check_setting`, for the settings of a file.

    >>> check_nested({"partition": {"name": "dirichlet", "alpa": 1}})
    Traceback (most recent call last):
        ...
    ValueError: dirichlet has no setting 'alpa'; did you mean 'alpha'?
    """
    hints = conditions_of(ExperimentConfig)
    start: Settings = {}
    for name, hint in hints.items():
        if drop_none(hint) is Spec:
            start[name] = {"name": "", "fields": {}}
    gathered = gather_training_config(settings)
    merged = _merge_settings(start, gathered, ExperimentConfig, "")
    for name in gathered:
        value = merged[name]
        refuse_conversion(value, hints[name], name)
        if isinstance(value, Mapping) and drop_none(hints[name]) is Spec:
            component = value.get("name")
            chosen = value.get("fields")
            if isinstance(component, str) and component and isinstance(chosen, Mapping):
                check_component(name, component, chosen)


def _read_setting(key: str, text: str) -> Settings:
    """Return nested settings: ``{"training_config": {"batch_size": 8}}``."""
    top, *parts = key.split(".")
    hint: object = hints_of(ExperimentConfig).get(top)
    for part in parts:
        kind = drop_none(hint)
        hint = None
        if isinstance(kind, type) and is_dataclass(kind):
            hint = hints_of(kind).get(part)
    value = _from_text(text, hint)
    for part in reversed(parts):
        value = {part: value}
    return {top: value}


def _from_text(text: str, hint: object) -> object:
    """Parse a value from the command line; names and numbers are separated by commas."""
    if text == "none" and type(None) in get_args(hint):
        return None
    if hint in TEXTS:
        return text
    if hint not in (NAMES, NUMBERS) or text.startswith("["):
        return literal(text)
    words = [word.strip() for word in text.split(",") if word.strip()]
    if hint == NUMBERS:
        return [literal(word) for word in words]
    return words


def _start_settings(
    base: ExperimentConfig | None, settings: Mapping[str, object]
) -> Settings:
    """Return the settings of the base configuration that still apply.

    Other data invalidate its name and title, and its published results unless they are set too.
    A path of the same published images is not other data.
    Another training algorithm has other settings.
    """
    start: Settings = {}
    if base is not None:
        start = base.to_dict()
        data = settings.get("data", base.data)
        if data != base.data and name_of_data(str(data)) != base.data:
            start |= {"name": Path(str(data)).stem, "title": ""}
            if "published" not in settings:
                start["published"] = None
    if "training" in settings:
        start = _change_training(start, settings["training"])
    return start


def _change_training(start: Settings, training: object) -> Settings:
    """Replace the settings implied by the previous training algorithm with those of the new one.

    The same algorithm with other fields changes nothing.
    """
    before = start.get("training")
    if _name_of(training) == _name_of(before):
        return start
    left = dict(start)
    if before is not None:
        had = _merge_settings(start, settings_of_training(before), ExperimentConfig, "")
        usual = {field.name: field.default for field in fields(ExperimentConfig)}
        for name in settings_of_training(before):
            if start[name] == had[name]:
                left[name] = usual[name]
    implied = dict(settings_of_training(training))
    if left.get("encoder") is not None:  # explicit
        implied.pop("encoder", None)
    return _merge_settings(left, implied, ExperimentConfig, "")


def settings_of_training(training: object) -> Mapping[str, object]:
    """Return the settings that a training algorithm implies unless they are set explicitly.

    Custom classes are not imported, and unknown names are reported when the algorithm is built.

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
    """Return the name of a training algorithm in settings, or None."""
    name: object = None
    if isinstance(training, str):
        name = Spec.parse(training).name
    elif isinstance(training, Mapping):
        name = training.get("name")
    if isinstance(name, str):
        return name
    return None


def contract_of_training(name: str) -> Contract | None:
    """Return the disclosure declaration of a training algorithm.

    Returns None for unknown names and for custom classes, which are not imported.
    """
    cls = class_of_training(name)
    if cls is None:
        return None
    contract: Contract | None = getattr(cls, "contract", None)  # custom classes may lack it
    return contract


def fields_of_training(name: str) -> tuple[str, ...]:
    """Return the names of the fields of a training algorithm, () where none is known."""
    cls = class_of_training(name)
    if cls is None or not is_dataclass(cls):
        return ()
    return tuple(item.name for item in fields(cls))


def class_of_training(name: str) -> Any | None:
    """Return the class of a training algorithm, None where `contract_of_training` has none."""
    try:
        return own_class(name) or find(packages_of("training"), name, BUILT_IN)
    except ValueError:
        return None


@cache
def _adapter() -> TypeAdapter[ExperimentConfig]:
    """Return the validator, cached because its creation takes a tenth of a second."""
    from pydantic import TypeAdapter

    return TypeAdapter(ExperimentConfig)


def _validate_settings(merged: Settings) -> ExperimentConfig:
    for name in BUDGETS:
        if name in merged:
            check_budget_kind(name, merged[name])
    hints = conditions_of(ExperimentConfig)
    for name, value in merged.items():
        refuse_conversion(value, hints[name], name)
    from pydantic import ValidationError

    try:
        return _adapter().validate_python(merged)
    except ValidationError as error:
        sentence = describe_wrong_value(ExperimentConfig, error.errors())
        raise ValueError(sentence) from error


def _merge_settings(
    start: Mapping[str, object], settings: Mapping[str, object], kind: type, where: str
) -> Settings:
    """Merge ``settings`` into ``start``, checking each key against the dataclass ``kind``.

    ``where`` is the prefix of the keys in error messages, such as ``"training_config."``.
    """
    merged = dict(start)
    hints = hints_of(kind)
    known = [field.name for field in fields(kind)]
    for key, value in settings.items():
        if key not in known:
            keywords = () if where else tuple(KEYWORDS)
            hint = suggest_keyword(key, [*known, *keywords]) or LISTED
            raise ValueError(f"{where}{key} is not a setting{hint}")
        merged[key] = _merge_value(
            old=merged.get(key),
            value=value,
            kind=drop_none(hints[key]),
            where=f"{where}{key}.",
        )
    return merged


def _merge_value(*, old: object, value: object, kind: object, where: str) -> object:
    """Merge the value of one setting of type ``kind`` with its old value."""
    if kind is Spec:
        return _merge_spec(old, value)
    if isinstance(kind, type) and is_dataclass(kind) and isinstance(value, Mapping):
        if not isinstance(old, Mapping):  # not set before
            old = {}
        return _merge_settings(old, value, kind, where)
    is_number = isinstance(value, int) and not isinstance(value, bool)
    if where.endswith("training_config.stages.") and is_number:
        return [{"epochs": value}]  # training_config.stages=2: two epochs of all
    if where.endswith(".stages.") and isinstance(value, list):
        _check_stages(value, where)
    if where == "bounds." and value is True:
        return ("all-labels", "pooled")
    if where == "bounds." and value is False:
        return ()
    return value


def _check_stages(stages: list[object], where: str) -> None:
    """Raise ValueError for an unknown key in a training stage, which would be ignored otherwise."""
    known = [field.name for field in fields(TrainingStage)]
    for at, stage in enumerate(stages):
        if not isinstance(stage, Mapping):
            continue  # rejected when types are checked
        for key in stage:
            require_known(str(key), known, f"{where}{at}.{key} is not a setting")


def _merge_spec(old: object, value: object) -> object:
    """Replace a component, or the parameters of the present one."""
    if isinstance(value, str):
        return asdict(Spec.parse(value))
    if not isinstance(value, Mapping) or "fields" in value:
        return value
    if "name" in value:  # TOML: partition = {name = ..., alpha = ...}
        others = {key: item for key, item in value.items() if key != "name"}
        return {"name": value["name"], "fields": others}
    if not isinstance(old, Mapping):
        raise ValueError(f"{dict(value)} names no class; add its name")
    return {**old, "fields": {**old["fields"], **value}}
