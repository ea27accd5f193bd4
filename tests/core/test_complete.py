"""Exchanges that need every site."""

from __future__ import annotations

import pytest
import torch

from fallow.core.complete import each_of_all, sum_of_all
from fallow.experiment.journal import Journal
from fallow.privacy import Privacy
from tests.privacy.federation import SECURE, Asker, Losing, asking, protected
from tests.worlds import tables


@pytest.mark.parametrize(
    ("privacy", "exchange"),
    [(Privacy(), 0), (SECURE, 0), (SECURE, 1)],
    ids=["plain", "keys", "masked"],
)
def test_a_total_of_all_is_the_total_or_nothing_that_a_resume_would_repeat(
    privacy: Privacy, exchange: int
) -> None:
    federation, journal = protected(privacy, sites=tables(sites=4)), Journal()
    lost = Losing(federation.carrier, {exchange: ["b"]})
    with pytest.raises(
        RuntimeError, match=r"3 of 4 sites replied to 'plain', .* with --resume when"
    ):
        sum_of_all(asking(federation, lost, journal), Asker().plain)
    again = sum_of_all(asking(federation, journal=journal), Asker().plain)
    assert float(again["sites"]) == 4
    plain = asking(protected(Privacy(), sites=tables(sites=4))).sum(Asker().plain)
    torch.testing.assert_close(again["x"], plain["x"], rtol=0, atol=1e-10)


def test_answers_of_all_are_all_or_none_is_recorded() -> None:
    federation, journal = protected(Privacy()), Journal()
    lost = Losing(federation.carrier, {0: ["b"]})
    with pytest.raises(RuntimeError, match="2 of 3 sites replied to 'plain'"):
        each_of_all(asking(federation, lost, journal), Asker().plain)
    assert (
        len(each_of_all(asking(federation, journal=journal), Asker().plain, scale=2.0)) == 3
    )
