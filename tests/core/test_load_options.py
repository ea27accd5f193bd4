"""Options of loading data: one declaration for Python, settings and the command line."""

from __future__ import annotations

import dataclasses
import inspect
from typing import Any

import pytest

import fallow as fl
from fallow.core.load_options import (
    DEFAULTS,
    KINDS,
    NAMES,
    OPTIONS,
    LoadKeywords,
    LoadOptions,
    build_options,
    check_applies,
    list_given,
)
from tests.commands import find_commands
from tests.each import each_of

OTHER: dict[str, Any] = {
    "task": "regression",
    "drop_rows": True,
    "merge": True,
    "header_row": 2,
    "drop": ("a",),
    "columns": ("a",),
    "classes": ("a", "b"),
    "physical_range": (0.0, 1.0),
    "channels": "last",
    "decimal": ",",
    "pages": "each",
}
"""Values other than the default; other options are texts."""


def test_keywords_for_editors_are_the_declared_options() -> None:
    assert tuple(LoadKeywords.__annotations__) == NAMES


@each_of("call", [fl.load, fl.from_frame])
def test_the_options_are_in_signature_and_help(call: Any) -> None:
    parameters = inspect.signature(call).parameters
    for name in NAMES:
        assert parameters[name].default == getattr(DEFAULTS, name)
        assert f"    {name}\n        {OPTIONS[name].meaning}" in call.__doc__


def test_every_option_is_a_setting() -> None:
    assert {*NAMES} <= {field.name for field in dataclasses.fields(fl.ExperimentConfig)}


@each_of("command", ["describe", "run", "compare", "init"])
def test_every_option_is_one_of_a_command(command: str) -> None:
    flags = {flag for option in find_commands()[command].params for flag in option.opts}
    assert {f"--{name.replace('_', '-')}" for name in NAMES} <= flags


@each_of("name", NAMES)
def test_an_option_is_used_or_refused_for_each_kind_of_data(name: str) -> None:
    options = LoadOptions(**{name: OTHER.get(name, "a")})
    assert [*list_given(options)] == [name]
    for kind in KINDS:
        if kind in OPTIONS[name].kinds:
            check_applies("mine", kind, options)
            continue
        with pytest.raises(ValueError, match=rf"mine is {KINDS[kind]}: {name}=.*; omit"):
            check_applies("mine", kind, options)


@each_of(
    "options, output",
    [
        ({"drop": "age"}, r"drop is 'age'; give a list, such as drop=\['age'\]"),
        ({"header_row": 0}, "header_row is 0; it must be at least 1"),
        ({"task": "rank"}, "task is 'rank'; it must be 'auto', 'classification' or"),
        ({"decimal": ";"}, "decimal is ';'; it must be 'auto', '.' or ','"),
        ({"site": ["y"]}, r"\['y'\] is a list; give the name of a column"),
    ],
)
def test_a_wrong_value_is_refused(options: dict[str, Any], output: str) -> None:
    with pytest.raises(ValueError, match=output):
        build_options(**options)


def test_names_of_columns_become_texts() -> None:
    assert build_options(label=1, drop=[2]) == LoadOptions(label="1", drop=("2",))  # type: ignore[arg-type, list-item]
