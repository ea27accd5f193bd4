"""Test that implausible products of labeled examples are rejected."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

import pytest
import torch

from fallow.core.client import declared
from fallow.core.messages import Request, Step
from fallow.core.methods import Encoder
from fallow.core.streams import stream
from fallow.core.types import Values
from fallow.data import load
from fallow.deployment.agreement import Bounds
from fallow.deployment.coordinator.plausible_sums import PlausibleSums
from fallow.deployment.coordinator.weights import SiteWeights, find_longest
from fallow.encoders import Convolution, Fourier, Identity
from fallow.encoders.base import encode_rows
from fallow.privacy.secure_sum import SecureSum
from fallow.training import ClosedForm
from fallow.training.parts.closed_form import Labeled, totals_of
from fallow.training.personal import ClosedFormHeads
from fallow.transport.checks import ResponseCheck
from tests.encoders.asks import fit_encoder
from tests.keys import key_of

ROWS = {"a": 20, "b": 20}
LABELS = {"a": 9, "b": 9}
LONGEST = partial(find_longest, bounds=Bounds())


def make_check(method: Any = None, classes: int = 3, **settings: Any) -> ResponseCheck:
    """Return a response check for ``method`` with two registered sites."""
    return ResponseCheck(
        settings.pop("rows", ROWS),
        labels=settings.pop("labels", LABELS),
        declared={"training": declared(method or ClosedForm(balance="class", passes=2))},
        dims={"classes": classes, "outputs": max(classes, 1)},
        **settings,
    )


def find_total_fault(
    response_check: ResponseCheck, reply: Values, function: str
) -> str | None:
    """Return why the aggregate of both sites is implausible."""
    sums = PlausibleSums(SecureSum(), SiteWeights(response_check), lambda event: None)
    return sums.find_fault(reply, sorted(response_check.rows), "training", function, None)


TOTALS = Request(key_of("0/train/0/0"), "training", 0, 0, (Step("sum", "totals", {}),))
LEFT_OUT = Request(key_of("0/train/0/1"), "training", 0, 0, (Step("sum", "left_out", {}),))
KINDS = pytest.mark.parametrize("is_class", [True, False])


def products(is_class: bool = True, n: int = 7, weight: float = 0.7) -> Values:
    draw = stream(0, "products")
    z = torch.randn(n, 5, dtype=torch.float64, generator=draw) + 3
    y = torch.randn(n, 1, dtype=torch.float64, generator=draw)
    if is_class:
        y = torch.eye(3, dtype=torch.float64)[torch.arange(n) % 3]
    return totals_of(Labeled(z, y, torch.full((n,), weight, dtype=torch.float64)))


@KINDS
@pytest.mark.parametrize("n", [0, 1, 7])
@pytest.mark.parametrize("weight", [0.7, 1.0, 13.5])
def test_products_of_rows_with_weights_are_taken(
    is_class: bool, n: int, weight: float
) -> None:
    reply = products(is_class, n, weight)
    response_check = make_check(classes=3 * is_class)
    assert response_check.check("a", TOTALS, reply) == reply


def test_the_center_of_rows_with_weights_is_taken() -> None:
    reply = {"n": 4.9, "features": torch.ones(5, dtype=torch.float64)}
    center = Request(key_of("0/train/0/0"), "training", 0, 0, (Step("sum", "center", {}),))
    assert make_check().check("a", center, reply) == reply


def losses(right: float, log: float = 3.0) -> Values:
    """Return the losses of a grid of two penalties."""
    return {
        "squared": torch.ones(2, dtype=torch.float64),
        "right": torch.tensor([1.0, right], dtype=torch.float64),
        "log": torch.full((2, 33), log, dtype=torch.float64),
    }


@pytest.mark.parametrize("weight", [0.7, 1.0, 13.5])
def test_right_answers_weigh_no_more_than_the_rows_that_were_added(weight: float) -> None:
    response_check = make_check()
    response_check.check("a", TOTALS, products(weight=weight))
    assert response_check.check("a", LEFT_OUT, losses(7 * weight))
    with pytest.raises(ValueError, match="the total weight of the labeled rows"):
        response_check.check("a", LEFT_OUT, losses(7.1 * weight))


def test_products_of_a_fold_do_not_bound_the_losses_on_all_labels() -> None:
    response_check = make_check()
    response_check.check("a", TOTALS, products(weight=1.0))
    fold = replace(TOTALS, steps=(Step("sum", "fold_totals", {}),))
    response_check.check("a", fold, products(n=2, weight=1.0))
    assert response_check.check("a", LEFT_OUT, losses(7.0))


def test_no_row_loses_more_than_it_can() -> None:
    response_check = make_check()
    response_check.check("a", TOTALS, products(weight=1.0))
    assert response_check.check("a", LEFT_OUT, losses(7.0, log=7 * 20_000))
    with pytest.raises(ValueError, match="the loss of a row is at most"):
        response_check.check("a", LEFT_OUT, losses(7.0, log=7 * 22_000))


def test_before_its_products_are_known_a_site_is_held_to_its_labels() -> None:
    response_check = make_check()
    with pytest.raises(ValueError, match="the total weight of the labeled rows is 360"):
        response_check.check("a", LEFT_OUT, losses(361.0))


def test_behind_masks_right_answers_weigh_no_more_than_all_rows() -> None:
    response_check = make_check()
    assert find_total_fault(response_check, products(weight=1.0), "totals") is None
    assert find_total_fault(response_check, losses(7.0), "left_out") is None
    fault = find_total_fault(response_check, losses(8.0), "left_out")
    assert fault == "right is 8, and the total weight of the labeled rows is 7"


# -- influence of one site -----------------------------------------------------------------


def lengthened(factor: float) -> Values:
    """Return products of seven examples whose mean squared length is ``factor``."""
    draw = stream(0, "lengths")
    z = torch.randn(7, 5, dtype=torch.float64, generator=draw)
    z = z / z.norm(dim=1, keepdim=True) * factor**0.5
    y = torch.eye(3, dtype=torch.float64)[torch.arange(7) % 3]
    return totals_of(Labeled(z, y, torch.ones(7, dtype=torch.float64)))


def make_border(**settings: Any) -> ResponseCheck:
    rows = {"a": 20, "b": 20, "c": 20}
    labels = dict.fromkeys(rows, 9)
    method = ClosedForm(weighted=False)
    return make_check(
        method, rows=rows, labels=labels, sites=3, longest=LONGEST, **settings
    )


def test_where_no_row_weighs_more_than_another_a_site_weighs_as_much_as_its_labels() -> (
    None
):
    response_check = make_check(ClosedForm(weighted=False))
    assert response_check.check("a", TOTALS, products(weight=1.0))
    with pytest.raises(ValueError, match="each of 7 labeled rows weighs 1 in this study"):
        response_check.check("a", TOTALS, products(weight=1.5))
    assert find_total_fault(response_check, products(weight=1.0), "totals") is None
    fault = find_total_fault(response_check, products(weight=0.5), "totals")
    assert fault is not None
    assert "they weigh 7" in fault


def test_labeled_rows_are_no_longer_together_than_all_rows_of_the_study() -> None:
    """After scaling, the sum of squared lengths is 60; the limit is twice that."""
    response_check = make_border()
    assert response_check.check("a", TOTALS, lengthened(120 / 7))
    with pytest.raises(ValueError, match=r"lengths .* sum to 121, .* rows to 120 at"):
        response_check.check("a", TOTALS, lengthened(121 / 7))
    assert find_total_fault(response_check, lengthened(120 / 7), "totals") is None
    assert "rows to 120 at most" in str(
        find_total_fault(response_check, lengthened(121 / 7), "totals")
    )


def test_rows_of_a_site_that_counts_for_less_in_units_may_be_longer() -> None:
    """Sites with 2, 2 and 20 examples have weights 2, 2 and 4 in the scaling. A mean
    squared length of 1 over these 8 allows at most 2 for examples of the largest site and 4
    for the others."""
    rows = {"a": 2, "b": 2, "c": 20}
    assert LONGEST(rows, ["c"]) == pytest.approx(2 * 8 * 20 / 4)
    assert LONGEST(rows, ["a"]) == pytest.approx(2 * 8)


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
    """All examples are labeled, at sites of very different size."""
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
    response_check = make_check(
        ClosedForm(weighted=False),
        classes=10,
        rows=rows,
        labels=rows,
        sites=4,
        longest=LONGEST,
    )
    y = torch.eye(10, dtype=torch.float64)[result.y[:1400].long()]
    for site, (start, end) in zip("abcd", pairwise(cuts), strict=True):
        s = torch.ones(end - start, dtype=torch.float64)
        reply = totals_of(Labeled(z[start:end], y[start:end], s))
        assert response_check.check(site, TOTALS, reply) == reply
