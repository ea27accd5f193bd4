"""Meter: exact numbers by declaration, compared with values of examples."""

from __future__ import annotations

from pathlib import Path

from fallow.core.client import declared
from fallow.measurements.meter import (
    LABELED,
    Exposure,
    can_be_read,
    count_numbers,
    describe_exposure,
)
from fallow.training import ClosedForm, FedAvg
from tests.each import each_of

DOCS = Path(__file__).resolve().parents[2] / "docs"
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


def test_the_approval_sheet_shows_a_sentence_of_the_meter() -> None:
    text = (DOCS / "approval-sheet.md").read_text(encoding="utf-8")
    assert f'"{describe_exposure(exposure(132608))}"' in text


def test_nothing_is_read_about_no_examples() -> None:
    assert not can_be_read({**exposure(100), "rows": 0})
