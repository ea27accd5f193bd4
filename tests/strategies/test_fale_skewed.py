"""FALE with secure aggregation if one site has most examples or columns are collinear."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from fallow.privacy.secure_sum import bits
from fallow.strategies.fale import FALE
from fallow.strategies.parts import leverage
from tests.privacy.federation import SECURE, asking
from tests.strategies.regression import (
    ANYWHERE,
    AT_SITES,
    Rows,
    draws,
    equal,
    federation,
    picked,
)

SKEWED = (380, 5, 5, 4, 3, 3)


def sites_of(x: Tensor, sizes: tuple[int, ...]) -> dict[str, Tensor]:
    parts = torch.split(x, list(sizes))
    return dict(zip("abcdefghijkl"[: len(sizes)], parts, strict=True))


def heavy(n: int, d: int) -> Tensor:
    """Return examples with outliers, so that scores differ."""
    return draws(n, d) / draws(n, 1, name="tail").abs().sqrt()


def correlated(n: int, d: int, noise: float) -> Tensor:
    """Return d columns that are equal up to a little noise and scale."""
    x = heavy(n, 1) + noise * draws(n, d, name="noise")
    return x * torch.logspace(-0.5, 0.5, d, dtype=x.dtype)


CASES = {
    "one site has most rows": sites_of(heavy(sum(SKEWED), 5), SKEWED),
    "of ten sites one has most": sites_of(heavy(227, 4), (200, *[3] * 9)),
    "correlated columns": sites_of(correlated(120, 30, 0.1), (30, 30, 30, 30)),
    "nearly equal columns": sites_of(correlated(120, 12, 1e-5), (30, 30, 30, 30)),
    "both": sites_of(correlated(sum(SKEWED), 30, 0.01), SKEWED),
    "columns that depend on others": sites_of(
        heavy(sum(SKEWED), 4) @ draws(4, 16, name="mix"), SKEWED
    ),
}


def masked(strategy: FALE, sites: Rows, n: int) -> dict[str, dict[str, Tensor]]:
    simulation = federation(sites, strategy, privacy=SECURE)
    strategy.query(asking(simulation), dict.fromkeys(sites, n), {})
    picks_by_site = {
        name: site.memory.get("selected", {}) for name, site in simulation.members.items()
    }
    return {name: kept for name, kept in picks_by_site.items() if len(kept.get("rows", ()))}


@pytest.mark.parametrize("strategy", [AT_SITES, ANYWHERE], ids=["site", "federation"])
@pytest.mark.parametrize("case", CASES)
def test_skewed_federations_choose_behind_masks_what_they_choose_without(
    case: str, strategy: FALE
) -> None:
    pytest.importorskip("cryptography")
    sites = CASES[case]
    plain = picked(federation(sites, strategy), dict.fromkeys(sites, 2))
    result = masked(strategy, sites, 2)
    assert plain.keys() == result.keys()
    for name, kept in plain.items():
        assert torch.equal(kept["rows"], result[name]["rows"])
        torch.testing.assert_close(
            kept["weight"], result[name]["weight"], rtol=1e-5, atol=1e-7
        )


def test_without_a_rotation_too() -> None:
    case = "both"
    pytest.importorskip("cryptography")
    still = FALE(allot="site", rotate=False)
    plain = picked(federation(CASES[case], still), dict.fromkeys(CASES[case], 2))
    values = masked(still, CASES[case], 2)
    assert {n: k["rows"].tolist() for n, k in plain.items()} == {
        n: k["rows"].tolist() for n, k in values.items()
    }


@pytest.mark.parametrize("k", [1, 6, 55, 300])
@pytest.mark.parametrize("sites", [3, 10, 1000])
def test_the_step_that_is_reckoned_with_is_no_smaller_than_that_of_masked_sums(
    k: int, sites: int
) -> None:
    for bound in (leverage.BOUND, leverage.bound_rotated(torch.ones(k))):
        assert 2.0 ** -bits(bound, sites) <= leverage.step(bound, sites)
        assert math.log2(leverage.step(bound, sites)) + bits(bound, sites) < 1.1


def test_no_rotation_makes_products_of_a_site_larger_than_the_bound() -> None:
    """Check the worst case: all examples at one site and all columns equal."""
    k = 8
    x = draws(50, 1).repeat(1, k)
    unit = leverage.scales(*leverage.spread(x, torch.zeros(k, dtype=x.dtype)))
    towards_all = torch.full((k, k), k**-0.5, dtype=x.dtype)  # its columns: the worst axis
    worst = leverage.products(x, torch.zeros(k, dtype=x.dtype), unit[:, None] * towards_all)
    assert float(worst.abs().max()) == pytest.approx(leverage.FINE * k)
    assert float(worst.abs().max()) <= leverage.bound_rotated(unit)


def test_picks_of_a_balanced_federation_are_equal_to_the_last_bit() -> None:
    pytest.importorskip("cryptography")
    sites = sites_of(heavy(60, 5), (20, 20, 20))
    assert equal(
        picked(federation(sites, AT_SITES), dict.fromkeys(sites, 4)),
        masked(AT_SITES, sites, 4),
    )
