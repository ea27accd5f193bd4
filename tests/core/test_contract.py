"""Declarations of the operations by which client functions may be called."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from fallow.core.contract import Contract
from fallow.core.fit_declarations import Fit, FitDeclaration

TOLD = {"select": "number of selected examples"}
TWO = Contract(
    "Two", "-", 0, sum={"a": "totals"}, each={"a": "answers"}, keep={"b": "a count"}
)


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        (("New", "-", 2024, TOLD), "too many positional arguments; .* keep"),
        (
            {"title": "New", "calls": TOLD},
            "Contract has no setting 'calls'",
        ),
    ],
)
def test_a_client_function_without_an_operation_is_refused(fields: Any, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        Contract(**fields) if isinstance(fields, dict) else Contract(*fields)


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
    assert TWO.refusal(function, kind) == why


def test_a_model_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError) as error:
        Contract("Mine", keep={"select": "a count"}, needs=["locl"])
    assert str(error.value) == (
        "the contract of Mine needs 'locl', which is not a model; did you mean 'local'?"
    )
    own = FitDeclaration({"twin": Fit()})
    with_own = Contract("Mine", keep={"select": "a count"}, fit=own, needs=["twin"])
    assert with_own.needs == ("twin",)


def test_a_contract_without_verbs_says_so() -> None:
    bare = Contract("Bare", "-", 0)
    assert (
        bare.refusal("a", "sum")
        == "the contract of Bare allows no client function; nothing else"
    )


def test_verbs_are_those_of_all_operations_and_stay_when_something_else_changes() -> None:
    assert dict(replace(TWO, draws=True).disclosures) == {"a": "answers", "b": "a count"}
    assert dict(replace(TWO, relay={"d": "models"}).disclosures) == {
        **TWO.disclosures,
        "d": "models",
    }


def test_an_instance_may_ask_less_than_its_class() -> None:
    assert TWO.without("a").asked == {
        "sum": {},
        "each": {},
        "keep": {"b": "a count"},
        "relay": {},
    }
    assert TWO.without("a").disclosures.keys() == {"b"}
    assert TWO.without("a", by="sum").refusal("a", "each") is None
    assert TWO.without("a", by="sum").refusal("a", "sum") is not None
