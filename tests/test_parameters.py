"""Docstrings of public classes and functions have one entry per parameter."""

from __future__ import annotations

import inspect
import re
from collections import Counter
from operator import attrgetter

import pytest

import fallow as fl
from fallow import contrib
from fallow._index import CLASSES
from fallow._names import PARTS

NAMES = [
    *(name for parts in PARTS.values() for _, names in parts for name in names),
    *(name for names in CLASSES.values() for name in names),
    *(f"contrib.{name}" for name in contrib.__all__),
]
SECTION = re.compile(
    r"^(?:Parameters|Attributes)\n-+\n(.*?)(?=^\w[\w ]*\n-{3,}$|^>>> |\Z)",
    re.DOTALL | re.MULTILINE,
)
ENTRY = re.compile(r"^([\w*]+(?:, [\w*]+)*)(?: : .+)?$", re.MULTILINE)


def list_entries(doc: str) -> Counter[str]:
    """Return how often each name has an entry in the sections of parameters and attributes."""
    text = "\n".join(SECTION.findall(inspect.cleandoc(doc)))
    return Counter(name for line in ENTRY.findall(text) for name in line.split(", "))


def list_parameters(thing: object) -> set[str]:
    """Return the parameters of a signature, without private ones, ``*args`` and ``**kwargs``."""
    assert callable(thing)
    variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return {
        name
        for name, parameter in inspect.signature(thing).parameters.items()
        if not name.startswith("_") and parameter.kind not in variable
    }


def test_entries_are_read_from_both_sections() -> None:
    doc = "Sum.\n\nParameters\n----------\na, b : int\n    Terms.\nc\n    Other.\n\nRaises\n------\nE\n"
    assert list_entries(doc) == {"a": 1, "b": 1, "c": 1}


@pytest.mark.parametrize("name", NAMES)
def test_a_public_signature_has_one_entry_per_parameter(name: str) -> None:
    thing = attrgetter(name)(fl)
    parameters = list_parameters(thing)
    entries = list_entries(thing.__doc__)
    assert sorted(parameters - entries.keys()) == []
    assert [entry for entry, times in entries.items() if times > 1] == []
