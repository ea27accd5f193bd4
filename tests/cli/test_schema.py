"""``fallow schema``: every file and result has a schema that describes its fields."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fallow.cli.schema import FILES
from tests.cli.conftest import Command
from tests.commands import check_result, find_commands

PLAIN: dict[str, Any] = {
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
}


def list_names() -> list[str]:
    commands = find_commands()
    results = [
        path for path, one in commands.items() if hasattr(one.callback, "__results__")
    ]
    return [*FILES, *results]


def walk(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each field with its path."""
    for name, field in schema.get("properties", {}).items():
        yield f"{path}.{name}", field
        yield from walk(field, f"{path}.{name}")
    for name, kind in schema.get("$defs", {}).items():
        yield from walk(kind, name)


def fits(value: Any, schema: dict[str, Any], definitions: dict[str, Any]) -> bool:
    """Check a plain value against a schema, for the keywords used here."""
    if "$ref" in schema:
        return fits(value, definitions[schema["$ref"].rpartition("/")[2]], definitions)
    if "anyOf" in schema:
        return any(fits(value, option, definitions) for option in schema["anyOf"])
    if "enum" in schema and value not in schema["enum"]:
        return False
    kind = schema.get("type")
    if kind == "null":
        return value is None
    if kind == "array":
        items = schema.get("items", {})
        return isinstance(value, list) and all(fits(v, items, definitions) for v in value)
    if kind == "object" and "properties" in schema:
        known = schema["properties"]
        others = set(value) - set(known)
        return (
            isinstance(value, dict)
            and set(schema.get("required", ())) <= set(value)
            and not (others and schema.get("additionalProperties") is False)
            and all(fits(value[k], known[k], definitions) for k in set(value) - others)
        )
    if kind == "object":
        return isinstance(value, dict)
    if kind == "boolean" or isinstance(value, bool):
        return kind in ("boolean", None) and isinstance(value, bool)
    return kind is None or isinstance(value, PLAIN[kind])


def test_every_command_with_json_declares_what_it_prints() -> None:
    for path, command in find_commands().items():
        options = [option for parameter in command.params for option in parameter.opts]
        assert hasattr(command.callback, "__results__") == ("--json" in options), path


@pytest.mark.parametrize("name", list_names())
def test_every_field_of_a_schema_has_a_description(fallow: Command, name: str) -> None:
    output = fallow("schema", *name.split())
    assert output.code == 0, output.err
    schema = json.loads(output.out)
    assert schema["$schema"].startswith("https://json-schema.org/")
    fields = list(walk(schema))
    nested = [path for path, field in fields if "properties" in field or "$ref" in field]
    bare = [path for path, field in fields if not field.get("description")]
    assert fields or schema.get("items") or schema.get("anyOf")
    assert set(bare) <= set(nested)


def test_schemas_are_listed_and_a_wrong_name_gets_the_nearest(fallow: Command) -> None:
    listed = fallow("schema").out
    for name in list_names():
        assert name in " ".join(listed.split())
    assert "did you mean 'site status'?" in fallow("schema", "site", "statu").says()


def test_the_schema_of_a_configuration_fits_files(fallow: Command, folder: Path) -> None:
    schema = json.loads(fallow("schema", "configuration").out)
    assert fallow("new", "mine", "--quiet").code == 0
    for file in ("tiny.toml", "mine/study.toml"):
        settings = tomllib.loads((folder / file).read_text())
        assert fits(settings, schema, schema["$defs"]), file
        assert not fits({**settings, "round": 3}, schema, schema["$defs"])
        assert not fits({**settings, "rounds": "3"}, schema, schema["$defs"])
    for short in ({"lr": 0.1}, {"training_config": {"stages": 2}}):
        assert fits(short, schema, schema["$defs"]), short


def test_what_a_model_does_not_have_is_no_result() -> None:
    good = '{"file": "a.csv"}'
    check_result(("export", "study", "--json"), good)
    for bad in ('{"file": 3}', "{}", '{"file": "a.csv", "more": 1}'):
        with pytest.raises(ValueError, match="WrittenFile"):
            check_result(("export", "study", "--json"), bad)


@pytest.mark.parametrize(
    ("typed", "offered"),
    [("fallow schema conf", "configuration"), ("fallow schema site stat", "status")],
)
def test_tab_completes_the_names_of_schemas(
    fallow: Command, monkeypatch: pytest.MonkeyPatch, typed: str, offered: str
) -> None:
    monkeypatch.setenv("_FALLOW_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", typed)
    monkeypatch.setenv("COMP_CWORD", str(len(typed.split()) - 1))
    assert offered in fallow().out.split()
