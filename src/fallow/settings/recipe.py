"""A recipe: data, partition, model, training, query and settings of a run, frozen and checked."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, get_type_hints

from pydantic import TypeAdapter, ValidationError

from fallow.core.build import find, nearest
from fallow.core.contract import Contract
from fallow.core.names import BUILT_IN, OWN, NamePolicy
from fallow.core.own import own_class
from fallow.core.plan import Plan, Segment
from fallow.privacy import Privacy
from fallow.settings.budgets import POLICIES
from fallow.settings.resolved import resolve_settings
from fallow.settings.spec import Published, Spec, literal

TEXTS = (str, str | None)
OUTSIDE = ("name", "title", "queries", "reference", "seeds", "bounds", "published")
"""Fields that do not change what a run computes."""
LATER = ("id", "drop", "columns", "encoder", "head")
"""Fields that recipes did not always have: at their default they are no part of a digest, so that
studies of before stay the same studies."""
NAMES = tuple[str, ...]
MOST_CYCLES = 10_000  # a list of budgets has one entry for each


@dataclass(frozen=True)
class Recipe:
    """Everything that decides a run but its seed.  All fields travel into ``study.json``.

    Raises ValueError for a value that cannot be, with the name of the setting.

    >>> import fallow as fl
    >>> recipe = fl.Recipe("mine", query=fl.Spec("badge"), rounds=5)
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
    drop_rows: bool = (
        False  # rows of your own data with missing or infinite features are left out
    )
    rows: int | None = None  # a seeded subset of the training rows
    test_rows: int | None = None
    resplit: bool = False  # test rows are drawn anew for every seed, as many as before
    features: Spec | None = (
        None  # rows become what this model, with frozen weights, sees in them
    )
    # rows become what this encoder makes of them, fitted by totals over all sites
    encoder: Spec | None = None
    standardise: Literal["auto", "federated", "none"] = (
        "auto"  # auto: own tables, regression, and what an encoder makes
    )
    target_scale: Literal["labelled", "oracle", "none"] = "labelled"  # numbers to predict
    partition: Spec = Spec("exact-dirichlet", {"alpha": 0.1})
    sites: int = 10  # 0 with the natural partition: every site that the data names
    flip: int = 0  # so many sites have wrong labels, C - 1 - y; scores are over the others
    # model and training
    model: Spec = Spec("linear")
    training: Spec = Spec("fedavg")
    # exact: after the last round the head of the trained model is solved for in closed form
    head: Literal["trained", "exact"] = "trained"
    plan: Plan = Plan((Segment(2),), batch=16)
    rounds: int = 15  # rounds in a phase
    participation: float = 1.0  # share of sites in a round; all take part in the last one
    restart: Literal["fresh", "continue"] = (
        "fresh"  # the global model at the start of a cycle
    )
    # the local model that a query looks at; auto: what the strategy's paper uses
    local_source: Literal["auto", "last_round", "scratch", "finetune"] = "auto"
    local_plan: Plan = Plan(
        (Segment(50),), batch=64, stop_at=0.99
    )  # for scratch and finetune
    # labels
    query: Spec = Spec("random")
    initial: float | int = 0.10  # first labels: a fraction of all rows, or labels a site
    # who chooses them: random, typical rows of all sites, or the query (one_pass only)
    initial_by: Literal["random", "typical", "query"] = "random"
    per_cycle: float | int = 0.05
    queries_per_cycle: int = (
        1  # a cycle's budget is bought in so many parts, one after the other
    )
    cycles: int = 3  # queries after the first training phase
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
    test: Literal["common", "own"] = (
        "common"  # own: each site on test rows like its own rows
    )
    score_rounds: int = 5  # the score of a cycle is the mean over this many last rounds
    executor: str = "auto"  # of `fallow.engine.executors`, or module:Class
    channels_last: bool = False
    dtype: Literal["float32", "float64"] = "float32"
    # the study it is usually run as
    queries: tuple[str, ...] = ("random", "entropy")
    reference: str | None = None
    seeds: int = 10
    bounds: tuple[Literal["all-labels", "pooled"], ...] = (
        "all-labels",
        "pooled",
    )  # upper bounds
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
    def delta(self) -> float | None:
        """δ of the Gaussian noise on what training sends; None where there is no such noise."""
        contract = contract_of_training(self.training.name)
        if self.privacy.epsilon is None or contract is None or not contract.delta_field:
            return None
        given = self.training.fields.get(contract.delta_field)
        return None if given is None else float(given)

    def __post_init__(self) -> None:
        _positive(
            self,
            "rounds",
            "score_rounds",
            "seeds",
            "rows",
            "test_rows",
            "queries_per_cycle",
        )
        if not self.is_natural or self.sites != 0:
            _positive(self, "sites")
        if self.cycles < 0:
            raise ValueError(f"cycles is {self.cycles}; it must be 0 or more")
        if self.cycles > MOST_CYCLES:
            raise ValueError(f"cycles is {self.cycles}; it must be {MOST_CYCLES} or less")
        for name in ("initial", "per_cycle"):
            _share(name, getattr(self, name), none=name == "initial")
        spent = [
            v
            for v in (self.initial, *[self.per_cycle] * self.cycles)
            if isinstance(v, float)
        ]
        if sum(spent) > 1 + 1e-9:
            raise ValueError(
                f"initial + cycles x per_cycle is {sum(spent):.2f} of all rows, beyond the pool; "
                f"lower one of them ({self.budget_words})"
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
        self.check_flip(self.sites)
        _check_executor(self.executor)
        if self.encoder is not None and self.features is not None:
            raise ValueError(
                f"encoder is {self.encoder} and features is {self.features}; both make features of "
                "rows: leave one out"
            )
        if self.plan.start not in ("given", "scratch"):
            raise ValueError(f"plan.start is {self.plan.start!r}; use 'given' or 'scratch'")
        if self.budget not in POLICIES:
            raise ValueError(
                f"budget {self.budget!r} is unknown{nearest(self.budget, [*POLICIES])}"
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
    def budget_words(self) -> str:
        """The settings that decide how many labels are bought."""
        return f"initial={self.initial}, per_cycle={self.per_cycle}, cycles={self.cycles}"

    def check_rows(self, rows: int) -> None:
        """Raise unless ``rows`` rows are enough for the sites and for all labels to be bought."""
        if rows < self.sites:
            raise ValueError(
                f"{rows} rows cannot be shared by {self.sites} sites; use fewer sites or more rows"
            )
        shares = (self.initial, *[self.per_cycle] * self.cycles)
        asked = sum(v * self.sites if isinstance(v, int) else v * rows for v in shares)
        if asked > rows * (1 + 1e-9):
            raise ValueError(
                f"the budget asks for {asked:.0f} labels at {self.sites} sites, beyond the pool of "
                f"{rows} rows; lower one of {self.budget_words}"
            )

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def digest(self) -> str:
        """Identifies what a run of a person's own recipe computes: every setting with its value,
        without the titles and the study's extent.  Defaults are part of it, those of methods too,
        whose modules are imported: where a later version has others, it is another study.
        """
        return self.digest_under(OWN)

    def digest_under(self, policy: NamePolicy) -> str:
        """The digest of a recipe that somebody else wrote: no module is imported that ``policy``
        does not let resolve."""
        is_default = {f.name: getattr(self, f.name) == f.default for f in fields(self)}
        unused = tuple(name for name in LATER if is_default[name])
        text = json.dumps(
            resolve_settings(self, policy, (*OUTSIDE, *unused)), sort_keys=True
        )
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def named_classes(recipe: Recipe) -> dict[str, str]:
    """Every class that a recipe names, by the setting that names it."""
    found = {
        "model": recipe.model.name,
        "training": recipe.training.name,
        "query": recipe.query.name,
        "partition": recipe.partition.name,
    }
    if recipe.features is not None:
        found["features"] = recipe.features.name
    if ":" in recipe.executor:
        found["executor"] = recipe.executor
    if recipe.encoder is not None:
        found["encoder"] = recipe.encoder.name
    return found


def _check_executor(name: str) -> None:
    if name != "auto":  # the engine is loaded where it is asked for
        from fallow.engine.executors import check_executor

        check_executor(name)


def _positive(recipe: Recipe, *names: str) -> None:
    for name in names:
        value = getattr(recipe, name)
        if value is not None and value < 1:
            raise ValueError(f"{name} is {value}; it must be at least 1")


def _share(name: str, value: float | int, none: bool = False) -> None:
    kinds = "a fraction of all rows such as 0.05, or a whole number of labels per site"
    if not value > 0 and not (none and value == 0):
        least = "0 or more" if none else "above 0"
        raise ValueError(f"the budget {name} is {value}; it must be {least} ({kinds})")
    if isinstance(value, float) and value > 1:
        raise ValueError(f"the budget {name} is {value}, more than all rows; use {kinds}")


def recipe_from(settings: Mapping[str, Any], base: Recipe | None = None) -> Recipe:
    """A recipe from nested plain settings (TOML, JSON), on top of ``base``.

    Raises ValueError naming the nearest key for an unknown one, and the key of a bad value.
    """
    return _validate(_merge(_start(base, settings), settings, Recipe, ""))


def with_settings(recipe: Recipe, settings: Mapping[str, str]) -> Recipe:
    """``recipe`` with ``key=value`` settings from the command line, in their order; dots reach
    into parts.

    >>> with_settings(Recipe("a"), {"partition.alpha": "1.0", "plan.batch": "8"}).plan.batch
    8
    """
    merged, hints = _start(recipe, settings), get_type_hints(Recipe)
    for key, text in settings.items():
        value: Any = _from_text(text, hints.get(key))
        for part in reversed(key.split(".")[1:]):
            value = {part: value}
        merged = _merge(merged, {key.split(".")[0]: value}, Recipe, "")
    return _validate(merged)


def _from_text(text: str, hint: Any) -> Any:
    """A value as the command line writes it; names of columns and of queries stand between commas."""
    if hint in TEXTS:
        return text
    if hint == NAMES and not text.startswith("["):
        return [name.strip() for name in text.split(",") if name.strip()]
    return literal(text)


def _start(base: Recipe | None, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings to start from; on other data the base's name, title and numbers are wrong, and
    another training method brings settings of its own."""
    start: dict[str, Any] = {}
    if base is not None:
        start = base.to_dict()
        data = settings.get("data", base.data)
        if data != base.data:
            start |= {"name": Path(str(data)).stem, "title": "", "published": None}
    if "training" in settings:
        start = _merge(start, settings_of_training(settings["training"]), Recipe, "")
    return start


def settings_of_training(training: object) -> Mapping[str, Any]:
    """The settings that a training method brings along, as its contract says, given as it stands in
    settings: in words, or by its ``name``.  A study that gives them itself has them otherwise.

    Nothing is imported for the class of others, nor is a name complained about that is unknown:
    that is done where the method is built.

    >>> settings_of_training("closed-form:penalty=0.1")["rounds"]
    1
    """
    spec = Spec.parse(training) if isinstance(training, str) else None
    name = training.get("name") if isinstance(training, Mapping) else spec and spec.name
    if not isinstance(name, str):
        return {}
    contract = contract_of_training(name)
    return {} if contract is None else contract.settings


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
    return TypeAdapter(Recipe)


def _validate(merged: dict[str, Any]) -> Recipe:
    try:
        return _adapter().validate_python(merged)
    except ValidationError as error:
        first = error.errors()[0]
        keys = [str(part) for part in first["loc"] if str(part) not in ("int", "float")]
        said, got = str(first["msg"]).removeprefix("Value error, "), ""
        if first["type"] != "value_error":  # "..., unable to parse string as an integer"
            said, got = said.partition(", unable to")[0], f", not {first['input']!r}"
        raise ValueError(f"{'.'.join(keys)}: {said}{got}" if keys else said) from error


def _merge(
    start: Any, settings: Mapping[str, Any], kind: Any, where: str
) -> dict[str, Any]:
    """``settings`` over ``start``, checking every key against the dataclass ``kind``."""
    merged, hints = dict(start), get_type_hints(kind)
    known = [f.name for f in fields(kind)]
    for key, value in settings.items():
        if key not in known:
            raise ValueError(f"{where}{key} is not a setting{nearest(key, known)}")
        merged[key] = _merge_value(
            merged.get(key), value, _inner(hints[key]), f"{where}{key}."
        )
    return merged


def _merge_value(old: Any, value: Any, kind: Any, where: str) -> Any:
    if kind is Spec:
        return _spec(old, value)
    if is_dataclass(kind) and isinstance(value, Mapping):
        return _merge(old or {}, value, kind, where)
    if where == "plan.segments." and isinstance(
        value, int
    ):  # plan.segments=2: two epochs of all
        return [{"epochs": value}]
    if where == "bounds." and isinstance(value, bool):
        return ("all-labels", "pooled") if value else ()
    return value


def _spec(old: Any, value: Any) -> Any:
    """A class by name, or other fields for the one there is."""
    if isinstance(value, str):
        return asdict(Spec.parse(value))
    if not isinstance(value, Mapping) or "fields" in value:
        return value
    if "name" in value:  # TOML: partition = {name = ..., alpha = ...}
        return {
            "name": value["name"],
            "fields": {k: v for k, v in value.items() if k != "name"},
        }
    if old is None:
        raise ValueError(f"{dict(value)} names no class; give name beside its fields")
    return {**old, "fields": {**old["fields"], **value}}


def _inner(hint: Any) -> Any:
    """The class in ``X | None``."""
    options = [a for a in getattr(hint, "__args__", ()) if is_dataclass(a)]
    is_optional = options and not is_dataclass(hint) and type(None) in hint.__args__
    return options[0] if is_optional else hint
