"""Test the checks of replies at the coordinator and of instructions at a site."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from fallow.core.client import declared
from fallow.core.fit_declarations import FitDeclaration
from fallow.core.messages import Masked, Request, Step
from fallow.core.model_vectors import Layout
from fallow.core.training_config import TrainingConfig
from fallow.core.types import Values
from fallow.core.values import resolve_dims
from fallow.models.networks import ResNet8
from fallow.privacy.secure_sum import CHECK
from fallow.strategies import AHFAL, FALE
from fallow.training import FedAvg, Robust
from fallow.training.personal import FedRep
from fallow.transport.checks import (
    LARGEST,
    SPARE,
    ResponseCheck,
    check_instruction,
    find_inconsistent,
)
from tests.keys import key_of
from tests.simulations import simulation, tables

W = torch.ones(4)
DIMS = {"weights": 4, "statistics": 2, "body": 3, "features": 3}
BORDER = ResponseCheck({"a": 9}, {"w": 4}, labels={"a": 9}, dims=DIMS)


def with_training(method: object) -> ResponseCheck:
    """Run the same checks in a study with a training algorithm."""
    return replace(BORDER, declared={"training": declared(method)})


MASKED = Masked(key_of("0/query/0"), 0, None)
PART = torch.tensor([1, -(2**60)])


def request(kind: Any = "each", function: str = "share", **more: Any) -> Request:
    step = Step(
        kind,
        function,
        more.pop("args", {}),
        more.pop("training_config", None),
        more.pop("masked", None),
    )
    fields = {
        "key": key_of("0/query/0"),
        "owner": "query",
        "cycle": 0,
        "round": 0,
        "steps": (step,),
    }
    return Request(**{**fields, **more})


@pytest.mark.parametrize(
    ("kind", "masked", "answer"),
    [
        ("sum", None, {"n": 9.0, "w": W, "x": torch.zeros(2, 3).double()}),
        ("sum", None, {"rows": torch.zeros(0)}),
        (
            "each",
            None,
            {"rows": torch.zeros(99, 2), "order": torch.arange(3), "name": "b", "n": 0},
        ),
        ("each", None, {"is_full": True, "key": torch.zeros(32).byte(), "none": None}),
        ("keep", None, {"count": 9}),
        ("fit", None, {}),
        ("sum", MASKED, {"w": PART.repeat(2), CHECK: PART[0]}),
        ("each", MASKED, {"key": torch.tensor([9] + 31 * [0], dtype=torch.uint8)}),
    ],
)
def test_what_methods_answer_is_taken_as_it_is(kind: Any, masked: Any, answer: Any) -> None:
    taken = BORDER.check("a", request(kind, masked=masked), answer)
    assert taken == answer
    assert taken is not answer


@pytest.mark.parametrize(
    ("kind", "masked", "answer", "why"),
    [
        ("sum", None, {"w": W * torch.nan}, "w is NaN or infinite"),
        ("sum", None, {"x": -torch.inf}, "x is NaN or infinite"),
        ("each", None, {"x": 2**60}, "x is a whole number of 61 bits"),
        ("each", None, {"x": 10**400}, "x is a whole number of 1329 bits"),
        ("each", None, {"x": "y" * 10_001}, "x has 10001 characters"),
        ("each", None, {"x": {"y": 1}}, "x is {'y': 1}, which is neither"),
        ("each", None, {"x": W.to(torch.complex64)}, "x is of torch.complex64"),
        ("keep", None, {"count": 10**6}, "count is 1000000"),
        ("keep", None, {"count": -1}, "count is -1"),
        (
            "keep",
            None,
            {"count": 1, "rows": 2},
            r"its reply has the fields \['count', 'rows'\]",
        ),
        ("keep", None, {}, r"its reply has the fields \[\] instead of \['count'\]"),
        (
            "fit",
            None,
            {"w": W},
            r"its reply has the fields \['w'\] instead of none",
        ),
        (
            "sum",
            MASKED,
            {"w": W, CHECK: PART[0]},
            "w is not masked: a masked contribution is int64",
        ),
        ("sum", MASKED, {"w": PART.repeat(2)}, "mask/check is not the single number"),
        ("sum", MASKED, {CHECK: PART}, "mask/check is not the single number"),
        (
            "each",
            MASKED,
            {"key": torch.zeros(31, dtype=torch.uint8)},
            "key is not a public key of 32",
        ),
        ("each", MASKED, {"keys": 1}, r"its reply has the fields \['keys'\]"),
    ],
)
def test_what_no_method_answers_is_refused_by_its_field(
    kind: Any, masked: Any, answer: Any, why: str
) -> None:
    with pytest.raises(ValueError, match=f"^{why}"):
        BORDER.check("a", request(kind, masked=masked), answer)


MASKED_UPLOAD = {"n": PART[0], "w": PART.repeat(2), CHECK: PART[0]}


@pytest.mark.parametrize(
    ("method", "kind", "masked", "answer"),
    [
        (FedAvg(), "sum", None, {"n": 2.0, "w": W}),
        (FedRep(), "sum", None, {"n": 2.0, "body": W[:3]}),
        (Robust(), "each", None, {"n": 2.0, "w": W}),
        (FedAvg(), "sum", MASKED, MASKED_UPLOAD),
    ],
)
def test_a_model_update_without_statistics_is_refused_before_it_is_compared(
    method: Any, kind: Any, masked: Any, answer: Any
) -> None:
    """It would be accepted if all other replies had the same form or were missing."""
    asked = request(kind, "upload", masked=masked, owner="training")
    response_check = with_training(method)
    with pytest.raises(ValueError, match=r"^stats is missing beside "):
        response_check.check("a", asked, answer)
    stats = PART if masked else torch.zeros(2)
    assert response_check.check("a", asked, {**answer, "stats": stats})


def test_statistics_that_stay_at_the_sites_are_not_asked_for() -> None:
    asked = request("sum", "upload", owner="training")
    answer = {"n": 2.0, "w": W}
    assert with_training(FedAvg(bn="local")).check("a", asked, answer) == answer


def test_a_masked_part_of_a_model_has_the_size_of_one() -> None:
    asked = request("sum", "upload", masked=MASKED, owner="training")
    answer = {**MASKED_UPLOAD, "w": PART, "stats": PART}
    with pytest.raises(ValueError, match=r"^w has the shape \(2,\) and not \(4,\)"):
        with_training(FedAvg()).check("a", asked, answer)


def test_an_addend_beyond_the_bound_of_a_request_is_refused() -> None:
    bounded = request("sum", bound=2.0)
    assert BORDER.check("a", bounded, {"x": torch.tensor([2.0, -2.0])})
    for value in (2.5, torch.tensor([0.0, -2.5])):
        with pytest.raises(ValueError, match=r"^x exceeds the bound 2 of a contribution"):
            BORDER.check("a", bounded, {"x": value})


def test_a_truth_value_is_a_number_below_a_bound() -> None:
    answer = {"x": True}
    bounded = replace(request("sum"), bound=2.0)
    assert BORDER.check("a", bounded, answer) == answer


def test_a_site_that_has_not_registered_may_say_how_many_rows_it_has() -> None:
    asked = request("sum", "totals")
    response_check = replace(BORDER, declared={"query": declared(FALE())})
    answer = {"rows": 1e6, "columns": torch.zeros(3)}
    assert response_check.check("new", asked, answer) == answer


def test_a_message_above_what_model_and_rows_can_fill_is_not_opened() -> None:
    with pytest.raises(ValueError, match="its message has 11 bytes, more than the 10 that"):
        replace(BORDER, largest=10).check_size("a", bytes(11))
    wide = replace(BORDER, sites=3, width=5)
    assert wide.largest_message("a") == SPARE + 16 * (3 * 4 + 9 * 5)
    assert wide.largest_message("new") == SPARE + 16 * 3 * 4
    products = replace(wide, products=36)
    assert products.largest_message("new") == SPARE + 16 * (3 * 4 + 36)
    assert (
        ResponseCheck().largest_message("a")
        == LARGEST
        == replace(wide, width=2**40).largest_message("a")
    )


def test_most_sites_say_which_form_is_the_usual_one() -> None:
    usual: Values = {"x": W}
    short: Values = {"x": W[:1]}
    assert find_inconsistent({}) == find_inconsistent({"a": usual, "b": dict(usual)}) == {}
    assert find_inconsistent({"a": short, "b": usual, "c": usual}).keys() == {"a"}
    # if two forms are equally frequent, the form of the first site is used
    assert find_inconsistent({"a": short, "b": usual}).keys() == {"b"}


# -- at a site -----------------------------------------------------------------------------

PARTS = simulation(tables(), AHFAL()).members["a"].parts
D = PARTS.layout.d
MODEL = {"w": torch.zeros(D), "stats": torch.zeros(0)}


def of_training(kind: Any = "fit", function: str = "local", **more: Any) -> Request:
    return request(kind, function, **{"owner": "training", "args": MODEL, **more})


@pytest.mark.parametrize(
    "good",
    [
        request("sum"),
        request("keep", "select", args={"n": 3}),
        request("each", "keys", masked=MASKED),
        of_training(),
        of_training(training_config=TrainingConfig()),
        of_training("sum", "upload"),
        request("keep", "select", args={"end": torch.inf}),
    ],
)
def test_an_order_of_a_method_of_the_study_is_taken(good: Request) -> None:
    check_instruction(good, PARTS)


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (request("sum", steps=()), "has no steps"),
        (request("sum", owner="annotators"), "is of 'annotators'; this study has"),
        (request("sum", owner="plain", function="upload"), "is of 'plain'; this study has"),
        (
            request("each", "__init__"),
            "requests '__init__' by each: .* allows share by sum; select by",
        ),
        (
            request("keep", "upload"),
            "requests 'upload' by keep: the contract of AHFAL allows share by",
        ),
        (
            request("each"),
            "requests 'share' by each: the contract of AHFAL allows it only by sum",
        ),
        (
            request("relay", "select"),
            "requests 'select' by relay: .* allows it only by keep",
        ),
        (
            request("each", "keys"),
            "requests 'keys' by each: the contract of AHFAL allows share by",
        ),
        (request("sum", "keys", masked=MASKED), "requests 'keys' by sum"),
        (
            request(steps=request("sum").steps * 2),
            "'share' by sum, which is not its last step",
        ),
        (of_training(args={"w": MODEL["w"] + torch.nan}), "sends w with NaN or infinite"),
        (
            of_training(args={"w": MODEL["w"], "x": [1]}),
            "x is .*neither a tensor nor a plain value",
        ),
    ],
)
def test_an_order_that_no_coordinator_makes_is_refused(bad: Request, why: str) -> None:
    with pytest.raises(ValueError, match=f"instruction 0/query/0.*{why}"):
        check_instruction(bad, PARTS)


def test_a_model_without_statistics_is_no_model_to_train_on_from() -> None:
    network = ResNet8((3, 8, 8), 2)
    dims = resolve_dims(Layout.of(network), 2, 2)
    direction = {"w": torch.zeros(dims["weights"]), "stats": torch.zeros(0)}
    state = FitDeclaration()
    assert state.find_wrong_part(direction, dims, "mixture") is None
    for start in ("given", "scratch"):
        why = state.find_wrong_part(direction, dims, start)
        assert "stats has the shape (0,) and not" in str(why)
