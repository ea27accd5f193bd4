"""Meter: exact numbers by declaration, compared with values of examples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from fallow.core import client
from fallow.core.client import declared
from fallow.core.contract import Contract
from fallow.core.disclosure import Disclosure
from fallow.core.types import Values
from fallow.core.values import Real
from fallow.core.view import View
from fallow.measurements.meter import (
    Exposure,
    Sent,
    can_be_read,
    count_numbers,
    count_planned,
    count_sent,
    count_values,
    describe_exposure,
    find_widest,
    measure_exposure,
)
from fallow.strategies import AHFAL, FALE, Pivotal, Typical
from fallow.training import ClosedForm, FedAvg, MaskedSolve, ServerSolve
from fallow.training.scaling import Scaling
from tests.each import each_of

SIZES = {"features": 10, "outputs": 2, "classes": 2, "noisy": 99, "weights": 22}


def exposure(numbers: int, largest: int = 0) -> Exposure:
    return {"numbers": numbers, "largest": largest, "rows": 24, "values": 13}


def test_sums_are_counted_by_their_declared_shapes() -> None:
    totals = declared(ClosedForm())["totals"]
    products, features, cross, others = 55, 10, 20, 5
    assert count_numbers(totals, SIZES) == products + features + cross + others


@each_of(
    "algorithm, function, is_noisy, numbers",
    [
        (ClosedForm(delta=1e-5), "noisy_totals", True, 0),
        (FedAvg(), "upload", False, 0),
        (AHFAL(), "share", True, 0),
        (AHFAL(), "share", False, 5),
        (AHFAL(), "select", False, 0),
        (Typical(), "groups", False, None),
    ],
)
def test_noise_and_models_are_no_exact_numbers_and_releases_without_noise_are(
    algorithm: object, function: str, is_noisy: bool, numbers: int | None
) -> None:
    item = declared(algorithm)[function]
    assert count_numbers(item, SIZES, is_noisy=is_noisy) == numbers


@each_of("numbers, is_read", [(311, False), (312, True), (132608, True)])
def test_as_many_numbers_as_values_can_be_read(numbers: int, is_read: bool) -> None:
    assert can_be_read(exposure(numbers)) == is_read
    assert ("examples can be computed" in describe_exposure(exposure(numbers))) == is_read


@each_of(
    "largest, words",
    [
        (
            12,
            "fewer numbers than values, without models; examples with categories or rare values",
        ),
        (13, "up to 1 of them can be computed if a reply adds them, leaves them out"),
        (117, "up to 9 of them can be computed if a reply adds them, leaves them out"),
    ],
)
def test_a_reply_about_few_examples_can_be_read_whatever_all_replies_are_about(
    largest: int, words: str
) -> None:
    assert words in describe_exposure(exposure(200, largest))


def test_a_small_number_of_labels_is_not_shown() -> None:
    few = describe_exposure({**exposure(999), "rows": 4})
    assert few == (
        "999 exact numbers, compared with <5 labeled examples of 13 values: examples can be computed"
    )


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


def measured(methods: Any, sent: Any, rows: Sequence[int] = (24,)) -> Exposure:
    return measure_exposure(methods, SIZES, 13, sent, rows, is_noisy=False)


@each_of(
    "sent, numbers, largest",
    [
        ({("query", "totals"): Sent(9, 0)}, 9000, 1000),
        ({("training", "totals"): Sent(2, 0)}, 180, 90),
        ({("training", "totals"): Sent(2, 0), ("query", "totals"): Sent(1, 0)}, 1180, 1000),
    ],
)
def test_functions_of_all_owners_are_counted_by_owner_and_reply(
    sent: Any, numbers: int, largest: int
) -> None:
    measured_twins = measured({"training": ClosedForm(), "query": Twin()}, sent)
    assert (measured_twins["numbers"], measured_twins["largest"]) == (numbers, largest)


@each_of(
    "strategy, function", [(Pivotal(), "gram"), (FALE(), "gram"), (Typical(), "groups")]
)
def test_numbers_of_unknown_shape_are_counted_by_their_bytes(
    strategy: object, function: str
) -> None:
    exposed = measured({"query": strategy}, {("query", function): Sent(2, 800)})
    assert exposed["numbers"] == exposed["largest"] == 200


@each_of(
    "function, numbers",
    [("columns", 11), ("spread", 20)],
)
def test_a_sum_over_all_examples_counts_again_after_one_has_left(
    function: str, numbers: int
) -> None:
    methods: Any = {"scaling": Scaling()}
    sizes = {**SIZES, "inputs": 10}
    sent = {("scaling", function): Sent(2, 0)}
    exposed = measure_exposure(methods, sizes, 13, sent, (24,), is_noisy=False)
    assert exposed["numbers"] == 2 * numbers


def test_the_site_with_the_fewest_training_labels_counts() -> None:
    assert measured({}, {}, (24, 0, 3, 9))["rows"] == 3
    assert measured({}, {}, ())["rows"] == 0


def test_a_record_belongs_to_the_owner_that_declares_its_description() -> None:
    methods: Any = {"training": ClosedForm(), "query": Twin()}
    entry = {"function": "totals", "description": "aggregates of more", "exchanges": 3}
    sent = count_sent(methods, [{**entry, "bytes": 12}])
    assert sent == {("query", "totals"): Sent(3, 12)}


def test_functions_of_one_name_are_counted_apart() -> None:
    shown = Disclosure()
    for owner in (ClosedForm(), Twin()):
        described = owner.contract.disclosures["totals"]
        shown.add("sum", "totals", described, up=8, down=0, sites=3)
    resumed = Disclosure.of(shown.rows()).plus(Disclosure())
    methods: Any = {"training": ClosedForm(), "query": Twin()}
    for disclosure in (shown, resumed):
        sent = count_sent(methods, disclosure.rows())
        assert sent == {
            ("training", "totals"): Sent(1, 8),
            ("query", "totals"): Sent(1, 8),
        }


@each_of("rows, values", [(24, 13), (2, 3), (1, 1)])
def test_the_widest_encoder_has_fewer_numbers_than_values(rows: int, values: int) -> None:
    methods: Any = {"training": ClosedForm(reveal="head")}
    widest = find_widest(methods, SIZES, rows, values)
    assert (count_planned(methods, SIZES, widest + 1) or 0) >= rows * values
    assert widest == 0 or (count_planned(methods, SIZES, widest) or 0) < rows * values


@each_of(
    "training, width, numbers",
    [
        (ClosedForm(reveal="head"), 10, 90 + 35),
        (ServerSolve(), 10, 11 + 2 * (1 + 1 + 11 * 11 + 11)),
        (
            ClosedForm(reveal="head"),
            20,  # enough for self-training
            2 + 5 * 275 + 231 + 24 + 8 * 264 + 105 + 35,
        ),
        (MaskedSolve(), 10, None),
    ],
)
def test_the_numbers_of_one_end_of_labeling_include_all_repetitions(
    training: object, width: int, numbers: int | None
) -> None:
    methods: Any = {"training": training}
    assert count_planned(methods, SIZES, width) == numbers


def test_categories_of_a_column_are_one_value_each_row() -> None:
    levels = [f"{name}={code}" for name in ("ward", "drug", "code") for code in range(20)]
    assert count_values(levels, (60,)) == 3
    sent: Any = {("training", "totals"): Sent(1, 0)}
    values = count_values(levels, (60,))
    methods: Any = {"training": ClosedForm()}
    sizes = {"features": 60, "outputs": 2, "inputs": 60}
    exposed = measure_exposure(methods, sizes, values, sent, (70,), is_noisy=False)
    assert can_be_read(exposed)  # 2,015 numbers about 70 rows of 3 cells, not of 60
    assert not can_be_read({**exposed, "values": 60})
