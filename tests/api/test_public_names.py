"""The public names of `fallow`, and the cost of importing it."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

import fallow as fl
import fallow._names as public
from fallow import models, strategies, training
from fallow.api.keywords import CompareSettings, RunSettings
from fallow.configs.defaults import OF_COMPARISONS
from fallow.core.build import names
from fallow.core.training_config import KEYWORDS
from fallow.data.partition import partitions
from fallow.training import personal
from tests.each import each_of

SOURCE = Path(fl.__file__).parent
PUBLIC = sorted(public.WHERE)


@each_of("name", PUBLIC)
def test_every_public_name_is_there_and_says_what_it_is(name: str) -> None:
    result = getattr(fl, name)
    assert result.__name__ == name
    assert inspect.getdoc(result)
    assert name in vars(fl)["__all__"]


def test_an_unknown_name_is_an_attribute_error_like_any_other() -> None:
    with pytest.raises(AttributeError, match="module 'fallow' has no attribute 'nothing'"):
        fl.nothing  # type: ignore[attr-defined]  # noqa: B018
    assert not hasattr(fl, "nothing")


@pytest.mark.parametrize(
    ("typed", "meant"),
    [("Marign", "Margin"), ("coreset", "CoreSet"), ("compre", "compare")],
)
def test_a_misspelt_name_is_answered_with_the_one_that_was_meant(
    typed: str, meant: str
) -> None:
    with pytest.raises(AttributeError, match=f"did you mean '{meant}'?"):
        getattr(fl, typed)


@pytest.mark.parametrize(("term", "meant"), public.TERMS.items())
def test_a_term_of_the_field_is_answered_with_the_name_here(term: str, meant: str) -> None:
    with pytest.raises(AttributeError, match=f"; did you mean {re.escape(meant)}"):
        getattr(fl, term)
    result: object = fl
    for name in meant.partition("(")[0].split(".")[1:]:
        result = getattr(result, name)
    assert callable(result) or inspect.ismodule(result)


def test_completion_lists_functions_thirty_classes_and_the_namespaces() -> None:
    listed = dir(fl)
    assert not [name for name in listed if name.startswith("_")]
    assert len(public.LISTED) == 30
    assert {*public.LISTED, *public.NAMESPACES, "run", "compare", "select"} <= set(listed)
    for name in listed:
        assert getattr(fl, name) is not None


@pytest.mark.parametrize("namespace", sorted({*public.NAMESPACES}))
def test_a_namespace_holds_the_classes_of_its_kind_alone(namespace: str) -> None:
    module = getattr(fl, namespace)
    assert module.__name__ == public.NAMESPACES[namespace]
    of_module = [name for name in module.__all__ if name in public.WHERE]
    assert of_module
    for name in of_module:
        assert getattr(module, name) is getattr(fl, name)
    assert sorted(of_module) == sorted(dir(module))


def test_the_namespace_of_training_has_the_personalized_algorithms_too() -> None:
    assert {"Ditto", "FedRep", "FedAvg"} <= set(dir(fl.training))


def test_a_model_of_its_namespace_is_the_one_at_the_top() -> None:
    assert fl.models.MLP(hidden=[64]) == fl.MLP(hidden=[64])


def test_type_checkers_see_the_names_that_python_sees() -> None:
    tree = ast.parse((SOURCE / "__init__.pyi").read_text(encoding="utf-8"))
    seen = {
        alias.name: node.module
        for node in tree.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert seen.pop("__version__") == "fallow.core.version"
    for namespace, module in public.NAMESPACES.items():
        assert f"{seen.pop(namespace)}.{namespace}" == module
    assert seen == public.WHERE


OF_STUDIES = {"strategy", "strategies", "reference", "seeds"}
"""Settings of a configuration that are arguments of `fallow.compare`, or of its strategies."""


def test_editors_see_exactly_the_settings_that_are_declared() -> None:
    declared = {field.name for field in dataclasses.fields(fl.ExperimentConfig)}
    declared |= {*KEYWORDS}
    for call, keywords in ((fl.run, RunSettings), (fl.compare, CompareSettings)):
        arguments = {*inspect.signature(call).parameters}
        if call is fl.run:
            arguments |= {*OF_COMPARISONS}
        assert keywords.__annotations__.keys() == declared - arguments - OF_STUDIES


def test_select_takes_its_declared_arguments_alone() -> None:
    for parameter in inspect.signature(fl.select).parameters.values():
        assert parameter.kind is not parameter.VAR_KEYWORD
        assert parameter.annotation is not parameter.empty


@pytest.mark.parametrize("call", [fl.run, fl.compare, fl.select])
def test_no_strategy_model_or_training_is_typed_as_anything(call: object) -> None:
    parameters = inspect.signature(call).parameters  # type: ignore[arg-type]
    for name in {"strategy", "strategies", "model", "training"} & parameters.keys():
        assert not re.search(r"\bAny\b|\bobject$", parameters[name].annotation)


def test_the_table_of_contents_in_the_docstring_names_everything() -> None:
    assert fl.__doc__
    words = set(re.findall(r"[A-Za-z0-9_]+", fl.__doc__))
    assert set(PUBLIC) <= words


@each_of("name", PUBLIC)
def test_every_public_name_says_what_it_is_and_shows_an_example(name: str) -> None:
    words = getattr(fl, name).__doc__
    if name != "__version__":
        assert words, f"fl.{name} has no docstring"
        assert ">>>" in words, f"the docstring of fl.{name} has no example"


def test_no_public_name_hides_a_room_of_the_package() -> None:
    """Check that no function has the name of a subpackage.

    Importing `fallow.x` sets the attribute x and would replace the function.
    """
    rooms = {path.name for path in SOURCE.iterdir() if path.is_dir()}
    assert not rooms & set(PUBLIC)


@pytest.mark.parametrize("package", [strategies, training, personal, partitions, models])
def test_every_method_partition_and_model_is_public(package: object) -> None:
    assert set(names(package)) <= set(PUBLIC)  # type: ignore[arg-type]


def test_importing_fallow_loads_no_library() -> None:
    heavy = "{'torch', 'numpy', 'pandas', 'sklearn', 'scipy', 'matplotlib'}"
    code = f"import fallow, sys; print(*sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.split() == []
    assert done.returncode == 0


def test_importing_fallow_takes_less_than_a_sixth_of_a_second() -> None:
    code = "import time; t = time.process_time(); import fallow; print(time.process_time() - t)"
    took = [
        float(subprocess.check_output([sys.executable, "-c", code], text=True))
        for _ in range(3)
    ]
    assert min(took) < 0.15


def test_a_name_is_looked_up_once() -> None:
    fl.Entropy  # noqa: B018
    began = time.perf_counter()
    for _ in range(1000):
        fl.Entropy  # noqa: B018
    assert time.perf_counter() - began < 0.1
    assert "Entropy" in vars(fl)
