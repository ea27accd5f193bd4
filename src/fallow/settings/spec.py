"""Components by name, and references to published results."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from functools import partial
from typing import Annotated, Any, get_type_hints

from fallow.core.extensions import find_first_setting, find_short_name
from fallow.core.kinds import literal
from fallow.core.names import spell_class
from fallow.core.suggestions import explain_constructor
from fallow.core.training_config import Described, TrainingConfig


@explain_constructor
@dataclass(frozen=True)
class Spec:
    """Component by name (or ``module:Class``), with the parameters that differ from the default.

    Parameters
    ----------
    name : str
        Name of the component, or ``module:Class``.
    fields : mapping
        Parameters that differ from the default.

    >>> Spec.parse("ahfal:tau=15:balance=none")
    Spec(name='ahfal', fields={'tau': 15, 'balance': 'none'})
    """

    name: str
    fields: Mapping[str, Any] = field(default_factory=dict)

    @staticmethod
    def parse(text: str) -> Spec:
        """Parse ``name``, ``name:parameter=value:...`` or ``module:Class:parameter=value``.

        The name of an extension may be followed by a value without a field, such as the name of a
        pretrained network (`find_first_setting`).

        Parameters
        ----------
        text : str
            Specification.
        """
        head, *rest = text.strip().split(":")
        if rest and "=" not in rest[0]:
            first = find_first_setting(head)
            if first is None:  # module:Class
                head = f"{head}:{rest.pop(0)}"
            else:
                rest[0] = f"{first}={rest[0]}"
        values = {}
        for part in rest:
            name, equals, value = part.partition("=")
            if not equals:
                raise ValueError(f"{part!r} in {text!r} is not of the form parameter=value")
            values[name] = literal(value)
        return Spec(head, values)

    @staticmethod
    def of(value: object) -> Spec:
        """Return the specification of an object.  Building it yields an equal object.

        Parameters
        ----------
        value : object
            Instance of a frozen dataclass, a class, a ``functools.partial`` of a class, a string as in
            `parse`, or a `Spec`.  The ``training_config`` of a training algorithm is omitted,
            because it is a separate setting.

        Raises
        ------
        ValueError
            If the object is none of these.

        >>> from fallow.data.partition.partitions import ExactDirichlet, Patho
        >>> str(Spec.of(ExactDirichlet(alpha=1))), str(Spec.of(Patho()))
        ('exact-dirichlet:alpha=1.0', 'patho')
        """
        if isinstance(value, Spec):
            return value
        if isinstance(value, str):
            return Spec.parse(value)
        if isinstance(value, type):
            if is_dataclass(value):
                return Spec.of(value())
            return Spec(name_of(value))
        if isinstance(value, partial) and isinstance(value.func, type):
            if value.args:
                raise ValueError(f"{value!r} has settings without a name; give name=value")
            return Spec(name_of(value.func), dict(value.keywords))
        if is_dataclass(value) and not isinstance(value, type):
            return Spec(name_of(type(value)), _list_chosen(value))
        raise ValueError(
            f"{value!r} is not a strategy, training algorithm, partition or model; give "
            "an object such as fl.Entropy(), its class, or a string such as "
            "'entropy:model=global'"
        )

    def __str__(self) -> str:
        text = self.name
        for name, value in self.fields.items():
            shown = value
            if not isinstance(value, str):
                shown = json.dumps(value)
            text += f":{name}={shown}"
        return text


def name_of(cls: type) -> str:
    """Return the name of a class in settings: a short name if it has one, else ``module:Class``."""
    home = cls.__module__
    contract = getattr(cls, "contract", None)
    for alias in getattr(contract, "aliases", ()):
        if ":" in alias:  # a class that is always qualified with its module
            return str(alias)
    if home.startswith("fallow."):
        return spell_class(cls)
    return find_short_name(cls) or f"{home}:{cls.__name__}"


WRITTEN = "alpha"
"""First fields that are always written, also with their default. The text of a partition
names the random stream that draws it, so it must not depend on how the configuration was
created.
"""


def _list_chosen(component: object) -> dict[str, object]:
    """Return the non-default fields of a dataclass instance as plain values."""
    assert is_dataclass(component)  # noqa: S101 - checked in `Spec.of`
    hints = get_type_hints(type(component))
    settable = [item for item in fields(component) if item.init]
    chosen = {}
    for at, item in enumerate(settable):
        value = getattr(component, item.name)
        default = item.default
        if item.default_factory is not MISSING:
            default = item.default_factory()
        if hints[item.name] is TrainingConfig:
            continue
        is_written = at == 0 and item.name == WRITTEN
        if is_written or default is MISSING or value != default:
            chosen[item.name] = _plain(value, hints[item.name])
    return chosen


def _plain(value: object, hint: object) -> object:
    """Convert a value to plain Python types; an int in a field of fractions becomes a float."""
    if hasattr(value, "item") and getattr(value, "ndim", None) == 0:
        value = value.item()
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    return value


@dataclass(frozen=True)
class Published:
    """Published results to show next to the measured ones."""

    table: Annotated[str, Described("Name of the published table.")]
    setting: Annotated[str, Described("Setting of the published experiment.")]
    protocol: Annotated[
        str, Described("Experiment configuration with the settings of the paper.")
    ]
    names: Annotated[
        Mapping[str, str], Described("Row of the published table for each strategy.")
    ] = field(default_factory=dict)


def split_strategies(text: str) -> list[str]:
    """Split at commas that are not inside brackets, where they separate values of a setting.

    >>> split_strategies("ahfal@budget=[2,4], margin,")
    ['ahfal@budget=[2,4]', 'margin']
    """
    parts = [""]
    depth = 0
    for character in text:
        depth += (character in "[{") - (character in "]}")
        if character == "," and depth <= 0:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts if part.strip()]
