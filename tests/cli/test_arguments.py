"""Arguments that are checked early know every query strategy."""

from __future__ import annotations

import pytest

from fallow import strategies
from fallow.cli.arguments import check_arguments
from fallow.core.build import find, names
from fallow.core.spelling import spell_class


def test_every_query_strategy_and_alias_is_known() -> None:
    aliases: list[str] = []
    for cls in names(strategies).values():
        check_arguments(
            "demo", [spell_class(cls), cls.__name__, f"{spell_class(cls)}@rounds=2"]
        )
        aliases += cls.contract.aliases
    assert aliases
    for alias in aliases:
        check_arguments("demo", [alias])
        assert find(strategies, alias)


@pytest.mark.parametrize(
    "strategy",
    ["mine:Own", "mine.sub:Own:tau=1@rounds=3", "entropy:model=global", "bound:all-labels"],
)
def test_fields_and_custom_strategies_are_left_to_the_run(strategy: str) -> None:
    check_arguments("demo", [strategy])
