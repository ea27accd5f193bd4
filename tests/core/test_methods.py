"""Metadata of algorithms, and resolution of a received name to a function."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from fallow import strategies, training
from fallow.core.build import names
from fallow.core.contract import Contract
from fallow.core.methods import Methods, methods_by_owner, site_function
from fallow.strategies import FALE, Random
from fallow.training import FedAvg, personal
from tests.toys import First

SOURCE = Path(__file__).resolve().parents[2] / "src" / "fallow"


def test_a_function_that_the_contract_lists_is_found_by_its_name() -> None:
    first = First()
    assert site_function(first, "select") == first.select


@pytest.mark.parametrize("function", ["query", "contract", "__init__", "no_such"])
def test_no_other_function_of_a_method_can_be_asked_for(function: str) -> None:
    with pytest.raises(
        ValueError, match=f"the contract of First rows lists no '{function}'"
    ):
        site_function(First(), function)


def test_what_an_instance_never_asks_is_no_site_function_of_it() -> None:
    gram = FALE(mode="gram")
    assert "masked" not in gram.contract.disclosures
    with pytest.raises(ValueError, match="lists no 'masked'"):
        site_function(gram, "masked")


def test_every_method_has_the_functions_that_its_contract_lists() -> None:
    for package in (strategies, training, personal):
        for cls in names(package).values():
            contract: Contract = cls.contract
            for function in contract.disclosures:
                assert callable(getattr(cls, function)), f"{cls.__name__} has no {function}"


def test_a_request_may_name_every_method_but_the_plain_one() -> None:
    methods: Methods = {"query": Random(), "training": FedAvg(), "plain": FedAvg()}
    assert methods_by_owner(methods) == {"query": Random(), "training": FedAvg()}


@pytest.mark.long
def test_a_name_that_was_sent_becomes_a_function_in_one_place() -> None:
    looked_up = []
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            match node:
                case ast.Call(func=ast.Name(id="getattr"), args=[_, name, *_]):
                    if ast.unparse(name).endswith("function_name"):
                        looked_up.append(path.relative_to(SOURCE).as_posix())
    assert looked_up == ["core/methods.py"]


def test_only_methods_that_train_two_models_take_two_gradients_for_a_batch() -> None:
    trainers = names((training, personal)).values()
    costly = {cls.__name__ for cls in trainers if cls.contract.gradients_per_batch != 1}
    assert costly == {"APFL", "Ditto"}
