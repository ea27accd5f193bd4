"""Settings of TOML files, each declared once as a field of a frozen dataclass.

The annotation of a field has its type, range and example, and its name in the file if it differs::

    limit: Annotated[int | None, Key("labels.limit"), Field(ge=0, examples=[100])] = None

The class has the description of each field in ``DESCRIPTIONS``, and in ``SECTION`` the section of
fields without a `Key`.
The checks of a file and of command-line options, the comments in a written file, the tables of the
documentation and the JSON schema derive from it.
"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields, replace
from functools import cache, cached_property, reduce
from operator import or_
from types import NoneType
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import tomlkit
from pydantic import Field, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo
from tomlkit import TOMLDocument
from tomlkit.items import Table

from fallow.core.kinds import UNIONS
from fallow.core.suggestions import nearest, require_known
from fallow.core.wording import join_words
from fallow.core.wrong_values import describe_wrong_value
from fallow.deployment.toml import toml_item
from fallow.storage.validation import JsonSchema, build_schema

WIDTH = 90  # columns of a comment


@dataclass(frozen=True)
class Key:
    """Name of a setting in its file, if it differs from that of the field: ``section.name``."""

    name: str


@dataclass(frozen=True)
class Words:
    """Description of a type with its article, in place of that of the plain type."""

    words: str


Text = Annotated[str, Words("a text in quotes")]


@dataclass(frozen=True)
class Inline:
    """Mark of a field that is a dataclass: its settings stand among those of the file's dataclass."""


@dataclass(frozen=True)
class Declared:
    """Setting of a file.

    Attributes
    ----------
    field, key
        Names in the dataclass and in the file.
    hint
        Type with its conditions, without None: TOML has no None.
    default
        Default value, or MISSING for a required setting.
    owner
        Field of the file's dataclass whose dataclass has the setting (`Inline`), or "".
    """

    field: str
    key: str
    hint: Any
    description: str
    example: object
    default: object
    owner: str = ""

    @property
    def name(self) -> str:
        """Return the name without its section."""
        return self.key.rpartition(".")[2]

    @property
    def section(self) -> str:
        """Return the name of the section, or ""."""
        return self.key.rpartition(".")[0]

    @cached_property
    def adapter(self) -> TypeAdapter[Any]:
        """Return the validator."""
        return TypeAdapter(self.hint)

    def value_of(self, settings: Any) -> Any:  # an instance of the file's dataclass
        """Return the value of the setting."""
        if self.owner:
            settings = getattr(settings, self.owner)
        return getattr(settings, self.field)

    def check(self, value: object) -> object:
        """Return a valid value in its declared type; ValueError, naming the setting, otherwise."""
        try:
            return self.adapter.validate_python(value, strict=True)
        except ValidationError as error:
            raise ValueError(self._describe(error)) from error

    def _describe(self, error: ValidationError) -> str:
        """Describe the first wrong value; lists of a file are not converted to tuples yet."""
        first = dict(error.errors(include_url=False)[0])
        if isinstance(first["input"], tuple):
            first["input"] = list(first["input"])
        sentence = describe_wrong_value(self.hint, [first], whole=self.key)
        if self.default is None and "; it must be " in sentence:
            return f"{sentence}, or left out"
        return sentence


@cache
def list_declared(kind: Any) -> tuple[Declared, ...]:
    """Return the settings of a dataclass, in order.  kind: the class."""
    hints = get_type_hints(kind, include_extras=True)
    section = getattr(kind, "SECTION", "")
    prefix = section and f"{section}."
    settings: list[Declared] = []
    for field in fields(kind):
        base, *conditions = _split(hints[field.name])
        if Inline() in conditions:
            for inner in list_declared(base):
                key = f"{prefix}{inner.key}"
                settings.append(replace(inner, key=key, owner=field.name))
            continue
        key = f"{prefix}{field.name}"
        example: object = None
        for condition in conditions:
            if isinstance(condition, Key):
                key = condition.name
            if isinstance(condition, FieldInfo) and condition.examples:
                example = condition.examples[0]
        description = kind.DESCRIPTIONS[field.name]
        described = Field(description=description)
        default = field.default
        if field.default_factory is not MISSING:
            default = field.default_factory()
        settings.append(
            Declared(
                field=field.name,
                key=key,
                hint=Annotated[(_without_none(base), *conditions, described)],
                description=description,
                example=example,
                default=default,
            )
        )
    return tuple(settings)


def _split(hint: Any) -> tuple[Any, ...]:
    """Return a type, followed by its conditions."""
    if get_origin(hint) is Annotated:
        return get_args(hint)
    return (hint,)


