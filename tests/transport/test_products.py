"""Products of labeled rows that arrive: what cannot be such counts for nothing."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
import torch

from fallow.core.messages import Request, Step
from fallow.core.methods import Encoder
from fallow.core.streams import stream
from fallow.core.types import Answer
from fallow.data import load
from fallow.encoders import Convolution, Fourier, Identity
from fallow.encoders.base import encode_rows
from fallow.privacy import SecureSum
from fallow.training import ClosedForm
from fallow.training.parts.heads import Labeled, totals_of
from fallow.training.personal import ClosedFormHeads
from fallow.transport.checks import ResponseCheck
from fallow.transport.plausible_sums import PlausibleSums
from tests.encoders.asks import fit_encoder

BORDER = ResponseCheck({"a": 20, "b": 20}, labels={"a": 9, "b": 9})
TOTALS = Request("0/train/0/0", "training", 0, 0, (Step("sum", "totals", {}),))
LEFT_OUT = Request("0/train/0/1", "training", 0, 0, (Step("sum", "left_out", {}),))
KINDS = pytest.mark.parametrize("is_class", [True, False])


def products(is_class: bool = True, n: int = 7, weight: float = 0.7) -> Answer:
    draw = stream(0, "products")
    z = torch.randn(n, 5, dtype=torch.float64, generator=draw) + 3
    y = torch.randn(n, 1, dtype=torch.float64, generator=draw)
    if is_class:
        y = torch.eye(3, dtype=torch.float64)[torch.arange(n) % 3]
    return totals_of(Labeled(z, y, torch.full((n,), weight, dtype=torch.float64)))


def spoiled(is_class: bool, name: str, factor: float) -> Answer:
    honest = products(is_class)
    value = torch.as_tensor(honest[name], dtype=torch.float64)
    return {**honest, name: value * factor}


@KINDS
@pytest.mark.parametrize("n", [0, 1, 7])
@pytest.mark.parametrize("weight", [0.7, 1.0, 13.5])
def test_products_of_rows_with_weights_are_taken(
    is_class: bool, n: int, weight: float
) -> None:
    answer = products(is_class, n, weight)
    assert BORDER.check("a", TOTALS, answer) == answer


def test_the_center_of_rows_with_weights_is_taken() -> None:
    answer = {"n": 4.9, "features": torch.ones(5, dtype=torch.float64)}
    assert BORDER.check("a", TOTALS, answer) == answer


WRONG = pytest.mark.parametrize(
    ("name", "factor"),
    [("products", -1.0), ("products", 0.5), ("features", 9.0), ("cross", 100.0)],
)


@KINDS
@WRONG
def test_what_no_rows_have_as_products_is_refused_with_the_site_that_said_it(
    is_class: bool, name: str, factor: float
) -> None:
    with pytest.raises(ValueError, match="negative eigenvalue"):
        BORDER.check("a", TOTALS, spoiled(is_class, name, factor))


@KINDS
@WRONG
def test_a_masked_total_that_is_none_of_rows_does_not_count(
    is_class: bool, name: str, factor: float
) -> None:
    sums = PlausibleSums(SecureSum(), BORDER, lambda event: None)
    assert sums._find_fault(products(is_class), ["a", "b"], None) is None
    fault = sums._find_fault(spoiled(is_class, name, factor), ["a", "b"], None)
    assert fault is not None
    assert "negative eigenvalue" in fault


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"rows": 10.0}, "rows is 10.0, and the site brought or was asked for 9 labels"),
        ({"n": 1e6}, "weigh 280 at most"),
        ({"products": torch.zeros(14)}, "do not have the shapes of 5 features"),
        ({"features": torch.zeros(1, 5)}, "no rows of numbers"),
    ],
)
def test_products_of_more_than_a_site_has_are_refused(
    change: dict[str, Any], why: str
) -> None:
    with pytest.raises(ValueError, match=why):
        BORDER.check("a", TOTALS, {**products(), **change})


@pytest.mark.parametrize("name", ["squared", "right", "log"])
def test_a_loss_below_0_steers_no_choice(name: str) -> None:
    ones = {
        part: torch.ones(2, dtype=torch.float64) for part in ("squared", "right", "log")
    }
    lost: Answer = {**ones}
    wrong: Answer = {**ones, name: -ones[name]}
    with pytest.raises(ValueError, match=f"{name} is below 0"):
        BORDER.check("a", LEFT_OUT, wrong)
    sums = PlausibleSums(SecureSum(), BORDER, lambda event: None)
    assert sums._find_fault(lost, ["a"], None) is None
    assert sums._find_fault(wrong, ["a"], None) == f"{name} is below 0"


def losses(right: float, log: float = 3.0) -> Answer:
    """Of a grid of two penalties and three temperatures."""
    return {
        "squared": torch.ones(2, dtype=torch.float64),
        "right": torch.tensor([1.0, right], dtype=torch.float64),
        "log": torch.full((2, 3), log, dtype=torch.float64),
    }


@pytest.mark.parametrize("weight", [0.7, 1.0, 13.5])
def test_right_answers_weigh_no_more_than_the_rows_that_were_added(weight: float) -> None:
    border = ResponseCheck({"a": 20, "b": 20}, labels={"a": 9, "b": 9})
    border.check("a", TOTALS, products(weight=weight))
    assert border.check("a", LEFT_OUT, losses(7 * weight))
    with pytest.raises(ValueError, match="the labeled rows weigh"):
        border.check("a", LEFT_OUT, losses(7.1 * weight))


def test_no_row_loses_more_than_it_can() -> None:
    border = ResponseCheck({"a": 20, "b": 20}, labels={"a": 9, "b": 9})
    border.check("a", TOTALS, products(weight=1.0))
    assert border.check("a", LEFT_OUT, losses(7.0, log=7 * 20_000))
    with pytest.raises(ValueError, match="no row loses more than"):
        border.check("a", LEFT_OUT, losses(7.0, log=7 * 22_000))


def test_before_its_products_are_known_a_site_is_held_to_its_labels() -> None:
    border = ResponseCheck({"a": 20, "b": 20}, labels={"a": 9, "b": 9})
    with pytest.raises(ValueError, match="the labeled rows weigh 360 together"):
        border.check("a", LEFT_OUT, losses(361.0))


def test_behind_masks_right_answers_weigh_no_more_than_all_rows() -> None:
    border = ResponseCheck({"a": 20, "b": 20}, labels={"a": 9, "b": 9})
    sums = PlausibleSums(SecureSum(), border, lambda event: None)
    assert sums._find_fault(products(weight=1.0), ["a", "b"], None) is None
    assert sums._find_fault(losses(7.0), ["a", "b"], None) is None
    fault = sums._find_fault(losses(8.0), ["a", "b"], None)
    assert fault == "right is 8, and the labeled rows weigh 7 together"


# -- how much one site can say ------------------------------------------------------------------


def lengthened(factor: float) -> Answer:
    """Products of seven rows whose mean squared length is ``factor``."""
    draw = stream(0, "lengths")
    z = torch.randn(7, 5, dtype=torch.float64, generator=draw)
    z = z / z.norm(dim=1, keepdim=True) * factor**0.5
    y = torch.eye(3, dtype=torch.float64)[torch.arange(7) % 3]
    return totals_of(Labeled(z, y, torch.ones(7, dtype=torch.float64)))


def make_border(**settings: Any) -> ResponseCheck:
    rows = {"a": 20, "b": 20, "c": 20}
    labels = dict.fromkeys(rows, 9)
    return ResponseCheck(rows, labels=labels, sites=3, has_units=True, **settings)


def test_where_no_row_weighs_more_than_another_a_site_weighs_as_much_as_its_labels() -> (
    None
):
    border = ResponseCheck({"a": 20, "b": 20}, labels={"a": 9, "b": 9}, has_weights=False)
    assert border.check("a", TOTALS, products(weight=1.0))
    with pytest.raises(ValueError, match="each of 7 labeled rows weighs 1 in this study"):
        border.check("a", TOTALS, products(weight=1.5))
    sums = PlausibleSums(SecureSum(), border, lambda event: None)
    assert sums._find_fault(products(weight=1.0), ["a", "b"], None) is None
    fault = sums._find_fault(products(weight=0.5), ["a", "b"], None)
    assert fault is not None
    assert "they weigh 7" in fault


def test_labeled_rows_are_no_longer_together_than_all_rows_of_the_study() -> None:
    """Units give the rows of all sites a mean square length of 1: 60, and twice that is taken."""
    border = make_border(has_weights=False)
    assert border.check("a", TOTALS, lengthened(120 / 7))
    with pytest.raises(
        ValueError, match=r"squared lengths are 121 together, .* are 120 at"
    ):
        border.check("a", TOTALS, lengthened(121 / 7))
    sums = PlausibleSums(SecureSum(), border, lambda event: None)
    assert sums._find_fault(lengthened(120 / 7), ["a", "b", "c"], None) is None
    assert "are 120 at most" in str(
        sums._find_fault(lengthened(121 / 7), ["a", "b", "c"], None)
    )


def test_rows_of_a_site_that_counts_for_less_in_units_may_be_longer() -> None:
    """Of 2, 2 and 20 rows units count 2, 2 and 4: a mean square length of 1 over these 8 leaves
    rows of the largest site 2 long at most, of the others 4."""
    rows = {"a": 2, "b": 2, "c": 20}
    border = make_border(has_weights=False)
    border.rows = rows
    assert border.find_longest(["c"], 7.0) == pytest.approx(2 * 8 * 20 / 4)
    assert border.find_longest(["a"], 7.0) == pytest.approx(2 * 8)
    plain = make_border(has_weights=False)
    plain.has_units = False
    assert plain.find_longest(["a"], 7.0) == float("inf")


@pytest.mark.parametrize(
    ("method", "weighs"),
    [
        (ClosedForm(), True),
        (ClosedForm(weighted=False), False),
        (ClosedForm(weighted=False, balance="class"), True),
        (ClosedForm(delta=1e-5), False),
        (ClosedFormHeads(), True),
        (ClosedFormHeads(weighted=False), False),
    ],
)
def test_a_contract_says_whether_rows_have_weights(
    method: ClosedForm | ClosedFormHeads, weighs: bool
) -> None:
    assert method.contract.weighs is weighs


@pytest.mark.parametrize(
    "encoder",
    [Convolution(filters=4), Fourier(features=32), Identity()],
    ids=lambda encoder: encoder.contract.title,
)
def test_honest_sites_are_within_what_units_say(encoder: Encoder) -> None:
    """All rows labeled, at sites of very unequal size: nobody is refused."""
    result = load("digits")
    cuts = (0, 5, 40, 300, 1400)
    state = fit_encoder(encoder, [result.x[:1400]])
    z = encode_rows(encoder, result.x[:1400], state).double()
    spread = z.std(0, correction=0)
    z = torch.where(spread > 0, (z - z.mean(0)) / spread.clamp_min(1e-300), 0.0)
    z = z / z.shape[1] ** 0.5
    rows = {
        site: end - start for site, (start, end) in zip("abcd", pairwise(cuts), strict=True)
    }
    border = ResponseCheck(rows, labels=rows, sites=4, has_units=True, has_weights=False)
    y = torch.eye(10, dtype=torch.float64)[result.y[:1400].long()]
    for site, (start, end) in zip("abcd", pairwise(cuts), strict=True):
        s = torch.ones(end - start, dtype=torch.float64)
        answer = totals_of(Labeled(z[start:end], y[start:end], s))
        assert border.check(site, TOTALS, answer) == answer
