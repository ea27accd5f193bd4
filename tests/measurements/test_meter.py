"""Meter: exact numbers by declaration, compared with values of examples."""

from __future__ import annotations

from typing import Any, ClassVar

from fallow.core import client
from fallow.core.client import declared
from fallow.core.contract import Contract
from fallow.core.disclosure import Disclosure
from fallow.core.types import Values
from fallow.core.values import Real
from fallow.core.view import View
from fallow.measurements.meter import (
    ALL,
    LABELED,
    Exposure,
    can_be_read,
    count_labeled,
    count_numbers,
    count_sent,
    describe_exposure,
    find_widest,
    measure_exposure,
)
from fallow.training import ClosedForm, FedAvg
from tests.each import each_of

SIZES = {"features": 10, "outputs": 2, "classes": 2, "noisy": 99, "weights": 22}


def exposure(numbers: int) -> Exposure:
    return {"subject": LABELED, "numbers": numbers, "rows": 24, "values": 13}


def test_sums_are_counted_by_their_declared_shapes() -> None:
    totals = declared(ClosedForm())["totals"]
    products, features, cross, others = 55, 10, 20, 5
    assert count_numbers(totals, SIZES) == products + features + cross + others


@each_of(
    "algorithm, function",
    [(ClosedForm(delta=1e-5), "noisy_totals"), (FedAvg(), "upload")],
)
def test_noise_and_models_are_no_exact_numbers(algorithm: object, function: str) -> None:
    assert count_numbers(declared(algorithm)[function], SIZES) == 0


@each_of("numbers, is_read", [(311, False), (312, True), (132608, True)])
def test_as_many_numbers_as_values_can_be_read(numbers: int, is_read: bool) -> None:
    assert can_be_read(exposure(numbers)) == is_read
    assert describe_exposure(exposure(numbers)).endswith("can be computed") == is_read


def test_nothing_is_read_about_no_examples() -> None:
    assert not can_be_read({**exposure(100), "rows": 0})


class Twin:
    """Client functions with the names of another algorithm's, which send more numbers."""

    contract: ClassVar[Contract] = Contract(title="Twin")

    @client.sum(
        "aggregates of more", returns={"more": Real(("features", "features", "features"))}
    )
    def totals(self, view: View) -> Values:
        raise NotImplementedError


@each_of("sent", [{("query", "totals"): 9}, {("training", "totals"): 2}])
def test_functions_of_one_name_are_counted_by_their_owner(
    sent: dict[tuple[str, str], int],
) -> None:
    methods: Any = {"training": ClosedForm(), "query": Twin()}
    rows: dict[str, int] = {LABELED: 24, ALL: 99}
    exposures = measure_exposure(methods, SIZES, (13,), sent, rows)
    of_one = count_numbers(declared(ClosedForm())["totals"], SIZES)
    expected = [2 * of_one] if ("training", "totals") in sent else []
    assert [exposure["numbers"] for exposure in exposures] == expected


def test_a_record_belongs_to_the_owner_that_declares_its_description() -> None:
    methods: Any = {"training": ClosedForm(), "query": Twin()}
    entry = {"function": "totals", "description": "aggregates of more", "exchanges": 3}
    assert count_sent(methods, [entry]) == {("query", "totals"): 3}


def test_functions_of_one_name_are_counted_apart() -> None:
    shown = Disclosure()
    for owner in (ClosedForm(), Twin()):
        described = owner.contract.disclosures["totals"]
        shown.add("sum", "totals", described, up=8, down=0, sites=3)
    resumed = Disclosure.of(shown.rows()).plus(Disclosure())
    methods: Any = {"training": ClosedForm(), "query": Twin()}
    for disclosure in (shown, resumed):
        sent = count_sent(methods, disclosure.rows())
        assert sent == {("training", "totals"): 1, ("query", "totals"): 1}


@each_of("rows, values", [(24, 13), (2, 3), (1, 1)])
def test_the_widest_encoder_has_fewer_numbers_than_values(rows: int, values: int) -> None:
    methods: Any = {"training": ClosedForm()}
    widest = find_widest(methods, SIZES, rows, values)
    assert count_labeled(methods, SIZES, widest + 1) >= rows * values
    assert widest == 0 or count_labeled(methods, SIZES, widest) < rows * values
