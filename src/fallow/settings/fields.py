"""Settings by other names: parameters of components (``partition.alpha``), short names (``lr``)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field, with_config

from fallow.core.suggestions import nearest
from fallow.core.training_config import KEYWORDS
from fallow.core.wording import join_words
from fallow.settings.classes import PARTS, defaults_of
from fallow.settings.components import (
    REQUIRED,
    components_of,
    list_components,
    parameters_of,
)
from fallow.settings.config import ExperimentConfig
from fallow.settings.listing import (
    Setting,
    describe_value,
    find_settings,
    list_settings,
)
from fallow.settings.spec import Spec
from fallow.storage.validation import STRICT, Count

if TYPE_CHECKING:
    from fallow.core.contract import Contract


@dataclass(frozen=True)
class NamedClass:
    """Component that a setting can name."""

    name: Annotated[str, Field(description="name in settings")]
    summary: Annotated[str, Field(description="description")]
    parameters: Annotated[Mapping[str, str], Field(description="parameters with defaults")]


def describe_classes(part: str) -> list[NamedClass]:
    """Return the components that a setting can name, sorted by name.

    >>> [partition.name for partition in describe_classes("partition")][:3]
    ['class-windows', 'counts', 'dirichlet']
    """
    classes = []
    for component in components_of(part):
        defaults = {item.name: item.default for item in component.parameters}
        classes.append(NamedClass(component.name, component.summary, defaults))
    return sorted(classes, key=lambda one: one.name)


def list_parameters(defaults: Mapping[str, str]) -> list[str]:
    """Return each parameter with its default; one without a default stands alone.

    >>> list_parameters({"alpha": "0.1", "table": REQUIRED})
    ['alpha=0.1', 'table']
    """
    return [
        name if default == REQUIRED else f"{name}={default}"
        for name, default in defaults.items()
    ]


@with_config(STRICT)
@dataclass(frozen=True)
class AlgorithmRow:
    """Query strategy or training algorithm, by its disclosure declaration."""

    name: Annotated[str, Field(description="name in settings", examples=["entropy"])]
    kind: Annotated[
        str, Field(description="`strategy`, `training`, `personal`, or `code` of a paper")
    ]
    year: Annotated[int | None, Field(description="year of the paper")]
    paper: Annotated[str, Field(description="reference")]
    needs: Annotated[
        tuple[str, ...], Field(description="models whose predictions it reads")
    ]
    reveals: Annotated[
        Mapping[str, str], Field(description="disclosures, by client function")
    ]
    smallest_cohort: Annotated[Count, Field(description="minimum number of sites")]
    secure_sum: Annotated[bool, Field(description="supports secure aggregation")]
    local_dp: Annotated[bool, Field(description="supports local differential privacy")]
    missing_site: Annotated[str, Field(description="behavior if a site does not reply")]
    simulator_only: Annotated[bool, Field(description="reads hidden labels")]
    aliases: Annotated[tuple[str, ...], Field(description="other names")]
    options: Annotated[
        tuple[str, ...], Field(description="settings that only this algorithm reads")
    ]
    parameters: Annotated[Mapping[str, str], Field(description="parameters with defaults")]


KINDS = ("strategy", "training", "personal")
"""Kinds of algorithms, in the order of their list."""


def list_algorithms() -> list[AlgorithmRow]:
    """Return the query strategies and training algorithms of Fallow, by kind and class name."""
    rows = []
    for component in list_components():
        if component.algorithm is None:
            continue
        values: dict[str, Any] = {}
        for name, value in component.algorithm.items():
            values[name] = tuple(value) if isinstance(value, list) else value
        row = AlgorithmRow(
            name=component.name,
            aliases=component.aliases,
            parameters={item.name: item.default for item in component.parameters},
            **values,
        )
        rows.append(row)
    return sorted(rows, key=lambda row: KINDS.index(row.kind))


def describe_algorithm(name: str, kind: str, cls: type[Any]) -> AlgorithmRow:
    """Describe an algorithm by its disclosure declaration."""
    contract: Contract = cls.contract
    defaults = defaults_of(cls)
    return AlgorithmRow(
        name=name,
        kind=kind,
        year=contract.year or None,
        paper=contract.paper,
        needs=tuple(contract.needs),
        reveals=dict(contract.disclosures),
        smallest_cohort=contract.cohort,
        secure_sum=contract.secure_sum,
        local_dp=contract.local_dp,
        missing_site=contract.missing,
        simulator_only=contract.simulator_only,
        aliases=contract.aliases,
        options=contract.options,
        parameters={name: describe_default(value) for name, value in defaults.items()},
    )


def describe_default(value: object) -> str:
    """Return the default of a parameter as ``name:parameter=value`` takes it.

    >>> describe_default(True), describe_default(None), describe_default(...)
    ('true', 'null', 'required')
    """
    if value is ...:
        return REQUIRED
    if value is None:  # "none" is a word there: ``ahfal:balance=none``
        return "null"
    return describe_value(value)


def class_fields() -> list[Setting]:
    """Return all parameters of all components."""
    settings = []
    for part in PARTS:
        if part == "features":  # same classes as model
            continue
        for component in components_of(part):
            for item in component.parameters:
                setting = Setting(
                    name=f"{part}.{item.name}",
                    type=item.type,
                    default=item.default,
                    meaning=item.meaning,
                    source=component.name,
                )
                settings.append(setting)
    return settings


def find_all(name: str) -> list[Setting]:
    """Return the settings and the component parameters with a name, or settings with that meaning.

    Raises ValueError, with the closest name, if there are none.

    >>> [setting.last_part for setting in find_all("batch size")]
    ['batch_size', 'batch_size']
    """
    all_fields = class_fields()
    of_classes = [
        all_field
        for all_field in all_fields
        if name in (all_field.name, all_field.last_part)
    ]
    named = find_settings(name) + of_classes
    if named:
        return named
    settings = list(list_settings())
    words = re.compile(rf"\b{re.escape(name.replace('_', ' '))}\b", re.IGNORECASE)
    with_meaning = [one for one in settings if words.search(one.meaning)]
    if with_meaning:
        return with_meaning
    known = {one.name for one in settings}
    known |= {one.last_part for one in settings + all_fields}
    hint = nearest(name, sorted(known), "'fallow settings' lists them")
    raise ValueError(f"{name} is not a setting{hint}")


SECOND = "local_training_config."
"""The training configuration of a query's local model. Short names refer to
`training_config`, so its settings have none.
"""


def expand(config: ExperimentConfig, settings: Mapping[str, str]) -> dict[str, str]:
    """Replace short names of settings by full names, in the same order.

    Parameters of a component that ``settings`` name are recognized too.  Raises ValueError if a short
    name is ambiguous.

    >>> expand(ExperimentConfig("a"), {"lr": "0.1", "alpha": "1.0"})
    {'training_config.optimizer.lr': '0.1', 'partition.alpha': '1.0'}
    """
    named = {}
    for part in PARTS:
        spec: Spec | None = getattr(config, part)
        if spec is not None:
            named[part] = spec.name
    full: dict[str, str] = {}
    for key, text in settings.items():
        if key in PARTS:
            named[key] = text.partition(":")[0]
        name = full_name(key, named)
        if full.get(name, text) != text:
            raise ValueError(f"{name} is {full[name]} and {text}, as {key}; give it once")
        full[name] = text
    return full


def full_name(key: str, named: Mapping[str, str]) -> str:
    """Return the full name of a setting, or the name itself if it is unknown.

    ``named`` maps each setting to the class it names.  Raises ValueError if the name is ambiguous.
    """
    settings = [setting.name for setting in list_settings()]
    tops = {name.partition(".")[0] for name in settings}
    if key.partition(".")[0] in tops | {"name"}:
        return key
    meant = []
    if key in KEYWORDS:
        meant.append(".".join(("training_config", *KEYWORDS[key])))
    for name in settings:
        is_second = name.startswith(SECOND) or name in meant
        if name.endswith(f".{key}") and not is_second:
            meant.append(name)
    for part, cls in named.items():
        if key in parameters_of(part, cls):
            meant.append(f"{part}.{key}")
    if len(meant) > 1:
        raise ValueError(f"{key} may be {join_words(meant, last='or')}; write one of them")
    if meant:
        return meant[0]
    return key
