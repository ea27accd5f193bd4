"""Declarations of the operations by which client functions may be called."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from fallow.core import client
from fallow.core.contract import Contract
from fallow.core.fit_declarations import Fit, FitDeclaration
from fallow.training import ClosedForm


class Two:
    """Functions that are called by one or by two operations."""

    contract = Contract("Two")

    @client.sum("totals")
    @client.each("answers")
    def a(self, view: Any) -> Any: ...

    @client.keep("a count")
    def b(self, view: Any) -> Any: ...


@pytest.mark.parametrize(
    ("function", "kind", "why"),
    [
        ("a", "sum", None),
        ("a", "each", None),
        ("b", "keep", None),
        ("a", "keep", "the contract of Two allows it only by sum and each"),
        ("a", "fit", "the contract of Two allows it only by sum and each"),
        ("b", "relay", "the contract of Two allows it only by keep"),
        (
            "c",
            "keep",
            "the contract of Two allows a by sum; a by each; b by keep; nothing else",
        ),
    ],
)
def test_a_verb_is_answered_by_the_operations_that_list_it(
    function: str, kind: str, why: str | None
) -> None:
    assert Two().contract.refusal(function, kind) == why


def test_a_model_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError) as error:
        Contract("Mine", needs=["locl"])
    assert str(error.value) == (
        "the contract of Mine needs 'locl', which is not a model; did you mean 'local'?"
    )
    own = FitDeclaration({"twin": Fit()})
    with_own = Contract("Mine", fit=own, needs=["twin"])
    assert with_own.needs == ("twin",)


def test_a_contract_without_verbs_says_so() -> None:
    bare = Contract("Bare", "-", 0)
    assert (
        bare.refusal("a", "sum")
        == "the contract of Bare allows no client function; nothing else"
    )


def test_disclosures_are_those_of_all_functions_and_stay_if_something_else_changes() -> (
    None
):
    changed = replace(Two().contract, draws=True)
    assert changed.disclosures == {"a": "answers", "b": "a count"}


def test_a_class_has_the_functions_of_all_settings_and_an_instance_its_own() -> None:
    declared_by_class = {item.name for item in ClosedForm.contract.functions}
    off = ClosedForm(unlabeled="off")
    declared_by_instance = {item.name for item in off.contract.functions}
    assert declared_by_instance == {"totals", "left_out"}
    assert declared_by_instance < declared_by_class
