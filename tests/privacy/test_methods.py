"""Declarations of support for noise and secure aggregation are correct."""

from __future__ import annotations

from typing import Any

import pytest

from fallow.privacy.settings import Privacy
from tests.contracts.strategies import every
from tests.privacy.federation import SECURE, asking, protected
from tests.simulations import tables


def count_asked(strategy: Any, privacy: Privacy) -> dict[str, list[int]]:
    federation = protected(privacy, strategy, tables(sites=4), strategies=3)
    strategy.query(asking(federation), dict.fromkeys("abcd", 3), {})
    kept = {
        name: site.memory["selected"]["rows"] for name, site in federation.members.items()
    }
    return {name: selected.tolist() for name, selected in kept.items()}


@pytest.mark.long
@every
def test_a_strategy_works_behind_noise_unless_its_contract_says_no(strategy: Any) -> None:
    if strategy.contract.local_dp:
        assert all(
            len(selected) == 3
            for selected in count_asked(strategy, Privacy(epsilon=1.0)).values()
        )
    else:
        with pytest.raises(ValueError, match="under local privacy"):
            count_asked(strategy, Privacy(epsilon=1.0))


@pytest.mark.long
@every
def test_a_strategy_picks_the_same_behind_masks_unless_its_contract_says_no(
    strategy: Any,
) -> None:
    if strategy.contract.secure_sum:
        assert count_asked(strategy, SECURE) == count_asked(strategy, Privacy())
    else:
        with pytest.raises(ValueError, match="with secure aggregation"):
            count_asked(strategy, SECURE)
