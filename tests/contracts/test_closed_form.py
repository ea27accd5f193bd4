"""Query strategies with a closed-form classifier run or are refused before training."""

from __future__ import annotations

import pytest

import fallow as fl
from fallow.settings.classes import classes_of

REFUSED = {
    "NoiseStability": "perturbs the weights of a trained network",
    "IFAL": "trains a teacher by gradient steps",
    "FEAL": "reads outputs as evidence",
}
CLASSES = [name for name, cls in classes_of("strategy").items() if cls.contract.classes]
NUMBERS = [name for name, cls in classes_of("strategy").items() if not cls.contract.classes]


@pytest.fixture(scope="module")
def simulation() -> fl.Federation:
    return fl.Federation(fl.load("digits"), fl.Dirichlet(alpha=1.0), sites=3)


def run(simulation: fl.Federation, strategy: str) -> fl.Run:
    return fl.run(
        simulation,
        strategy,
        training="closed-form",
        encoder="identity",  # fast
        rows=200,
        test_rows=100,
        initial=8,
        budget=4,
        cycles=1,
        protocol="cycles",
        progress=False,
    )


def test_every_strategy_is_for_classes_or_for_numbers() -> None:
    assert set(CLASSES) >= {*REFUSED, "Margin", "BADGE", "AHFAL", "FairFAL", "CoreSet"}
    assert set(NUMBERS) >= {"BAIT", "ACSFW"}


@pytest.mark.long
@pytest.mark.parametrize("strategy", sorted(set(CLASSES) - REFUSED.keys()))
def test_it_chooses_rows_by_a_head_in_closed_form(
    simulation: fl.Federation, strategy: str
) -> None:
    done = run(simulation, strategy)
    assert done.records["labeled"].tolist() == [24, 36]
    assert done.records["accuracy"].iloc[-1] > 0.4  # chance is 0.1


@pytest.mark.parametrize("strategy", sorted(REFUSED))
def test_it_is_refused_in_one_sentence(simulation: fl.Federation, strategy: str) -> None:
    with pytest.raises((ValueError, RuntimeError), match=REFUSED[strategy]):
        run(simulation, strategy)
