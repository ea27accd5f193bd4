"""Docstrings of public classes and functions have one entry per parameter."""

from __future__ import annotations

import inspect
import re
from collections import Counter
from collections.abc import Iterator
from operator import attrgetter

import pytest

import fallow as fl
from fallow._index import CLASSES
from fallow._names import PARTS
from fallow.core.methods import (
    CollaboratorSelection,
    CustomPrediction,
    FinalTraining,
    TunableEncoder,
)
from fallow.data.partition.base import Partition

PARTS_NAMES = [name for parts in PARTS.values() for _, names in parts for name in names]
NAMES = [
    *PARTS_NAMES,
    *(name for names in CLASSES.values() for name in names),
]
INTERFACES = (
    *(fl.Strategy, fl.Training, FinalTraining, CustomPrediction, CollaboratorSelection),
    *(TunableEncoder, Partition),
)
"""Classes that document the methods of all algorithms."""
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


def list_methods(cls: type) -> Iterator[tuple[str, object, list[str]]]:
    """Yield public methods of Fallow with their docstrings, which those of bases complete."""
    for name in dir(cls):
        method = inspect.getattr_static(cls, name)
        method = getattr(method, "__func__", method)
        if not inspect.isfunction(method) or name.startswith("_"):
            continue
        if method.__module__.startswith("fallow.") and method.__name__ == name:
            defined = (vars(base).get(name) for base in (*cls.__mro__, *INTERFACES))
            yield name, method, [thing.__doc__ or "" for thing in defined if thing]


@pytest.mark.parametrize("name", [*PARTS_NAMES, *INTERFACES])
def test_a_public_method_has_one_entry_per_parameter(name: str | type) -> None:
    cls = attrgetter(name)(fl) if isinstance(name, str) else name
    if not isinstance(cls, type):
        return
    lacking = {}
    for method, function, docs in list_methods(cls):
        entries = list_entries("\n\n".join(map(inspect.cleandoc, docs)))
        names = list_parameters(function) - {"self", "cls"} - entries.keys()
        if names:
            lacking[method] = sorted(names)
    assert lacking == {}


@pytest.mark.parametrize("name", sorted({*NAMES} - {*PARTS_NAMES}))
def test_an_algorithm_takes_the_parameters_that_its_interface_documents(name: str) -> None:
    cls = attrgetter(name)(fl)
    for interface in INTERFACES:
        methods = {method: function for method, function, _ in list_methods(interface)}
        if not all(hasattr(cls, method) for method in methods):
            continue
        for method, function in methods.items():
            own = inspect.getattr_static(cls, method)
            assert not inspect.isfunction(own) or (
                list_parameters(own) <= list_parameters(function)
            ), method
