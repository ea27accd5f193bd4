"""A recipe: data, partition, model, training, query and settings of a run, frozen and checked."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, is_dataclass, replace
from typing import Any, Literal, get_type_hints

from pydantic import TypeAdapter, ValidationError

from fallow.core.build import nearest
from fallow.core.plan import Plan, Segment
from fallow.lab.budgets import POLICIES


@dataclass(frozen=True)
class Spec:
    """A class of the library (or ``module:Class``) by name, with the fields that differ.

    >>> Spec.parse("ahfal:tau=15:toggle=never")
    Spec(name='ahfal', fields={'tau': 15, 'toggle': 'never'})
    """

    name: str
    fields: Mapping[str, Any] = field(default_factory=dict)

    @staticmethod
    def parse(text: str) -> Spec:
        """``name``, ``name:field=value:...`` or ``module:Class:field=value``."""
        head, *rest = text.strip().split(":")
        if rest and "=" not in rest[0]:
            head, rest = f"{head}:{rest[0]}", rest[1:]
        if bad := [part for part in rest if "=" not in part]:
            raise ValueError(f"{bad[0]!r} in {text!r} is not of the form field=value")
        return Spec(head, {k: literal(v) for k, v in (part.split("=", 1) for part in rest)})

    def __str__(self) -> str:
        return ":".join([self.name, *(f"{k}={v}" for k, v in self.fields.items())])


def literal(text: str) -> Any:
    """A value from the command line: JSON where it is JSON, else the text itself.

    >>> literal("0.1"), literal("true"), literal("stacked")
    (0.1, True, 'stacked')
    """
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


@dataclass(frozen=True)
class Published:
    """Which published numbers stand beside the measured ones: names maps queries to rows."""

    table: str
    setting: str
    names: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Recipe:
    """Everything that decides a run but its seed.  All fields travel into ``study.json``."""

    name: str
    title: str = ""
    # data
    data: str = "digits"  # a named set, or a path to a table, an .npz file or a folder
    label: str | None = None  # label column of a table
    site: str | None = None  # site column of a table
    rows: int | None = None  # a seeded subset of the training rows
    test_rows: int | None = None
    partition: Spec = Spec("exact-dirichlet", {"alpha": 0.1})
    sites: int = 10
    # model and training
    model: Spec = Spec("linear")
    training: Spec = Spec("fedavg")
    plan: Plan = Plan((Segment(2),), batch=16)
    rounds: int = 15  # rounds in a phase
    participation: float = 1.0  # share of sites in a round; all take part in the last one
    restart: Literal["fresh", "continue"] = "fresh"  # the global model at the start of a cycle
    local_source: Literal["last_round", "scratch", "finetune"] = "last_round"
    local_plan: Plan = Plan((Segment(50),), batch=64, stop_at=0.99)  # for scratch and finetune
    # labels
    query: Spec = Spec("random")
    initial: float | int = 0.10  # first, random labels: a fraction of all rows, or labels a site
    per_cycle: float | int = 0.05
    cycles: int = 3  # queries after the first training phase
    budget: Literal["equal", "equal_rounded", "proportional"] = "equal"
    # evaluation and machinery
    score_rounds: int = 5  # the score of a cycle is the mean over this many last rounds
    executor: Literal["auto", "loop", "stacked"] = "auto"
    channels_last: bool = False
    dtype: Literal["float32", "float64"] = "float32"
    # the study it is usually run as
    queries: tuple[str, ...] = ("random", "entropy", "ahfal")
    reference: str | None = None
    seeds: int = 10
    bounds: bool = True  # also run the upper bounds: all labels, and pooled active learning
    published: Published | None = None

    def __post_init__(self) -> None:
        _positive(self, "sites", "rounds", "score_rounds", "seeds", "rows", "test_rows")
        if self.cycles < 0:
            raise ValueError(f"cycles is {self.cycles}; it must be 0 or more")
        for name in ("initial", "per_cycle"):
            _share(name, getattr(self, name))
        spent = [v for v in (self.initial, *[self.per_cycle] * self.cycles) if isinstance(v, float)]
        if sum(spent) > 1 + 1e-9:
            raise ValueError(
                f"initial + cycles x per_cycle is {sum(spent):.2f} of all rows, beyond the pool; "
                f"lower one of them (initial={self.initial}, per_cycle={self.per_cycle}, "
                f"cycles={self.cycles})"
            )
        if not 0 < self.participation <= 1:
            raise ValueError(f"participation is {self.participation}; it must lie in (0, 1]")
        if self.budget not in POLICIES:
            raise ValueError(
                f"budget {self.budget!r} is unknown{nearest(self.budget, [*POLICIES])}"
            )

    @property
    def source_plan(self) -> Plan:
        """How the local model of a query is made when it is not the last round's."""
        return replace(
            self.local_plan, start="scratch" if self.local_source == "scratch" else "given"
        )

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def digest(self) -> str:
        """Identifies what a run computes: all fields but the titles and the study's extent."""
        about = ("name", "title", "queries", "reference", "seeds", "bounds", "published")
        kept = {k: v for k, v in self.to_dict().items() if k not in about}
        text = json.dumps(kept, sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def _positive(recipe: Recipe, *names: str) -> None:
    for name in names:
        value = getattr(recipe, name)
        if value is not None and value < 1:
            raise ValueError(f"{name} is {value}; it must be at least 1")


def _share(name: str, value: float | int) -> None:
    if not value > 0:
        raise ValueError(f"the budget {name} is {value}; it must be above 0 (a fraction of all rows "
                         "such as 0.05, or a whole number of labels per site)")  # fmt: skip
    if isinstance(value, float) and value > 1:
        raise ValueError(f"the budget {name} is {value}, more than all rows; use a fraction up to "
                         "1.0, or a whole number of labels per site")  # fmt: skip


def recipe_from(settings: Mapping[str, Any], base: Recipe | None = None) -> Recipe:
    """A recipe from nested plain settings (TOML, JSON), on top of ``base``.

    Raises ValueError naming the nearest key for an unknown one, and the key of a bad value.
    """
    start = base.to_dict() if base else {}
    merged = _merge(start, settings, Recipe, "")
    try:
        return TypeAdapter(Recipe).validate_python(merged)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"] if str(part) not in ("int", "float"))
        said = str(first["msg"]).removeprefix("Value error, ")
        got = "" if first["type"] == "value_error" else f", not {first['input']!r}"
        raise ValueError(f"{where}: {said}{got}" if where else said) from error


def with_settings(recipe: Recipe, settings: Mapping[str, str]) -> Recipe:
    """``recipe`` with ``key=value`` settings from the command line; dots reach into parts.

    >>> with_settings(Recipe("a"), {"partition.alpha": "1.0", "plan.batch": "8"}).plan.batch
    8
    """
    nested: dict[str, Any] = {}
    for key, value in settings.items():
        *path, last = key.split(".")
        here = nested
        for part in path:
            here = here.setdefault(part, {})
        here[last] = literal(value)
    return recipe_from(nested, recipe)


def _merge(start: Any, settings: Mapping[str, Any], kind: Any, where: str) -> dict[str, Any]:
    """``settings`` over ``start``, checking every key against the dataclass ``kind``."""
    merged, hints = dict(start), get_type_hints(kind)
    known = [f.name for f in fields(kind)]
    for key, value in settings.items():
        if key not in known:
            raise ValueError(f"{where}{key} is not a setting{nearest(key, known)}")
        merged[key] = _merged(merged.get(key), value, _inner(hints[key]), f"{where}{key}.")
    return merged


def _merged(old: Any, value: Any, kind: Any, where: str) -> Any:
    if kind is Spec:
        if isinstance(value, str):
            return asdict(Spec.parse(value))
        if "name" in value and "fields" not in value:  # TOML: partition = {name=..., alpha=...}
            return {
                "name": value["name"],
                "fields": {k: v for k, v in value.items() if k != "name"},
            }
        if "fields" in value:
            return dict(value)
        return {**old, "fields": {**old["fields"], **value}}
    if is_dataclass(kind) and isinstance(value, Mapping):
        return _merge(old or {}, value, kind, where)
    if where == "plan.segments." and isinstance(value, int):  # plan.segments=2: two epochs of all
        return [{"epochs": value}]
    return value


def _inner(hint: Any) -> Any:
    """The class in ``X | None``."""
    options = [a for a in getattr(hint, "__args__", ()) if is_dataclass(a)]
    return (
        options[0] if options and not is_dataclass(hint) and type(None) in hint.__args__ else hint
    )


def variant(recipe: Recipe, query: str) -> Recipe:
    """The recipe with another query, or turned into one of the upper bounds.

    ``bound:all-labels`` trains once on every label; ``bound:pooled`` is entropy sampling on all
    rows in one place, with the same budget.
    """
    if query == "bound:all-labels":
        return replace(recipe, query=Spec("random"), initial=1.0, cycles=0)
    if query == "bound:pooled":
        total = {k: v * recipe.sites if isinstance(v, int) else v
                 for k, v in (("initial", recipe.initial), ("per_cycle", recipe.per_cycle))}  # fmt: skip
        return replace(recipe, query=Spec("entropy"), sites=1, partition=Spec("iid"),
                       participation=1.0, **total)  # fmt: skip
    return replace(recipe, query=Spec.parse(query))
