"""Test that secure aggregation is the default in agreements of three sites or more."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fallow.deployment.building import LARGE, with_secure_sums
from fallow.privacy.settings import Privacy
from fallow.settings.config import ExperimentConfig, config_from

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
