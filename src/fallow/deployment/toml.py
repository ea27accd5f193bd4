"""Settings and durations in TOML."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import cast

import tomlkit
from tomlkit import TOMLDocument
from tomlkit.items import Array, Item, Table

from fallow.core.kinds import hints_of
from fallow.core.load_options import LoadOptions
from fallow.deployment.schema import Schema
from fallow.settings.config import ExperimentConfig, settings_of_training
from fallow.settings.descriptions import meaning_of
from fallow.storage.validation import adapter_of

UNITS = {"w": 604800, "d": 86400, "h": 3600, "m": 60, "s": 1}
OF_FILES = tuple(
    option.name for option in fields(LoadOptions) if option.name != "drop_rows"
)
"""Settings for reading data files. Remote sites read theirs by the schema and ``site.toml``."""
PLACED = (
    *OF_FILES,
    "name",
    "data",
    "rows",
    "test_rows",
    "resplit",
    "partition",
    "sites",
    "test",
    "device",
    "precision",
    "strategies",
    "reference",
    "seeds",
    "bounds",
    "published",
)
"""Settings without effect at remote sites: each has a single value there."""
ALWAYS = (
    "model",
    "training",
    "strategy",
    "training_config",
    "rounds",
    "cycles",
    "initial",
    "budget",
    "validation",
    "privacy",
)
"""Settings that are written even with their default."""


def toml_item(value: object) -> Item:
    """Return a plain value as a TOML item on one line. None is left out of tables.

    >>> toml_item(
    ...     {"name": "mlp", "hidden": (32, 16), "seed": None, "bias": True}
    ... ).as_string()
    '{name = "mlp", hidden = [32, 16], bias = true}'
    """
    if isinstance(value, Mapping):
        inline = tomlkit.inline_table()
        for key, part in value.items():
            if part is not None:
                inline.append(key, toml_item(part))
        return inline
    if isinstance(value, list | tuple):
        array = tomlkit.array()
        for part in value:
            array.append(toml_item(part))
        return array
    return tomlkit.item(value)


def add_setting(
    to: TOMLDocument | Table, key: str, value: object, comment: str = ""
) -> None:
    """Add ``key = value`` to a document or section, below a comment."""
    if comment:
        to.add(tomlkit.comment(comment))
    to.add(key, toml_item(value))


def parse_duration(text: object, what: str) -> float:
    """Return a duration in seconds: a number, optionally followed by s, m, h, d or w.

    >>> parse_duration("1.5h", "timeout"), parse_duration(90, "timeout")
    (5400.0, 90.0)
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([smhdw])?\s*", str(text))
    if match is None or isinstance(text, bool):
        raise ValueError(
            f"{what} is {str(text)!r}; give a length of time such as '10m', '36h' or '7d'"
        )
    return float(match[1]) * UNITS[match[2] or "s"]


def format_duration(seconds: float) -> str:
    """Return a duration in the largest unit that gives an integer.

    >>> format_duration(604800), format_duration(5400), format_duration(0.5)
    ('1w', '90m', '0.5s')
    """
    if seconds > 0:
        for unit, size in UNITS.items():
            if seconds % size == 0:
                return f"{seconds / size:.0f}{unit}"
    return f"{seconds!r}s"


def add_config(document: TOMLDocument, config: ExperimentConfig) -> None:
    """Add the settings of an experiment configuration to a document.

    Common settings are always written, with a comment. Others are written if they differ from their
    default, except those that remote sites do not use. Raises ValueError for a setting that is None
    although the training algorithm has a default, because TOML cannot express None.
    """
    hints = hints_of(ExperimentConfig)
    brought = settings_of_training(str(config.training))
    for field in fields(config):
        value = getattr(config, field.name)
        is_usual = field.name in ALWAYS
        is_changed = value != field.default or field.name in brought
        if not (is_usual or (is_changed and field.name not in PLACED)):
            continue
        if value is None:
            usual = brought.get(field.name, field.default)
            raise ValueError(
                f"{field.name} is None, which TOML cannot represent, and with "
                f"training={config.training.name} the default would be {usual!r}; "
                "set a value"
            )
        briefly = field.name != "privacy"  # show disabled privacy settings as well
        shown = adapter_of(hints[field.name]).dump_python(
            value, mode="json", exclude_defaults=briefly
        )
        add_setting(document, field.name, shown, comment=meaning_of(field.name))


EMPTY_CELLS = (
    "the sites impute empty cells by the mean of a number or the most frequent "
    "text, computed over all sites"
)


def schema_section(schema: Schema) -> Table:
    """Return the section ``[schema]``, with one line for each column."""
    section = tomlkit.table()
    section.comment("common properties of the examples of all sites")
    for key, value in asdict(schema).items():
        is_listed_below = key in ("columns", "classes")
        is_of_arrays = key == "shape" and schema.kind == "table"
        is_unset = value in ("", ())
        if not is_listed_below and not is_of_arrays and not is_unset:
            add_setting(section, key, value)
    if schema.classes:
        add_setting(section, "classes", schema.classes)
    if schema.columns:
        details = (
            "features; a column with values has these texts, one with text has free "
            "text, others have numbers in the unit"
        )
        section.add(tomlkit.comment(details))
        if schema.missing is not None:
            section.add(tomlkit.comment(EMPTY_CELLS))
        section.add("columns", _columns_array(schema))
    return section


def _columns_array(schema: Schema) -> Array:
    """Return the columns with one line for each.

    The text is parsed as a whole, because an array takes time quadratic in the lines added to it,
    and tables of genes have 20,000 columns.
    """
    lines: list[str] = []
    for column in schema.columns:
        item = toml_item(_leave_out_unset(asdict(column)))
        lines.append(f"  {item.as_string()},\n")
    document = tomlkit.parse(f"columns = [\n{''.join(lines)}]\n")
    return cast(Array, document["columns"])


def _leave_out_unset(column: Mapping[str, object]) -> dict[str, object]:
    """Return a column without unset entries. The empty unit of a number is kept to be filled in."""
    result: dict[str, object] = {}
    for name, value in column.items():
        is_unset = value == () or value is False  # a limit of 0 is a value
        is_of_texts = name == "unit" and (column["values"] or column["text"])
        if not is_unset and not is_of_texts:
            result[name] = value
    return result
