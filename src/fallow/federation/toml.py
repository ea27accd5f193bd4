"""Settings as TOML, and lengths of time as people write them."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, fields
from typing import Any, get_type_hints

from pydantic import TypeAdapter

from fallow.federation.schema import Schema
from fallow.settings.recipe import Recipe

UNITS = {"w": 604800, "d": 86400, "h": 3600, "m": 60, "s": 1}
BARE = re.compile(r"[A-Za-z0-9_-]+")
PLACED = (
    "name",
    "data",
    "task",
    "partition",
    "sites",
    "test",
    "queries",
    "seeds",
    "bounds",
)
"""Settings that say nothing at real sites: each has one value there."""
WHERE_USED = {"encoder": "what makes features of rows, the same at every site"}
"""A word on settings that most studies do without."""
SAID = {
    "model": "the model that is trained",
    "training": "how the models of all sites become one (or one for each site)",
    "query": "who chooses the rows that people label",
    "plan": "training at a site in one round",
    "rounds": "exchanges of models in one cycle",
    "cycles": "times that sites choose rows to be labelled",
    "initial": "first labels: a share of all rows, or labels a site",
    "per_cycle": "labels of a cycle, in the same way",
    "validation": "share of the labels that is held back to choose the best model",
    "privacy": "noise on counts (epsilon), and sums that hide what each site adds (secure_sum)",
}


def toml_of(value: Any) -> str:
    """A value on one line; what is None is left out of tables.

    >>> toml_of({"name": "mlp", "hidden": (32, 16), "seed": None, "bias": True})
    '{ name = "mlp", hidden = [32, 16], bias = true }'
    """
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, dict):
        inner = ", ".join(
            f"{_key(k)} = {toml_of(v)}" for k, v in value.items() if v is not None
        )
        return f"{{ {inner} }}" if inner else "{}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(toml_of(part) for part in value)}]"
    return repr(value)


def _key(name: str) -> str:
    return name if BARE.fullmatch(name) else toml_of(name)


def seconds_of(text: str | float, what: str) -> float:
    """A length of time in seconds: a number of them, or one followed by s, m, h, d or w.

    >>> seconds_of("1.5h", "timeout"), seconds_of(90, "timeout")
    (5400.0, 90.0)
    """
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([smhdw])?\s*", str(text))
    if found is None or isinstance(text, bool):
        raise ValueError(
            f"{what} is {str(text)!r}; give a length of time such as '10m', '36h' or '7d'"
        )
    return float(found[1]) * UNITS[found[2] or "s"]


def duration(seconds: float) -> str:
    """The same length of time in the largest unit that counts it in whole numbers.

    >>> duration(604800), duration(5400), duration(0.5)
    ('1w', '90m', '0.5s')
    """
    if seconds > 0:
        for unit, size in UNITS.items():
            if seconds % size == 0:
                return f"{seconds / size:.0f}{unit}"
    return f"{seconds!r}s"


def recipe_lines(recipe: Recipe) -> list[str]:
    """Settings of a recipe: the usual ones with a word on each, and all that are not at their
    default, but for those that real sites have in one form."""
    hints, lines = get_type_hints(Recipe), []
    for f in fields(recipe):
        value = getattr(recipe, f.name)
        if f.name in SAID or (value != f.default and f.name not in PLACED):
            briefly = f.name != "privacy"  # of which everybody should see what is off, too
            shown = TypeAdapter(hints[f.name]).dump_python(
                value, mode="json", exclude_defaults=briefly
            )
            word = (SAID | WHERE_USED).get(f.name)
            lines += [f"# {word}"] if word is not None else []
            lines += [f"{f.name} = {toml_of(shown)}"]
    return lines


def schema_lines(schema: Schema) -> list[str]:
    """The section ``[schema]``, a line for each column."""
    about = {
        k: v
        for k, v in asdict(schema).items()
        if k not in ("columns", "classes") and v != ""
    }
    if schema.kind == "table":
        del about["shape"]
    lines = ["\n[schema]  # what the rows of all sites have in common"]
    lines += [f"{key} = {toml_of(value)}" for key, value in about.items()]
    lines += [f"classes = {toml_of(schema.classes)}"] if schema.classes else []
    if schema.columns:
        lines += [
            "# features; one with values holds these texts, others hold numbers in the unit",
            "columns = [",
        ]
        lines += [f"  {toml_of(_briefly(asdict(column)))}," for column in schema.columns]
        lines += ["]"]
    return lines


def _briefly(column: dict[str, Any]) -> dict[str, Any]:
    """A column without what does not concern it; an empty unit of a number waits to be filled."""
    return {
        k: v
        for k, v in column.items()
        if v != () and not (k == "unit" and column["values"])
    }
