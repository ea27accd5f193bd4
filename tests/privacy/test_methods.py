"""What contracts say about noise and masks is true, and the document says the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fallow import strategies, training
from fallow.core.build import names
from fallow.core.spelling import spell_class
from fallow.privacy import Privacy
from tests.contracts.strategies import every
from tests.privacy.federation import SECURE, asking, protected
from tests.worlds import tables

PAGE = Path(__file__).resolve().parents[2] / "docs" / "privacy.md"
HEAD = (
    "| algorithm | differential privacy (`privacy.epsilon`) "
    "| secure aggregation (`privacy.secure_sum`) |"
)


def rows() -> list[str]:
    """The table's rows as the contracts have them."""
    found = []
    for package in (strategies, training):
        for _, cls in sorted(names(package).items()):
            typed = spell_class(cls)
            noise, masks = (
                "yes" if works else "refused"
                for works in (cls.contract.local_dp, cls.contract.secure_sum)
            )
            found.append(f"| `{typed}` | {noise} | {masks} |")
    return found


def test_the_table_of_the_document_is_that_of_the_contracts() -> None:
    text = PAGE.read_text(encoding="utf-8")
    written = text.partition(HEAD)[2].splitlines()[2:]
    assert [line for line in written if line.startswith("|")] == rows(), (
        "the table at the end of docs/privacy.md should be:\n" + "\n".join(rows())
    )


def count_asked(strategy: Any, privacy: Privacy) -> dict[str, list[int]]:
    federation = protected(privacy, strategy, tables(sites=4), strategies=3)
    strategy.query(asking(federation), dict.fromkeys("abcd", 3), {})
    kept = {name: site.memory["picks"]["rows"] for name, site in federation.members.items()}
    return {name: picks.tolist() for name, picks in kept.items()}


@every
def test_a_strategy_works_behind_noise_unless_its_contract_says_no(strategy: Any) -> None:
    if strategy.contract.local_dp:
        assert all(
            len(picks) == 3
            for picks in count_asked(strategy, Privacy(epsilon=1.0)).values()
        )
    else:
        with pytest.raises(ValueError, match="under local privacy"):
            count_asked(strategy, Privacy(epsilon=1.0))


@every
def test_a_strategy_picks_the_same_behind_masks_unless_its_contract_says_no(
    strategy: Any,
) -> None:
    if strategy.contract.secure_sum:
        assert count_asked(strategy, SECURE) == count_asked(strategy, Privacy())
    else:
        with pytest.raises(ValueError, match="with secure aggregation"):
            count_asked(strategy, SECURE)
