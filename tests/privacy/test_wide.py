"""Test that secure aggregation sums columns in the units of clinics, of any size."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from fallow.core.ask import Ask
from fallow.core.exchange_key import ExchangeKey
from fallow.core.missing import Missing
from fallow.core.values import LARGEST_WIDE
from fallow.encoders import Fourier
from fallow.encoders.encoding import Imputation
from fallow.privacy.secure_sum import SecureSum
from fallow.privacy.settings import Privacy
from fallow.privacy.wide import BITS, LOWEST, PARTS, decode_wide, encode_wide
from fallow.sites.store import Label
from fallow.training.scaling import Scaling
from tests.each import each_of
from tests.privacy.federation import SECURE
from tests.simulations import Forgetful
from tests.strategies.regression import draws, federation, shared, stacked

SHIFT = torch.tensor([240.0, 5.5e4, 1.75e9, 1.75e18, 6.2e9, 4e-7, 0.0]).double()
SPREAD = torch.tensor([50.0, 4e4, 9e6, 9e15, 2e9, 1e-7, 0.5]).double()
"""Cholesterol (mg/dl), income, seconds and nanoseconds since 1970, counts of cells (per l), moles
per l, and a number near 0."""


def clinic(n: int = 300) -> dict[str, Tensor]:
    return shared(SHIFT + SPREAD * draws(n, len(SHIFT), name="clinic"), (150, 100, 50))


def asking(method: Any, sites: dict[str, Tensor], privacy: Privacy) -> Ask:
    """Return a coordinator that asks a method at sites, in double precision."""
    simulation = federation(sites, method)
    for site in simulation.members.values():
        site.parts = replace(site.parts, privacy=privacy)
    simulation.members["a"].buy([Label(3, 5.5e4, 0), Label(9, 2.1e6, 0)])
    ask = Ask(
        simulation.channel,
        Forgetful(),
        simulation.shown,
        ExchangeKey("query", "query"),
        reveals=method.contract.disclosures,
    )
    if privacy.secure_sum:
        ask.masking = SecureSum(privacy.bound)
    return ask


AGREED = {
    "scaling": (Scaling(), lambda method, ask: method.of_features(ask)),
    "targets": (Scaling(), lambda method, ask: method.of_targets(ask)),
    "encoder": (Fourier(), lambda method, ask: method.fit(ask, (len(SHIFT),))),
    "filling": (
        Imputation(Missing()),
        lambda method, ask: {"fill": method.agree(ask)},
    ),
}


@pytest.mark.parametrize("privacy", [SECURE, Privacy(secure_sum=True, bound=1e9)], ids=str)
@each_of("method, agree", AGREED.values())
def test_columns_of_any_size_are_summed_behind_masks_as_without(
    method: Any, agree: Any, privacy: Privacy
) -> None:
    plain = agree(method, asking(method, clinic(), Privacy()))
    masked = agree(method, asking(method, clinic(), privacy))
    for name, value in plain.items():
        torch.testing.assert_close(masked[name], value, rtol=1e-12, atol=0)


def test_deviations_behind_masks_are_those_of_the_pooled_rows() -> None:
    sites = clinic()
    features = Scaling().of_features(asking(Scaling(), sites, SECURE))
    x = stacked(sites)
    torch.testing.assert_close(features["std"], x.std(0, correction=0), rtol=1e-9, atol=0)


def test_sums_of_opposite_numbers_keep_the_digits_of_their_difference() -> None:
    total = torch.zeros(2, 9, dtype=torch.int64)
    for site, value in zip("abc", (1.75e18, -1.75e18, 3e-9), strict=True):
        number = torch.tensor([value, -value], dtype=torch.float64)
        total += encode_wide(site, "f", "x", number)
    assert decode_wide(total).tolist() == [3e-9, -3e-9]


def test_the_bound_is_that_of_the_parts() -> None:
    assert LARGEST_WIDE == 2.0 ** (LOWEST + BITS * PARTS)


@pytest.mark.parametrize("value", [LARGEST_WIDE, -1e60, torch.inf, torch.nan])
def test_a_number_that_cannot_be_summed_is_refused(value: float) -> None:
    with pytest.raises(ValueError, match="site a"):
        encode_wide("a", "f", "x", torch.tensor([1.0, value], dtype=torch.float64))