def _without_none(hint: Any) -> Any:
    """Return X for ``X | None``."""
    if get_origin(hint) not in UNIONS:
        return hint
    return reduce(or_, (part for part in get_args(hint) if part is not NoneType))


def check_settings(settings: Any) -> None:  # an instance of such a dataclass
    """Raise ValueError, naming the setting, for an invalid value."""
    kind: Any = type(settings)  # mypy takes type[Any] for unhashable
    for setting in list_declared(kind):
        value = setting.value_of(settings)
        if value is not None:
            setting.check(value)


def read_settings(
    kind: type, tree: Mapping[str, object], otherwise: str = ""
) -> dict[str, Any]:
    """Return the values in a file by the names of the fields of ``kind``.

    Lists become tuples. ``otherwise`` describes how to fix a missing setting. Raises ValueError for
    an unknown or missing setting and for a section that is not a table.
    """
    known = {setting.key: setting for setting in list_declared(kind)}
    values: dict[str, Any] = {}
    inside: dict[str, dict[str, Any]] = {}
    for key, value in _flatten(known, tree).items():
        setting = known[key]
        if isinstance(value, list) and get_origin(_split(setting.hint)[0]) is tuple:
            value = tuple(value)
        if setting.owner:
            inner = inside.setdefault(setting.owner, {})
            inner[setting.field] = setting.check(value)
        else:
            values[setting.field] = value
    for owner, inner in inside.items():
        values[owner] = get_type_hints(kind)[owner](**inner)
    for key, setting in known.items():
        if setting.default is MISSING and setting.field not in values:
            fix = otherwise or f"write a line {setting.name} = ..."
            if setting.section and not otherwise:
                fix += f" below [{setting.section}]"
            raise ValueError(f"{key} is missing; {fix}")
    return values


def _flatten(
    known: Mapping[str, Declared], tree: Mapping[str, object]
) -> dict[str, object]:
    """Return the values of a file by their full names."""
    sections: dict[str, list[str]] = {}
    for setting in known.values():
        if setting.section:
            sections.setdefault(setting.section, []).append(setting.name)
    outside = [key for key, setting in known.items() if not setting.section]
    values: dict[str, object] = {}
    for name, value in tree.items():
        if name in sections:
            check_section(name, value, sections[name])
            for key, inner in dict(value).items():  # type: ignore[call-overload]
                require_known(key, sections[name], f"{name}.{key} is not a setting")
                values[f"{name}.{key}"] = inner
        elif name in known:
            values[name] = value
        else:
            hint = nearest(name, [*outside, *sections])
            raise ValueError(f"{name} is not a setting{hint}")
    return values


def check_section(name: str, value: object, keys: list[str]) -> None:
    """Raise ValueError for a section that is not a table."""
    if not isinstance(value, Mapping):
        raise ValueError(
            f"{name} is {value!r}; write [{name}] on a line of its own and {join_words(keys)} "
            "below it"
        )


def describe_file(kind: type) -> JsonSchema:
    """Return the JSON schema of a file with the settings of ``kind``, by their names there."""
    schema: JsonSchema = {
        "description": inspect.cleandoc(kind.__doc__ or ""),
        "properties": {},
        "type": "object",
        "additionalProperties": False,
    }
    for setting in list_declared(kind):
        part = schema
        if setting.section:
            empty = {"properties": {}, "type": "object", "additionalProperties": False}
            part = schema["properties"].setdefault(setting.section, empty)
        value = build_schema(setting.hint)
        if setting.default is MISSING:
            part.setdefault("required", []).append(setting.name)
        elif setting.default is not None:
            value["default"] = setting.default
        part["properties"][setting.name] = value
    return schema


def add_declared(to: TOMLDocument | Table, settings: Any, *names: str) -> None:
    """Add settings by their fields, each below its description.

    A setting that is None becomes a comment with its example.
    """
    for name in names:
        setting = _find(settings, name)
        add_comment(to, setting.description)
        value = setting.value_of(settings)
        if value is not None:
            to.add(setting.name, toml_item(value))
        else:
            example = toml_item(setting.example).as_string()
            to.add(tomlkit.comment(f"{setting.name} = {example}"))


def add_table(to: Table, settings: Any, name: str) -> None:
    """Add a setting that is a section of its own."""
    add_comment(to, _find(settings, name).description)
    for key, value in getattr(settings, name).items():
        to.add(key, toml_item(value))


def add_comment(to: TOMLDocument | Table, text: str) -> None:
    """Add a comment, wrapped to several lines."""
    for line in textwrap.wrap(text, WIDTH):
        to.add(tomlkit.comment(line))


def _find(settings: Any, name: str) -> Declared:
    """Return the declaration of a field."""
    kind: Any = type(settings)
    known = {setting.field: setting for setting in list_declared(kind)}
    return known[name]
