"""The closed form reads labeled examples of large sites block by block."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
import torch
from torch import Tensor

from fallow.core.types import Values
from fallow.core.view import Release
from fallow.sites.seen_rows import SeenRows
from fallow.sites.view import SiteView
from fallow.training import ClosedForm
from fallow.training.parts import ridge
from fallow.training.parts.closed_form import (
    labeled_rows,
    losses_of,
    penalties_of,
    totals_of,
)
from tests.training.closed import hospitals, rows_with_classes, rows_with_numbers

BLOCK = 16
N = 60


@dataclass
class Kept:
    """Features read by position, with a record of the block sizes."""

    z: Tensor
    taken: list[int] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.z)

    def take(self, at: Tensor) -> Tensor:
        self.taken.append(len(at))
        return self.z[at]


@dataclass(frozen=True)
class Site:
    """A site with features in memory, and the same with features from a file."""

    method: ClosedForm
    whole: SiteView
    read: SiteView
    kept: Kept


def site_of(method: ClosedForm, *, is_class: bool = True) -> Site:
    rows = rows_with_classes(N) if is_class else rows_with_numbers(N)
    views = []
    for _ in range(2):
        (site,) = hospitals(rows, method, [range(N)], is_class=is_class).members.values()
        views.append(SiteView(site, 0))
    whole, read = views
    kept = Kept(rows.z)
    read._site.seen = SeenRows(kept, torch.arange(N), None, torch.float64)
    return Site(method, whole, read, kept)


def assert_same_bits(answer: Values, expected: Values) -> None:
    assert answer.keys() == expected.keys()
    for name, value in expected.items():
        if isinstance(value, Tensor):
            assert torch.equal(torch.as_tensor(answer[name]), value), name
        else:
            assert answer[name] == value, name


@pytest.mark.parametrize("is_class", [True, False])
@pytest.mark.parametrize("block", [BLOCK, 8192])
def test_its_totals_and_losses_are_those_of_rows_in_memory_bit_for_bit(
    is_class: bool, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ridge, "BLOCK", block)
    site = site_of(ClosedForm(), is_class=is_class)
    rows = labeled_rows(site.whole, site.whole.rows("labeled"), None, is_weighted=True)
    totals = totals_of(rows)
    assert_same_bits(site.method.totals(site.read), totals)

    path = ridge.decompose(ridge.centered(ridge.add_up(rows.z, rows.y, rows.s)))
    lost = losses_of(rows, path, penalties_of(None), is_class=is_class)
    assert_same_bits(site.method.left_out(site.read, **path._asdict()), lost)
    assert max(site.kept.taken) <= block


@pytest.mark.parametrize("is_class", [True, False])
def test_blocks_change_the_order_of_sums_alone(
    is_class: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = site_of(ClosedForm(reveal="head", passes=2), is_class=is_class)

    def ask_all() -> list[Values]:
        answer = [site.method.center(site.read), site.method.totals(site.read)]
        rows = site.method.labeled(site.read)
        path = ridge.decompose(ridge.centered(ridge.add_up(rows.z, rows.y, rows.s)))
        head = ridge.head_of(path, 1e-3)
        leverage = torch.tensor(0.1)
        answer.append(site.method.fitted(site.read, head.weight, head.bias, leverage))
        return answer

    whole = ask_all()
    site.kept.taken.clear()
    monkeypatch.setattr(ridge, "BLOCK", BLOCK)
    for answer, expected in zip(ask_all(), whole, strict=True):
        for name, value in expected.items():
            torch.testing.assert_close(answer[name], value, rtol=1e-12, atol=1e-12)
    assert max(site.kept.taken) <= BLOCK


def test_noisy_totals_are_summed_in_blocks_too(monkeypatch: pytest.MonkeyPatch) -> None:
    site = site_of(ClosedForm(delta=1e-5))
    whole = site.method.noisy_totals(site.whole)
    monkeypatch.setattr(ridge, "BLOCK", BLOCK)
    totals = site.method.noisy_totals(site.read)
    assert isinstance(totals, Release)
    torch.testing.assert_close(totals.counts, whole.counts, rtol=1e-12, atol=1e-12)
    assert max(site.kept.taken) <= BLOCK
