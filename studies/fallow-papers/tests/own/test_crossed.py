"""Worked examples of the interaction of query strategies and training algorithms."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fallow.configs.find import load_configs
from fallow_papers.own.crossed import grid, interactions
from fallow_papers.own.sections import crossed_gains
from tests.report.conftest import rewrite, write_study
from tests.report.reading import piece, read_study

STRATEGIES = ("random", "entropy")
TRAININGS = ("local", "dpfl:budget=5")
WORTH = {
    ("random", "local"): 0.0,
    ("entropy", "local"): 0.02,
    ("random", "dpfl:budget=5"): 0.05,
}


@pytest.fixture
def study_of(tmp_path: Path) -> Any:
    """Return a study with accuracies of 0.5 plus ``WORTH``.

    Other pairs of strategy and training algorithm add 0.1 and 0.001 times the seed.
    """

    def study(seeds: int = 3, trainings: tuple[str, ...] = TRAININGS) -> Any:
        names = [f"{q}@training={t}" for t in trainings for q in STRATEGIES]
        root = write_study(tmp_path / "made", names, seeds, reference=names[0])

        def change(row: dict[str, Any], folder: Path) -> dict[str, Any]:
            strategy, _, training = row["strategy"].partition("@training=")
            worth = WORTH.get((strategy, training), 0.10 + 0.001 * row["seed"])
            return {"accuracy": 0.5 + worth}

        rewrite(root, change)
        return read_study(root)

    return study


def test_the_interaction_is_the_gain_beyond_the_gain_under_local_training(
    study_of: Any,
) -> None:
    (interaction,) = interactions(study_of())
    assert (interaction.strategy, interaction.training) == ("entropy", "dpfl:budget=5")
    assert interaction.gains == pytest.approx((5.1, 2.0))  # 10 + (0, 0.1, 0.2) - 5, and 2
    assert interaction.test.difference == pytest.approx(3.1)
    assert interaction.test.pairs == interaction.test.wins == 3
    half = 4.302653 * 0.1 / 3**0.5  # Student, 2 degrees of freedom, standard deviation 0.1
    assert interaction.test.interval.low == pytest.approx(3.1 - half)
    assert interaction.test.interval.high == pytest.approx(3.1 + half)


def test_one_seed_or_one_way_to_train_has_none(study_of: Any) -> None:
    assert interactions(study_of(seeds=1)) == []


def test_a_study_of_one_training_method_has_none_and_no_section(study_of: Any) -> None:
    study = study_of(trainings=("local",))
    assert interactions(study) == [] and crossed_gains(study, "a") == []


def test_the_report_says_it(study_of: Any) -> None:
    text = piece(crossed_gains(study_of(), "a"))
    assert "Gain under local" in text and "+2.0" in text and "+5.1" in text


def test_the_recipe_is_a_whole_grid() -> None:
    for name in ("personal-al/mnist", "personal-al/mnist-flip"):
        crossed = grid(load_configs()[name].strategies)
        strategies = {q for q, _ in crossed}
        trainings = {t for _, t in crossed}
        assert len(crossed) == len(strategies) * len(trainings) == 20
        assert "random" in strategies and "local" in trainings
