"""Test that secure aggregation is the default in agreements of three sites or more."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, final

import pytest

from fallow.core import client
from fallow.core.ask import Ask
from fallow.core.contract import Contract
from fallow.core.names import OWN
from fallow.core.types import Values
from fallow.core.values import Real
from fallow.core.view import View
from fallow.deployment.building import LARGE, build_study, with_secure_sums
from fallow.privacy.settings import Privacy
from fallow.settings.config import ExperimentConfig, config_from
from tests.deployment.hosts import agreement

SOLVED = config_from({"name": "trial", "training": "closed-form", "strategy": "margin"})


@pytest.mark.parametrize(
    ("config", "privacy"),
    [
        (SOLVED, Privacy(secure_sum=True, bound=LARGE)),
        (ExperimentConfig("trial"), Privacy(secure_sum=True, bound=LARGE)),
        (replace(SOLVED, privacy=Privacy(bound=5.0)), Privacy(secure_sum=True, bound=5.0)),
        (
            ExperimentConfig("trial", privacy=Privacy(epsilon=1.0)),
            Privacy(epsilon=1.0, secure_sum=True, bound=LARGE),
        ),
        (
            config_from({"name": "trial", "training": "nobodys:Training"}),
            Privacy(secure_sum=True, bound=LARGE),
        ),
    ],
    ids=["closed form", "FedAvg", "with a bound", "with noise", "not ours"],
)
def test_three_sites_have_it_and_all_else_stays(
    config: ExperimentConfig, privacy: Privacy
) -> None:
    secure_sums = with_secure_sums(config, 3)
    assert secure_sums.privacy == privacy
    assert replace(secure_sums, privacy=config.privacy) == config


def test_who_agreed_to_show_parts_has_none() -> None:
    config = config_from({"name": "trial", "training": "closed-form:shown=parts"})
    assert with_secure_sums(config, 3) is config


def test_two_sites_have_none() -> None:
    assert with_secure_sums(SOLVED, 2) is SOLVED


@final
@dataclass(frozen=True)
class Telling:
    """Query strategy of a user, whose contributions disclose examples."""

    shown: Literal["totals", "parts"] = "totals"
    contract: ClassVar[Contract] = Contract("Telling")

    def query(self, ask: Ask, budget: Any, memo: Any) -> Any:
        ask.sum(self.measure)
        return memo

    @client.sum(
        "aggregates of the first column",
        returns={"total": Real()},
        reveals_parts="the coordinator sees the first column of each site",
    )
    def measure(self, view: View) -> Values:
        return {"total": view.rows()[:, 0].sum()}


@pytest.mark.parametrize(
    ("fields", "secure_sum", "is_refused"),
    [("", "false", True), (":shown=parts", "false", False), ("", "true", False)],
)
def test_a_strategy_of_a_user_that_shows_parts_needs_secure_sums_or_an_agreement(
    fields: str, secure_sum: str, is_refused: bool
) -> None:
    strategy = f"strategy={__name__}:Telling{fields}"
    agreed = agreement(strategy, f"privacy.secure_sum={secure_sum}", names=OWN)
    if not is_refused:
        build_study(agreed)
        return
    with pytest.raises(ValueError, match=r"needs secure aggregation.*first column of each"):
        build_study(agreed)
